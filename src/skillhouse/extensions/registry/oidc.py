"""Exchanges the token of an identity provider for one that publishes a single name for minutes.

Which provider, and which of its claims, may publish which name is configured in a file of the
operator (docs/reference/registry-api.md).
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from skillhouse.approval import checked_url
from skillhouse.extensions.registry.hosting import (
    HostedRepository,
    HostingError,
    checked_scope,
    new_token,
)
from skillhouse.floor import ConfigError, DecodeError, nearest, shaped
from skillhouse.house.issuer_tokens import (
    LEEWAY_SECONDS,
    FetchKeys,
    IdentityProvider,
    IssuerTokens,
    TokenRefusedError,
)
from skillhouse.registry import split_name

LIFE = timedelta(minutes=15)
VALID_MAX = timedelta(hours=24)
"""How long a provider's token may be valid: its `jti` is kept for so long."""
JTI_MAX = 200
_RULES_MAX = 1_000
_FILE_MAX = 1024 * 1024
_SHOWN_MAX = 300


class TrustedPublisher(Struct, frozen=True, kw_only=True):
    """One `[[publishers]]` table: whose tokens publish a name."""

    name: str
    """`pdf` or `@acme/pdf`."""
    issuer: str
    claims: Mapping[str, str] = field(default_factory=dict)
    """Each must be just this text, as in {repository = "acme/skills", environment = "release"}."""


class OidcRules(Struct, frozen=True, kw_only=True):
    """The operator's file."""

    issuers: tuple[IdentityProvider, ...] = ()
    publishers: tuple[TrustedPublisher, ...] = ()


def read_rules(path: Path) -> OidcRules:
    """Return what an operator's file allows; ConfigError where it cannot be used."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_MAX)
        found = shaped(tomllib.loads(data.decode()), OidcRules)
    except OSError as error:
        raise ConfigError(f"cannot read it: {error.strerror}", path=path) from error
    except (DecodeError, ValueError) as error:
        raise ConfigError(f"not the rules of an exchange: {error}", path=path) from error
    known = [one.issuer for one in found.issuers]
    if len(set(known)) != len(known) or len(found.publishers) > _RULES_MAX:
        raise ConfigError("an issuer is there twice, or there are too many publishers", path=path)
    for one in found.issuers:
        if not one.issuer or not one.audience:
            raise ConfigError("expected `issuer` and `audience` of each issuer", path=path)
        if not one.jwks.startswith("/"):
            checked_url(one.jwks or one.issuer)
    for rule in found.publishers:
        try:
            split_name(rule.name)
        except DecodeError as error:
            raise ConfigError(f"publisher `{rule.name[:80]}`: {error}", path=path) from error
        if rule.issuer not in known:
            hint = next(iter(nearest(rule.issuer, known)), "")
            message = f"`{rule.name}`: no issuer `{rule.issuer[:200]}` is there"
            raise ConfigError(message, path=path, suggestion=hint)
        if not any(rule.claims.values()):
            raise ConfigError(f"`{rule.name}`: expected `claims` that are not empty", path=path)
    return found


class TokenExchange:
    """For any thread."""

    def __init__(
        self,
        repository: HostedRepository,
        rules: OidcRules,
        fetch: FetchKeys,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repository = repository
        self._rules = rules
        self._tokens = IssuerTokens(fetch, clock=clock)

    def exchange(self, token: str, name: str) -> dict[str, Any]:
        """Return a token that publishes a name for `LIFE`.

        Raises:
            HostingError: `unauthorized`, the token is none of a provider that is known here, or was
                used; `forbidden`, its claims are not those of the name; `name`, it is none.
        """
        try:
            namespace, skill = split_name(name)
        except DecodeError as error:
            raise HostingError("name", str(error)) from error
        issuer, claims = self._claims(token)
        rule = self._rule(issuer, claims, (namespace, skill))
        now = self._repository.now
        expires = datetime.fromtimestamp(claims["exp"], UTC) + timedelta(seconds=LEEWAY_SECONDS)
        if not self._repository.store.use_once(issuer.issuer, claims["jti"], expires, now):
            raise HostingError("unauthorized", "this token was exchanged before: ask for another")
        scope = checked_scope(f"publish:{namespace}/{skill}")
        secret, made = new_token(
            self._repository.store,
            (scope,),
            now,
            note="exchanged",
            life=LIFE,
            claims=_shown(issuer, rule, claims),
        )
        return {"token": secret, "id": made.id, "scopes": [scope], "expires_at": made.expires_at}

    def _claims(self, token: str) -> tuple[IdentityProvider, dict[str, Any]]:
        """Return the claims of a token whose signature, time and audience are right."""
        try:
            issuer, claims = self._tokens.claims(
                token, self._rules.issuers, required=("iat", "jti")
            )
        except TokenRefusedError as error:
            raise _refused(str(error)) from error
        jti, span = claims["jti"], claims["exp"] - claims["iat"]
        if not isinstance(jti, str) or not 0 < len(jti) <= JTI_MAX:
            raise _refused(f"expected a `jti` of 1 to {JTI_MAX} characters")
        if not 0 < span <= VALID_MAX.total_seconds():
            raise _refused("it is valid for too long")
        return issuer, claims

    def _rule(
        self, issuer: IdentityProvider, claims: Mapping[str, Any], name: tuple[str, str]
    ) -> TrustedPublisher:
        for rule in self._rules.publishers:
            is_for_it = rule.issuer == issuer.issuer and split_name(rule.name) == name
            # INVARIANT: a text is compared as it is; letters of another case are another claim.
            if is_for_it and all(claims.get(key) == text for key, text in rule.claims.items()):
                return rule
        raise HostingError(
            "forbidden", "no publisher that is configured here for the name has these claims"
        )


def _refused(why: str) -> HostingError:
    return HostingError("unauthorized", f"the token is not taken: {why}")


def _shown(issuer: IdentityProvider, rule: TrustedPublisher, claims: Mapping[str, Any]) -> str:
    """Return who a token is of, as one line for the record of changes."""
    said = {**rule.claims, **{key: claims[key] for key in ("sha", "run_id") if key in claims}}
    text = " ".join([issuer.issuer, *(f"{key}={value}" for key, value in said.items())])
    return "".join(one if one.isprintable() else "?" for one in text)[:_SHOWN_MAX]

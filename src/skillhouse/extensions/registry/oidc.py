"""Exchanges the token of an identity provider for one that publishes a single name for minutes.

Which provider, and which of its claims, may publish which name is configured in a file of the
operator (docs/reference/registry-api.md).
"""

from __future__ import annotations

import json
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from msgspec import Struct, field

from skillhouse.approval.webhook import checked_url
from skillhouse.extensions.registry.hosting import (
    HostedRepository,
    HostingError,
    checked_scope,
    new_token,
)
from skillhouse.floor import ConfigError, DecodeError, SkillhouseError, nearest, shaped
from skillhouse.registry import split_name

TOKEN_MAX = 16 * 1024
"""Characters of a provider's token."""
KEYS_BYTES_MAX = 256 * 1024
KEYS_MAX = 100
KEYS_SECONDS = 600.0
"""How long the keys of a provider are kept."""
ASKED_SECONDS = 60.0
"""How often they are asked for at most, whatever keys tokens name."""
LIFE = timedelta(minutes=15)
LEEWAY_SECONDS = 30
VALID_MAX = timedelta(hours=24)
"""How long a provider's token may be valid: its `jti` is kept for so long."""
JTI_MAX = 200
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""INVARIANT: none with a shared secret, so a public key is never taken for one, and not `none`."""
_RULES_MAX = 1_000
_FILE_MAX = 1024 * 1024
_SHOWN_MAX = 300


class IdentityProvider(Struct, frozen=True, kw_only=True):
    """One `[[issuers]]` table."""

    issuer: str
    """Exactly the claim `iss`."""
    audience: str
    """What `aud` must be, best the address of this registry."""
    jwks: str = ""
    """The keys (RFC 7517): an https address, or the absolute path of a file; where it is left out,
    what the issuer says in its /.well-known/openid-configuration."""


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


FetchKeys = Callable[[str], bytes]
"""Gets what is at an address, under the rules of `net`."""


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
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[float, dict[str, jwt.PyJWK]]] = {}

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
        if len(token) > TOKEN_MAX or not token.isascii():
            raise _refused("it is too large")
        try:
            # Nothing of these is believed: they say by which key the token is to be checked.
            said = jwt.decode(token, options={"verify_signature": False}).get("iss")
            kid = jwt.get_unverified_header(token).get("kid", "")
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise _refused("it is no JWT") from error
        issuer = next((one for one in self._rules.issuers if one.issuer == said), None)
        if issuer is None:
            raise _refused("its issuer is not configured here")
        key = self._key(issuer, kid if isinstance(kid, str) else "")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                # The algorithm is that of the key, and never what the token says alone.
                algorithms=[key.algorithm_name],
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "jti"], "strict_aud": True},
            )
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise _refused(str(error)[:120]) from error
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

    def _key(self, issuer: IdentityProvider, kid: str) -> jwt.PyJWK:
        """Return a key of a provider; without an id the only one that it has."""
        with self._lock:
            now = self._clock()
            taken, keys = self._keys.get(issuer.issuer, (-KEYS_SECONDS, {}))
            is_old = now - taken > KEYS_SECONDS
            if is_old or (kid not in keys and now - taken > ASKED_SECONDS):
                try:
                    keys = _keys_of(self._read(issuer.jwks or self._discovered(issuer.issuer)))
                except (SkillhouseError, OSError, ValueError) as error:
                    # What is known counts on, for a while; else there is nothing to check by.
                    if now - taken > 6 * KEYS_SECONDS:
                        raise _refused("the keys of its issuer cannot be had now") from error
                else:
                    self._keys[issuer.issuer] = now, keys
        if not kid and len(keys) == 1:
            return next(iter(keys.values()))
        if kid not in keys:
            raise _refused("its issuer has no such key")
        return keys[kid]

    def _discovered(self, issuer: str) -> str:
        """Return where an issuer says that its keys are (OpenID Connect Discovery 1.0)."""
        value = json.loads(self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
        if not isinstance(value, dict) or value.get("issuer") != issuer:
            raise ValueError("expected the configuration of this very issuer")
        found = checked_url(str(value.get("jwks_uri")))
        # One that is reached by https sends nothing to a server on this machine.
        if issuer.startswith("https:") and not found.startswith("https:"):
            raise ValueError("expected an https address of the keys")
        return found

    def _read(self, place: str) -> bytes:
        if not place.startswith("/"):
            return self._fetch(place)
        with open(place, "rb") as file:
            return file.read(KEYS_BYTES_MAX)


def _keys_of(data: bytes) -> dict[str, jwt.PyJWK]:
    """Return the keys for signatures that can be used; ValueError where it is no set of keys."""
    value = json.loads(data)
    listed = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise ValueError("expected `keys`")
    found: dict[str, jwt.PyJWK] = {}
    for one in listed[:KEYS_MAX]:
        if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(one)
        except (jwt.PyJWTError, ValueError, TypeError):
            # One that is not understood costs no other.
            continue
        if key.algorithm_name in ALGORITHMS:
            found[str(one.get("kid", ""))] = key
    return found


def _refused(why: str) -> HostingError:
    return HostingError("unauthorized", f"the token is not taken: {why}")


def _shown(issuer: IdentityProvider, rule: TrustedPublisher, claims: Mapping[str, Any]) -> str:
    """Return who a token is of, as one line for the record of changes."""
    said = {**rule.claims, **{key: claims[key] for key in ("sha", "run_id") if key in claims}}
    text = " ".join([issuer.issuer, *(f"{key}={value}" for key, value in said.items())])
    return "".join(one if one.isprintable() else "?" for one in text)[:_SHOWN_MAX]

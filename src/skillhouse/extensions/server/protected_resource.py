"""`/mcp` as a protected resource of OAuth: its metadata (RFC 9728), and who a token lets in.

An authorization server that `[oauth]` names gives tokens (JWT, as in RFC 9068) for our address
alone (RFC 8707). They open `/mcp` and nothing else, for a user who is none of this machine's.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from skillhouse.floor import needs_extra
from skillhouse.floor.regex import regex
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.mcp.over_http import MCP_PATH
from skillhouse.house import Access, AccessScope, Skillhouse
from skillhouse.house.access_tokens import OAUTH_USER
from skillhouse.house.config import OAuthSettings

if TYPE_CHECKING:
    from skillhouse.house.issuer_tokens import IssuerTokens

METADATA_PATH = "/.well-known/oauth-protected-resource"
METADATA_PATHS = (METADATA_PATH, METADATA_PATH + MCP_PATH)
"""With and without the path of the resource (RFC 9728, 3.1)."""
ID_PREFIX = "oauth-"
"""Begins the id of a user's access; ids of our own tokens are hexadecimal."""
EVERYONE = "*"
USERS_MAX = 10_000
CHECKS_MAX = 8
"""Tokens that are checked at one moment: a slow issuer keeps nothing else waiting."""

_USER = regex(r"[!-~]{1,128}")
_UNQUOTABLE = regex(r"[^ !#-\[\]-~]")


class OAuthRefusalError(Exception):
    """A request is not let in; the header says what a client may do about it."""

    def __init__(self, status: int, message: str, challenge: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.challenge = challenge
        """The value of `WWW-Authenticate`; empty where another token would not help."""


class _LetIn(Struct, frozen=True, kw_only=True):
    """A user's newest token, as far as it matters for connections that are open."""

    settings: OAuthSettings
    ends: float


class ProtectedResource:
    """For any thread; follows the configuration, which may come and go while the server runs."""

    def __init__(self, house: Skillhouse, *, clock: Callable[[], float] = time.time) -> None:
        self._house = house
        self._clock = clock
        self._tokens: IssuerTokens | None = None
        self._let_in: OrderedDict[str, _LetIn] = OrderedDict()
        self._lock = threading.Lock()
        self._limiter: anyio.CapacityLimiter | None = None
        if self.settings is not None:
            self._checker()

    @property
    def settings(self) -> OAuthSettings | None:
        self._house.config_reload.check()
        return self._house.config.oauth

    def has_metadata(self, path: str) -> bool:
        """Whether an address needs no key, since a client learns there how to log in."""
        return path in METADATA_PATHS and self.settings is not None

    def metadata(self) -> str:
        """Return the document as JSON; only where `has_metadata`."""
        settings = self.settings
        assert settings is not None  # noqa: S101 - the guard has asked.
        return json.dumps(
            {
                "resource": settings.resource,
                "authorization_servers": [settings.issuer],
                "scopes_supported": [settings.scope],
                "bearer_methods_supported": ["header"],
                "resource_name": "skillhouse",
            }
        )

    def challenge(self, error: str = "", why: str = "") -> str:
        """Return the value of `WWW-Authenticate` (RFC 6750, 3; RFC 9728, 5.1)."""
        settings = self.settings
        if settings is None:
            return "Bearer"
        parts = urlsplit(settings.resource)
        place = f"{parts.scheme}://{parts.netloc}{METADATA_PATH}{parts.path}"
        named = {
            "error": error,
            "error_description": _UNQUOTABLE.sub("?", why),
            "scope": settings.scope,
            "resource_metadata": place,
        }
        return "Bearer " + ", ".join(f'{key}="{text}"' for key, text in named.items() if text)

    async def access(self, authorization: bytes) -> Access:
        """Return who a request at `/mcp` is of, by its one `Authorization`.

        Raises:
            OAuthRefusalError: the token does not count, or not for this.
        """
        settings = self.settings
        scheme, _, token = authorization.partition(b" ")
        if settings is None or scheme.lower() != b"bearer":
            raise OAuthRefusalError(401, "this token is none of ours", self.challenge())
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(CHECKS_MAX)
        text = token.strip().decode("latin-1")
        return await in_thread(lambda: self._access(settings, text), limiter=self._limiter)

    def holds(self, access_id: str) -> bool:
        """Whether the newest token of a user who was let in has not ended."""
        found = self._let_in.get(access_id)
        if found is None or found.settings != self.settings:
            return False
        return found.ends > self._clock()

    def _access(self, settings: OAuthSettings, token: str) -> Access:
        from skillhouse.house.issuer_tokens import (  # noqa: PLC0415 - pyjwt is an extra's.
            LEEWAY_SECONDS,
            IdentityProvider,
            TokenRefusedError,
        )

        provider = IdentityProvider(
            issuer=settings.issuer, audience=settings.resource, jwks=settings.jwks
        )
        try:
            _, claims = self._checker().claims(token, (provider,))
        except TokenRefusedError as error:
            why = f"the token is not taken: {error}"
            raise OAuthRefusalError(
                401, why, self.challenge("invalid_token", str(error))
            ) from error
        if settings.scope not in _scopes_of(claims):
            why = f"the token lacks the scope `{settings.scope}`"
            raise OAuthRefusalError(403, why, self.challenge("insufficient_scope", why))
        name = _user_of(settings, claims)
        access_id = (
            ID_PREFIX + hashlib.sha256(f"{settings.issuer}\0{name}".encode()).hexdigest()[:16]
        )
        with self._lock:
            self._let_in[access_id] = _LetIn(
                settings=settings, ends=float(claims["exp"]) + LEEWAY_SECONDS
            )
            self._let_in.move_to_end(access_id)
            if len(self._let_in) > USERS_MAX:
                self._let_in.popitem(last=False)
        user = OAUTH_USER + name
        return Access(
            id=access_id,
            name=user,
            kind="token",
            user=user,
            agent=settings.agent,
            scopes=frozenset({AccessScope.CALL}),
            expires_ms=int(claims["exp"]) * 1_000,
        )

    def _checker(self) -> IssuerTokens:
        if self._tokens is None:
            with needs_extra("mcp"):
                from skillhouse.house.issuer_tokens import (  # noqa: PLC0415 - likewise.
                    IssuerTokens,
                    fetch_by,
                )

            self._tokens = IssuerTokens(fetch_by(self._house.services.network))
        return self._tokens


def _scopes_of(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of a token: `scope` of RFC 9068, or `scp`, which some servers write."""
    said = claims.get("scope", claims.get("scp", ""))
    if isinstance(said, str):
        return said.split()
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []


def _user_of(settings: OAuthSettings, claims: Mapping[str, Any]) -> str:
    """Return the user of a token; OAuthRefusalError for one who may not log in."""
    name = claims.get(settings.user_claim)
    if not isinstance(name, str) or not _USER.fullmatch(name):
        message = f"expected 1 to 128 ASCII characters without blanks in `{settings.user_claim}`"
        raise OAuthRefusalError(403, f"the token names no user: {message}")
    # INVARIANT: texts are compared as they are; letters of another case are another user.
    is_listed = name in settings.users or EVERYONE in settings.users
    if not is_listed or not all(
        _has(claims.get(key), text) for key, text in settings.claims.items()
    ):
        raise OAuthRefusalError(403, "this user may not use this service")
    return name


def _has(value: object, text: str) -> bool:
    return value == text or (isinstance(value, list) and text in value)

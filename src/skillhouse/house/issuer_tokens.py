"""Checks tokens (JWT, RFC 7519) of issuers that are configured, by the keys that those publish.

Needs pyjwt, so it is imported where tokens are checked only. Of a token nothing is believed before
its signature; the algorithm is that of the key, as its issuer publishes it (RFC 8725, 3.1).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import anyio
import jwt
from msgspec import Struct

from skillhouse.approval.webhook import checked_url
from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    from skillhouse.house.network import Network

TOKEN_MAX = 16 * 1024
"""Characters of a token."""
KEYS_BYTES_MAX = 256 * 1024
KEYS_MAX = 100
KEYS_SECONDS = 600.0
"""How long the keys of an issuer are kept."""
ASKED_SECONDS = 60.0
"""How often they are asked for at most, whatever keys tokens name."""
LEEWAY_SECONDS = 30
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""INVARIANT: none with a shared secret, so a public key is never taken for one, and not `none`."""


class IdentityProvider(Struct, frozen=True, kw_only=True):
    """An issuer, and for whom its tokens must be."""

    issuer: str
    """Exactly the claim `iss`."""
    audience: str
    """What `aud` must be, best the address of this service."""
    jwks: str = ""
    """The keys (RFC 7517): an https address, or the absolute path of a file; where it is left out,
    what the issuer says in its metadata (OpenID Connect Discovery 1.0, RFC 8414)."""


class TokenRefusedError(SkillhouseError):
    """A token does not count; the message says why, and nothing of it is secret."""


P = TypeVar("P", bound=IdentityProvider)
FetchKeys = Callable[[str], bytes]
"""Gets what is at an address, under the rules of `net`."""


class _KnownKeys(Struct, frozen=True, kw_only=True):
    asked: float
    """When they were asked for last, whether or not anything came."""
    taken: float
    keys: dict[str, jwt.PyJWK]


class IssuerTokens:
    """For any thread; keeps the keys of each issuer for a while."""

    def __init__(self, fetch: FetchKeys, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[IdentityProvider, _KnownKeys] = {}

    def claims(
        self, token: str, providers: Iterable[P], *, required: Iterable[str] = ()
    ) -> tuple[P, dict[str, Any]]:
        """Return an issuer and the claims of its token, whose signature, time and audience fit.

        `required` are claims that must be there, besides `exp`, `iss` and `aud`.

        Raises:
            TokenRefusedError: it is none of these issuers for this audience, or not any more.
        """
        if len(token) > TOKEN_MAX or not token.isascii():
            raise TokenRefusedError("it is too large")
        try:
            # Nothing of these is believed: they say by which key the token is to be checked.
            said = jwt.decode(token, options={"verify_signature": False}).get("iss")
            kid = jwt.get_unverified_header(token).get("kid", "")
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise TokenRefusedError("it is no JWT") from error
        provider = next((one for one in providers if one.issuer == said), None)
        if provider is None:
            raise TokenRefusedError("its issuer is not configured here")
        key = self._key(provider, kid if isinstance(kid, str) else "")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                # The algorithm is that of the key, and never what the token says alone.
                algorithms=[key.algorithm_name],
                audience=provider.audience,
                issuer=provider.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", *required]},
            )
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise TokenRefusedError(str(error)[:120]) from error
        if claims["aud"] not in (provider.audience, [provider.audience]):
            # INVARIANT: one that others take too could be sent here by any of them.
            raise TokenRefusedError("it is for another audience too")
        return provider, claims

    def _key(self, provider: IdentityProvider, kid: str) -> jwt.PyJWK:
        """Return a key of an issuer; without an id the only one that it has."""
        nothing = _KnownKeys(asked=-KEYS_SECONDS, taken=-6 * KEYS_SECONDS, keys={})
        with self._lock:
            now = self._clock()
            known = self._known.get(provider, nothing)
            is_old = now - known.taken > KEYS_SECONDS or kid not in known.keys
            if is_old and now - known.asked > ASKED_SECONDS:
                known = self._asked_again(provider, known, now)
            # What is known counts on for a while where it cannot be asked for.
            if now - known.taken > 6 * KEYS_SECONDS:
                raise TokenRefusedError("the keys of its issuer cannot be had now")
        if not kid and len(known.keys) == 1:
            return next(iter(known.keys.values()))
        if kid not in known.keys:
            raise TokenRefusedError("its issuer has no such key")
        return known.keys[kid]

    def _asked_again(self, provider: IdentityProvider, known: _KnownKeys, now: float) -> _KnownKeys:
        try:
            keys = _keys_of(self._read(provider.jwks or self._discovered(provider.issuer)))
        except (SkillhouseError, OSError, ValueError, RecursionError):
            found = _KnownKeys(asked=now, taken=known.taken, keys=known.keys)
        else:
            found = _KnownKeys(asked=now, taken=now, keys=keys)
        self._known[provider] = found
        return found

    def _discovered(self, issuer: str) -> str:
        """Return where an issuer says that its keys are."""
        value = None
        for address in metadata_addresses(issuer):
            try:
                value = json.loads(self._fetch(address))
            except (SkillhouseError, OSError, ValueError, RecursionError):
                # Of the two forms an issuer may have one.
                continue
            break
        if not isinstance(value, dict) or value.get("issuer") != issuer:
            raise ValueError("expected the metadata of this very issuer")
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


def fetch_by(network: Network) -> FetchKeys:
    """Return what gets keys by the rules of `net`, from a thread without an event loop."""

    def fetch(url: str) -> bytes:
        ask = partial(network.exchange, url, KEYS_BYTES_MAX, method="GET", headers={})
        answer = anyio.run(ask)
        if answer.status != 200:
            raise TokenRefusedError(f"status {answer.status} at the keys")
        return answer.body

    return fetch


def metadata_addresses(issuer: str) -> tuple[str, str]:
    """Return where the metadata of an issuer may be.

    >>> metadata_addresses("https://a.example/t")[1]
    'https://a.example/.well-known/oauth-authorization-server/t'
    """
    parts = urlsplit(issuer)
    inserted = f"/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"
    return (
        f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        f"{parts.scheme}://{parts.netloc}{inserted}",
    )


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

"""Tokens of a registry: a secret that is shown once, its digest, and what it may do."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta

from msgspec import Struct

from skillhouse.extensions.registry.hosting.release_store import (
    Actor,
    ReleaseStore,
    ReleaseToken,
    utc_text,
)
from skillhouse.registry import DEFAULT_NAMESPACE, HostingError
from skillhouse.skill import validate_name

PREFIX = "skr"
"""Begins each token, so that scanners of secrets can find one that was leaked."""
NOTE_MAX = 100
_TOKEN = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")
_NOBODY = "0" * 64


class TokenAccess(Struct, frozen=True):
    """What the sender of a request may do."""

    token_id: str = ""
    """Empty for a request without a token."""
    scopes: tuple[str, ...] = ()
    address: str = ""
    """From which the request came."""
    claims: str = ""
    """What an identity provider vouched for."""

    @property
    def actor(self) -> Actor:
        return Actor(token=self.token_id, claims=self.claims, address=self.address)

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    @property
    def may_read(self) -> bool:
        return self.is_admin or "read" in self.scopes

    def may(self, action: str, namespace: str, skill: str) -> bool:
        """Whether a scope allows `publish` or `yank` of a skill.

        >>> TokenAccess("t", ("publish:acme/*",)).may("publish", "acme", "pdf")
        True
        >>> TokenAccess("t", ("publish:acme/*",)).may("yank", "acme", "pdf")
        False
        """
        wanted = (f"{action}:{namespace}/{skill}", f"{action}:{namespace}/*")
        return self.is_admin or any(scope in self.scopes for scope in wanted)


def checked_scope(text: str) -> str:
    """Return a scope in its one spelling.

    >>> checked_scope("publish:pdf"), checked_scope("yank:acme/*"), checked_scope("read")
    ('publish:default/pdf', 'yank:acme/*', 'read')

    Raises:
        HostingError: `bad-request`, it is none.
    """
    if text in ("read", "metrics", "admin"):
        return text
    action, _, target = text.partition(":")
    namespace, slash, skill = target.partition("/")
    if not slash:
        namespace, skill = DEFAULT_NAMESPACE, target
    is_named = skill == "*" or not validate_name(skill, directory=skill)
    if action not in ("publish", "yank") or not is_named:
        namespace = ""
    if not namespace or validate_name(namespace, directory=namespace):
        message = (
            "expected read, metrics, admin, publish:NAMESPACE/NAME or yank:NAMESPACE/NAME, where "
            f"NAME may be *, got {text[:80]!r}"
        )
        raise HostingError("bad-request", message)
    return f"{action}:{namespace}/{skill}"


def new_token(
    store: ReleaseStore,
    scopes: tuple[str, ...],
    now: datetime,
    *,
    days: int = 0,
    note: str = "",
    life: timedelta | None = None,
    claims: str = "",
) -> tuple[str, ReleaseToken]:
    """Make and keep a token; return its secret, which is kept nowhere, and what is."""
    life = life or timedelta(days=days)
    token_id = secrets.token_hex(6)
    secret = f"{PREFIX}_{token_id}_{secrets.token_urlsafe(32)}"
    token = ReleaseToken(
        id=token_id,
        digest=_digest(secret),
        scopes=tuple(sorted({checked_scope(one) for one in scopes})),
        note=note[:NOTE_MAX],
        created_at=utc_text(now),
        expires_at=utc_text(now + life) if life else "",
        claims=claims,
    )
    store.add_token(token)
    return secret, token


def access_of(store: ReleaseStore, secret: str, now: datetime) -> TokenAccess | None:
    """Return what a token allows; None for one that is unknown, ended or revoked.

    A guess takes as long as a token that is known: the digest of what was sent is compared in
    constant time, with that of no token where the id is unknown.
    """
    found = _TOKEN.fullmatch(secret)
    token = store.token(found[1]) if found else None
    kept = _NOBODY if token is None else token.digest
    is_same = hmac.compare_digest(_digest(secret), kept)
    if token is None or not is_same or token.revoked_at:
        return None
    if token.expires_at and token.expires_at <= utc_text(now):
        return None
    return TokenAccess(token.id, token.scopes, claims=token.claims)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()

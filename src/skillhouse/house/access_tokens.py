"""Who may use the HTTP service: named tokens and the browsers of its owner, kept as digests."""

from __future__ import annotations

import enum
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from skillhouse.floor import SkillhouseError, StateError
from skillhouse.store import (
    STATE,
    STATE_FILE,
    commit_stamp,
    pooled,
    state_clock,
    state_exists,
)

logger = logging.getLogger(__name__)

OWNER_NAME = "local"
OAUTH_USER = "oauth:"
"""Begins the user of who logs in by `[oauth]`, so that it is none of this machine's."""
SECRET_BYTES = 32
"""Random bytes of a token: too many to guess (RFC 6749, 10.10), so a plain digest hides it."""
PREFIX = "skh"
"""Begins each token, by which a scanner of secrets finds one that was published."""
TOKENS_MAX = 200
BROWSERS_MAX = 50
"""Browsers that are remembered; the oldest is forgotten beyond that."""
BROWSER_DAYS = 90
TOKEN_DAYS = 90
"""How long a named token holds where nothing else is said."""
DAY_MS = 86_400_000
NAME_MAX = 64
USE_MS = 10 * 60_000
"""A use is noted once in this time, so that a busy token costs no more writes."""


class AccessScope(enum.StrEnum):
    """What a token may be used for; none includes another."""

    READ = "read"
    MANAGE = "manage"
    CALL = "call"
    APPROVE = "approve"


ALL_SCOPES = frozenset(AccessScope)


class AccessError(SkillhouseError):
    """A token cannot be made or found; nothing was changed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Access(Struct, frozen=True, kw_only=True):
    """On whose behalf a request comes, and what it may do."""

    id: str = ""
    name: str = "start"
    kind: Literal["start", "browser", "token", "none"] = "start"
    """The token that `up` printed, a browser that used it, a named token, or no key at all."""
    user: str = OWNER_NAME
    agent: str = "default"
    scopes: frozenset[AccessScope] = ALL_SCOPES
    created_ms: int = 0
    expires_ms: int = 0
    """0 where it does not end by itself."""
    used_ms: int = 0
    """When it was used last, to `USE_MS`; 0 for never."""

    @property
    def is_owner(self) -> bool:
        """Whether it is the owner's own key, which opens the pages and `/mcp` too."""
        return self.kind in ("start", "browser")


NO_ACCESS = Access(name="", kind="none", user="", agent="", scopes=frozenset())
"""Of a request without a key, at an address that needs none."""


def shared_key(state: Path, name: str, make: Callable[[], str]) -> str:
    """Return the key of a name that each server of a state has to have the same.

    The first call keeps what `make` returns. StateError.
    """
    query = "SELECT secret FROM page_key WHERE name = ?"
    with pooled(state, STATE) as store:
        rows = store.rows(query, (name,))
        if not rows:
            made = make()
            # Of two processes that do so at once, the first one wins.
            with store.transaction() as connection:
                connection.execute(
                    "INSERT INTO page_key (name, secret) VALUES (?, ?) "
                    "ON CONFLICT (name) DO NOTHING",
                    (name, made),
                )
            rows = store.rows(query, (name,))
    return str(rows[0][0])


class AccessTokens:
    """The tokens and browsers of one state directory; any process may revoke one."""

    def __init__(
        self,
        state_directory: Path,
        *,
        clock: Callable[[], float] = time.time,
        record: Callable[[str, Access], None] = lambda _, __: None,
    ) -> None:
        """`clock` gives seconds since 1970; `record` gets `new` and `revoked` tokens."""
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, clock)
        self._record = record
        self._noted: dict[str, int] = {}
        self._known: tuple[tuple[int, ...], dict[str, tuple[str, Access]]] = ((), {})

    def new(
        self,
        name: str,
        scopes: Iterable[AccessScope],
        *,
        agent: str = "default",
        user: str = OWNER_NAME,
        days: int = 0,
    ) -> tuple[Access, str]:
        """Return a new named token, whose text is not kept. It holds for `days`, or until revoked.

        Raises:
            AccessError: the name is taken or none, no scope is given, or one token would call and
                approve: a program must not answer its own questions. Or the user is of `[oauth]`.
        """
        wanted = frozenset(scopes)
        if not name.strip() or len(name) > NAME_MAX or not name.isprintable():
            raise AccessError("token-name", f"expected a name of 1 to {NAME_MAX} printable signs")
        if not wanted:
            raise AccessError("token-scopes", "expected one scope at least")
        if {AccessScope.CALL, AccessScope.APPROVE} <= wanted:
            raise AccessError(
                "token-scopes",
                "a token that calls must not approve its own calls; make two tokens",
            )
        if user.startswith(OAUTH_USER):
            # INVARIANT: who logs in elsewhere gets no token of ours.
            raise AccessError(
                "token-user", f"`{user[:80]}` begins with `{OAUTH_USER}`: name a user of yours"
            )
        if any(one.name == name for one in self.all()):
            raise AccessError("token-exists", f"there is a token `{name}` already; revoke it first")
        if len(self.all()) >= TOKENS_MAX:
            raise AccessError("too-many-tokens", f"expected at most {TOKENS_MAX} tokens")
        now = self._now()
        access = Access(
            id=secrets.token_hex(6),
            name=name,
            kind="token",
            user=user,
            agent=agent,
            scopes=wanted,
            created_ms=now,
            expires_ms=now + days * DAY_MS if days else 0,
        )
        # What cannot be recorded is not made.
        self._record("new", access)
        return access, self._kept(access, PREFIX)

    def new_browser(self) -> str:
        """Return the value of the cookie of one more browser of the owner."""
        now = self._now()
        access = Access(
            id=secrets.token_hex(6),
            name="browser",
            kind="browser",
            created_ms=now,
            expires_ms=now + BROWSER_DAYS * DAY_MS,
        )
        kept = self._kept(access, PREFIX + "b")
        browsers = [one for one in self.all() if one.kind == "browser"]
        for one in browsers[: max(0, len(browsers) - BROWSERS_MAX)]:
            self._forget(one.id)
        return kept

    def proof_key(self) -> bytes:
        """Return the key of what the pages prove a form of theirs with; the first call makes it.

        Whoever serves this state has the same one, so that forms outlive a start. StateError.
        """
        return bytes.fromhex(
            shared_key(self._path, "proofs", lambda: secrets.token_hex(SECRET_BYTES))
        )

    def find(self, token: str, kind: str) -> Access | None:
        """Return whose token, or value of a cookie, this is; None if it is no one's, or ended."""
        parts = token.split("_", 2)
        if len(parts) != 3 or not token.isascii():
            return None
        digest, access = self._rows().get(parts[1], ("", NO_ACCESS))
        is_right = hmac.compare_digest(digest, _digest(token))
        if not is_right or access.kind != kind:
            return None
        if self._has_ended(access):
            return None
        self._note_use(access)
        return access

    def holds(self, access_id: str) -> bool:
        """Whether a token or browser is there, and has not ended."""
        _, access = self._rows().get(access_id, ("", NO_ACCESS))
        return access.kind != "none" and not self._has_ended(access)

    def all(self) -> tuple[Access, ...]:
        """Return every token and browser, the oldest first; none has its secret."""
        return tuple(access for _, access in self._rows().values())

    def revoke(self, name: str) -> Access:
        """End a token or browser by its name or id; AccessError where none has it."""
        fitting = [one for one in self.all() if one.id == name]
        fitting = fitting or [one for one in self.all() if one.name == name]
        if len(fitting) != 1:
            which = f"{len(fitting)} have the name" if fitting else "no token or browser has"
            raise AccessError("unknown-token", f"{which} `{name}`; name one by its id")
        self._forget(fitting[0].id)
        self._record("revoked", fitting[0])
        return fitting[0]

    def _kept(self, access: Access, prefix: str) -> str:
        token = f"{prefix}_{access.id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO access_token (id, name, kind, user_name, agent, scopes, digest, "
                "created_ms, expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    access.id,
                    access.name,
                    access.kind,
                    access.user,
                    access.agent,
                    " ".join(sorted(access.scopes)),
                    _digest(token),
                    access.created_ms,
                    access.expires_ms,
                ),
            )
        return token

    def _note_use(self, access: Access) -> None:
        now = self._now()
        if now - max(access.used_ms, self._noted.get(access.id, 0)) < USE_MS:
            return
        self._noted[access.id] = now
        try:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute(
                    "UPDATE access_token SET used_ms = ? WHERE id = ?", (now, access.id)
                )
        except StateError as error:
            # What it opens does not depend on it: the state may be full, or held by another.
            logger.warning("the use of a token was not noted: %s", error)

    def _forget(self, access_id: str) -> None:
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM access_token WHERE id = ?", (access_id,))

    def _rows(self) -> dict[str, tuple[str, Access]]:
        """Return digest and access by id, read again when any process has changed the state."""
        if not state_exists(self._path):
            return {}
        stamp = commit_stamp(self._path)
        if stamp != self._known[0]:
            with pooled(self._path, STATE) as store:
                rows = store.rows(
                    "SELECT id, name, kind, user_name, agent, scopes, digest, created_ms, "
                    "expires_ms, used_ms FROM access_token ORDER BY created_ms, seq"
                )
            self._known = (stamp, {row[0]: (row[6], _access(row)) for row in rows})
        return self._known[1]

    def _has_ended(self, access: Access) -> bool:
        return bool(access.expires_ms) and access.expires_ms <= self._now()

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _access(row: tuple[str, str, str, str, str, str, str, int, int, int]) -> Access:
    access_id, name, kind, user, agent, scopes, _, created_ms, expires_ms, used_ms = row
    return Access(
        id=access_id,
        name=name,
        kind="browser" if kind == "browser" else "token",
        user=user,
        agent=agent,
        scopes=frozenset(map(AccessScope, scopes.split())),
        created_ms=created_ms,
        expires_ms=expires_ms,
        used_ms=used_ms,
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()

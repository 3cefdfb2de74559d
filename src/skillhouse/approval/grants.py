"""Lasting yeses: what one covers, and where it is kept."""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import ClassVar

from skillhouse.approval.request import CLOCK_BACK_SECONDS, OWNER
from skillhouse.floor import ONE_TIME
from skillhouse.store import STATE, STATE_FILE, pooled

SUBCOMMANDS = frozenset({"git", "gh", "cargo", "docker", "go", "kubectl", "npm", "pip", "uv"})
"""Programs whose second word says what they do, so that a yes can cover one such word."""

INTERPRETERS = frozenset(
    "sh bash dash zsh ksh fish python python3 node deno bun perl ruby php lua awk gawk mawk sed "
    "env xargs find nohup timeout nice watch ssh sudo su doas make eval exec busybox".split()
)
"""Programs that run what their arguments or a file say: a lasting yes would cover anything."""
NEVER_LASTING = ONE_TIME | {"sign"}
"""Actions to which no yes is a lasting one; a rule of a person's own may let a session key sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A remembered allow: one action on one pattern, for one state of a skill."""

    action: str
    pattern: str
    place: str
    """Real path of the workspace it holds in; empty for every place of the user."""
    skill_digest: str = ""
    """Tree digest of the skill it is about; empty when no skill is."""
    user: str = OWNER
    agent: str = "default"
    device: str = ""
    """Id of the paired device that granted it; empty when none did. Unpairing ends it."""
    device_name: str = field(default="", compare=False)
    id: str = field(default="", compare=False)
    granted_ms: int = field(default=0, compare=False)
    expires_ms: int = field(default=0, compare=False)
    """Milliseconds since 1970; from then on it does not hold."""

    def is_current(self, now_ms: float) -> bool:
        """Whether it holds at a time; a clock that is before it was granted was set back."""
        return self.granted_ms - CLOCK_BACK_SECONDS * 1000 <= now_ms < self.expires_ms

    def is_for(self, *, user: str, agent: str, place: str, skill_digest: str) -> bool:
        """Whether it holds for calls of this user and agent, here, about this state of a skill."""
        return (
            (self.user, self.agent) == (user, agent)
            and self.place in ("", place)
            and self.skill_digest == skill_digest
        )


def grant_patterns(action: str, resource: str, argv: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the patterns that a lasting yes to one call covers (decision 7).

    A command is covered with its sub-command and any further words, where the program is known to
    have sub-commands and the second word is one; any other command as it is. A path is covered
    with all that lies in its directory. Wildcards in the resource itself give no grant.

    >>> grant_patterns("exec", "git status -s", ["git", "status", "-s"])
    ('git status', 'git status *')
    >>> grant_patterns("exec", "curl -s x.test", ["curl", "-s", "x.test"])
    ('curl -s x.test',)
    >>> grant_patterns("write", "/home/mika/site/a.txt")
    ('/home/mika/site/*',)
    """
    if action in NEVER_LASTING or "*" in resource or "?" in resource:
        return ()
    if action == "exec":
        if _has_subcommand(argv):
            return (f"{argv[0]} {argv[1]}", f"{argv[0]} {argv[1]} *")
        return (resource,)
    if action in ("read", "write", "list"):
        return (f"{PurePosixPath(resource).parent}/*",)
    return (resource,)


def may_last(argv: Sequence[str]) -> bool:
    """Whether a yes to this command may be a lasting one; no command at all may.

    A shell or an interpreter runs what a line or a file says, and the file may say something else
    tomorrow (reference/security.md section 4.3).

    >>> may_last(["git", "status"]), may_last(["bash", "-c", "ls"]), may_last([])
    (True, False, True)
    """
    if not argv:
        return True
    program = argv[0].rpartition("/")[2]
    return program not in INTERPRETERS and program.rstrip("0123456789.") not in INTERPRETERS


def _has_subcommand(argv: Sequence[str]) -> bool:
    return (
        len(argv) > 1
        and argv[0] in SUBCOMMANDS
        and not argv[1].startswith("-")
        and argv[1].replace("-", "").isalnum()
    )


class GrantStore:
    """The grants of a person, kept in the state database."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def stamp(self) -> tuple[int, ...]:
        """Do as `file_stamp`, for the state file."""
        return file_stamp(self._path)

    def all(self) -> tuple[Grant, ...]:
        """Return every grant, oldest first, also those that have ended.

        Raises:
            StateError: the state cannot be read; nothing is granted then.
        """
        if not self._path.exists():
            return ()
        with pooled(self._path, STATE) as store:
            query = f"SELECT {_COLUMNS} FROM lasting_grant ORDER BY rowid"  # noqa: S608 - a constant.
            return tuple(_grant(row) for row in store.rows(query))

    def add(self, grants: Sequence[Grant]) -> None:
        """Keep grants; one that is there already gets the new end."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            insert_grants(connection, grants)

    def end(self, now_ms: int) -> None:
        """Note which grants have ended, so that they hold no more when the clock is set back."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE lasting_grant SET expires_ms = granted_ms "
                "WHERE expires_ms <= ? AND expires_ms > granted_ms",
                (now_ms,),
            )

    def revoke(self, grant_id: str) -> Grant | None:
        """Forget the grant of this id and return it; None when there is none."""
        found = next((grant for grant in self.all() if grant.id == grant_id), None)
        if found is not None:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM lasting_grant WHERE id = ?", (grant_id,))
        return found

    def clear(self) -> int:
        """Forget every grant and return how many there were."""
        count = len(self.all())
        if count:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM lasting_grant")
        return count


def insert_grants(connection: sqlite3.Connection, grants: Sequence[Grant]) -> None:
    """Keep grants inside a transaction of the caller's."""
    connection.executemany(
        f"INSERT INTO lasting_grant ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608
        "ON CONFLICT (action, pattern, place, skill_digest, user, agent, device) DO UPDATE "
        "SET granted_ms = excluded.granted_ms, expires_ms = excluded.expires_ms",
        [
            (
                g.id or secrets.token_hex(8),
                g.action,
                g.pattern,
                g.place,
                g.skill_digest,
                g.user,
                g.agent,
                g.granted_ms,
                g.expires_ms,
                g.device,
                g.device_name,
            )
            for g in grants
        ],
    )


def file_stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change with each commit to a database; empty when there is none.

    The log grows before a commit counts, so its size alone would miss the commit of who is just
    writing. What readers go by is the header of the index (SQLite, "WAL-mode File Format",
    section 2.1), which has a counter of commits.
    """
    found: list[int] = []
    for suffix in ("", "-wal"):
        try:
            info = os.stat(f"{path}{suffix}")
        except FileNotFoundError:
            continue
        found += [info.st_ino, info.st_size, info.st_mtime_ns]
    with suppress(FileNotFoundError):
        index = _OpenIndexes.of(f"{path}-shm")
        found.append(int.from_bytes(os.pread(index, _INDEX_HEADER_BYTES, 0), "big"))
    return tuple(found)


class _OpenIndexes:
    """The index files of databases that this process reads, each opened once.

    INVARIANT: the descriptor of an index is not closed while SQLite may have it open. Closing any
    descriptor of a file ends all POSIX locks of the process on it (fcntl(2), "Record locks").
    SQLite would lose its own, and another process that opens the database would truncate the index
    under our connections: SIGBUS, or damage (sqlite.org/howtocorrupt.html, section 2.2).
    """

    _lock = threading.Lock()
    _kept: ClassVar[dict[str, tuple[tuple[int, int], int]]] = {}
    """Path to the identity and the descriptor."""

    @classmethod
    def of(cls, path: str) -> int:
        """Return a descriptor of the file that is at the path now.

        Raises:
            FileNotFoundError: no process has the database open.
        """
        with cls._lock:
            identity, handle = cls._kept.get(path, ((0, 0), -1))
            if _identity(path) == identity:
                return handle
            opened = os.open(path, os.O_RDONLY)
            for old in [old for old, (known, _) in cls._kept.items() if _identity(old) != known]:
                # SQLite removes an index with its last connection, so this one has none.
                os.close(cls._kept.pop(old)[1])
            info = os.fstat(opened)
            cls._kept[path] = (info.st_dev, info.st_ino), opened
            return opened


def _identity(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


_INDEX_HEADER_BYTES = 48
_COLUMNS = (
    "id, action, pattern, place, skill_digest, user, agent, granted_ms, expires_ms, "
    "device, device_name"
)


def _grant(row: Sequence[object]) -> Grant:
    return Grant(**dict(zip(_COLUMNS.split(", "), row, strict=True)))  # type: ignore[arg-type]

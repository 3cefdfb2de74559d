"""Standing approvals: what one covers, and where it is kept."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath

from skillhouse.approval.request import CLOCK_BACK_SECONDS, OWNER
from skillhouse.floor import ONE_TIME
from skillhouse.store import STATE, STATE_FILE, commit_stamp, pooled

SUBCOMMANDS = frozenset({"git", "gh", "cargo", "docker", "go", "kubectl", "npm", "pip", "uv"})
"""Programs with sub-commands, so that an approval can cover one of them."""

INTERPRETERS = frozenset(
    "sh bash dash zsh ksh fish python python3 node deno bun perl ruby php lua awk gawk mawk sed "
    "env xargs find nohup timeout nice watch ssh sudo su doas make eval exec busybox".split()
)
"""Programs that run code from arguments or a file: a standing approval would cover anything."""
NEVER_LASTING = ONE_TIME | {"sign"}
"""Actions without standing approvals; only a rule of the user may let a session key sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A remembered allow: one action on one pattern, for one state of a skill."""

    action: str
    pattern: str
    place: str
    """Real path of the workspace it holds in; empty is every place of the user."""
    skill_digest: str = ""
    """Tree digest of the skill it is about, if any."""
    user: str = OWNER
    agent: str = "default"
    device: str = ""
    """Id of the paired device that granted it; unpairing ends it."""
    device_name: str = field(default="", compare=False)
    id: str = field(default="", compare=False)
    granted_ms: int = field(default=0, compare=False)
    expires_ms: int = field(default=0, compare=False)
    """From then on it does not hold."""

    def is_current(self, now_ms: float) -> bool:
        """Whether it holds at a time; before the grant only within `CLOCK_BACK_SECONDS`."""
        return self.granted_ms - CLOCK_BACK_SECONDS * 1000 <= now_ms < self.expires_ms

    def is_for(self, *, user: str, agent: str, place: str, skill_digest: str) -> bool:
        return (
            (self.user, self.agent) == (user, agent)
            and self.place in ("", place)
            and self.skill_digest == skill_digest
        )


def grant_patterns(action: str, resource: str, argv: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the patterns that a standing approval of one call covers (decision 7).

    A command is covered with its sub-command and any further words, where the program is known to
    have sub-commands and the second word is one; any other command as it is. A path is covered
    with everything in its directory. Wildcards in the resource itself give no grant.

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
    """Whether the approval of this command may be a standing one; no command at all may.

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
    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def stamp(self) -> tuple[int, ...]:
        return commit_stamp(self._path)

    def all(self) -> tuple[Grant, ...]:
        """Return every grant, oldest first, also ended ones; StateError if the state cannot be
        read."""
        if not self._path.exists():
            return ()
        with pooled(self._path, STATE) as store:
            query = f"SELECT {_COLUMNS} FROM lasting_grant ORDER BY rowid"  # noqa: S608 - a constant.
            return tuple(_grant(row) for row in store.rows(query))

    def add(self, grants: Sequence[Grant]) -> None:
        """Keep grants; one that is there gets the new end."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            insert_grants(connection, grants)

    def end(self, now_ms: int) -> None:
        """End grants for good, so that they hold no more when the clock is set back."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE lasting_grant SET expires_ms = granted_ms "
                "WHERE expires_ms <= ? AND expires_ms > granted_ms",
                (now_ms,),
            )

    def revoke(self, grant_id: str) -> Grant | None:
        revoked = next((grant for grant in self.all() if grant.id == grant_id), None)
        if revoked is not None:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM lasting_grant WHERE id = ?", (grant_id,))
        return revoked

    def clear(self) -> int:
        count = len(self.all())
        if count:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.execute("DELETE FROM lasting_grant")
        return count


def insert_grants(connection: sqlite3.Connection, grants: Sequence[Grant]) -> None:
    values = ", ".join(f":{name}" for name in _COLUMNS.split(", "))
    connection.executemany(
        f"INSERT INTO lasting_grant ({_COLUMNS}) VALUES ({values}) "  # noqa: S608 - constants.
        "ON CONFLICT (action, pattern, place, skill_digest, user, agent, device) DO UPDATE "
        "SET granted_ms = excluded.granted_ms, expires_ms = excluded.expires_ms",
        [asdict(replace(grant, id=grant.id or secrets.token_hex(8))) for grant in grants],
    )


_COLUMNS = (
    "id, action, pattern, place, skill_digest, user, agent, granted_ms, expires_ms, "
    "device, device_name"
)


def _grant(row: Sequence[object]) -> Grant:
    return Grant(**dict(zip(_COLUMNS.split(", "), row, strict=True)))  # type: ignore[arg-type]

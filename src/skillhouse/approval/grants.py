"""Lasting yeses: what one covers, and where it is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from skillhouse.store import STATE, Store

STATE_FILE = "state.sqlite3"

SUBCOMMANDS = frozenset({"git", "gh", "cargo", "docker", "go", "kubectl", "npm", "pip", "uv"})
"""Programs whose second word says what they do, so that a yes can cover one such word."""

ONE_TIME = frozenset({"shell", "exec-once"})
"""Actions that are allowed once, each time (the rules' own `ONE_TIME`; a test compares them)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A remembered allow: one action on one pattern, in one place, for one state of a skill."""

    action: str
    pattern: str
    place: str
    """Real path of the workspace it holds in."""
    skill_digest: str = ""
    """Tree digest of the skill it is about; empty when no skill is."""


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
    if action in ONE_TIME or "*" in resource or "?" in resource:
        return ()
    if action == "exec":
        if _has_subcommand(argv):
            return (f"{argv[0]} {argv[1]}", f"{argv[0]} {argv[1]} *")
        return (resource,)
    if action in ("read", "write", "list"):
        return (f"{PurePosixPath(resource).parent}/*",)
    return (resource,)


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
        """Return numbers that change whenever the state file does; empty when there is none."""
        found: list[int] = []
        for suffix in ("", "-wal"):
            try:
                info = os.stat(f"{self._path}{suffix}")
            except FileNotFoundError:
                continue
            found += [info.st_ino, info.st_size, info.st_mtime_ns]
        return tuple(found)

    def all(self) -> tuple[Grant, ...]:
        """Return every grant, oldest first.

        Raises:
            StateError: the state cannot be read; nothing is granted then.
        """
        if not self._path.exists():
            return ()
        with Store(self._path, STATE) as store:
            query = 'SELECT action, pattern, place, skill_digest FROM "grant" ORDER BY rowid'
            return tuple(
                Grant(action=action, pattern=pattern, place=place, skill_digest=digest)
                for action, pattern, place, digest in store.rows(query)
            )

    def add(self, grants: Sequence[Grant], now: datetime) -> None:
        """Keep grants; one that is there already is kept once."""
        with Store(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany(
                'INSERT OR IGNORE INTO "grant" VALUES (?, ?, ?, ?, ?)',
                [
                    (
                        g.action,
                        g.pattern,
                        g.place,
                        g.skill_digest,
                        now.isoformat(timespec="seconds"),
                    )
                    for g in grants
                ],
            )

    def clear(self) -> int:
        """Forget every grant and return how many there were."""
        count = len(self.all())
        if count:
            with Store(self._path, STATE) as store, store.transaction() as connection:
                connection.execute('DELETE FROM "grant"')
        return count

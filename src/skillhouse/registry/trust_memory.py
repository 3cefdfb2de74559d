"""What this machine learned of publishers and repositories, in its own state.

When it verified a tree, which keeps the tree good once a certificate or a list of revocations has
ended, and which releases their repositories took down, which binds without a network.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import StateError, structs
from skillhouse.registry.lock import LockEntry
from skillhouse.registry.releases import DEFAULT_NAMESPACE, Release, SkillReleases, locked_name
from skillhouse.store import STATE, STATE_FILE, pooled, state_exists

VERIFIED_MAX = 20_000
"""Trees whose time is kept; of more the oldest go."""
TAKEDOWNS_MAX = 10_000
"""Releases of one repository that are kept as taken down, besides those that are installed."""
REASON_MAX = 200
_AHEAD = timedelta(minutes=10)
"""How far the clock may be behind the latest time that is kept, as that of a signer."""
_MACHINE_ID = Path("/etc/machine-id")


class Takedown(Struct, frozen=True, kw_only=True):
    """A release that its repository took down."""

    repository: str
    """As a lock has it: `official`, or `official/@acme`."""
    skill: str
    version: str
    digest: str
    """`sha256:` of its archive."""
    reason: str
    signed: int
    """Number of the signed document that said so; 0 where nothing signed did."""
    at_ms: int
    """When this machine learned of it."""

    @property
    def text(self) -> str:
        """What a person is shown of a skill that is this release."""
        reason = f": {self.reason}" if self.reason else ""
        since = f"{_moment(self.at_ms):%Y-%m-%d}"
        return f"it was revoked by its repository{reason} (known here since {since})"


class RepositoryLook(Struct, frozen=True, kw_only=True):
    """When a repository was asked in the background what it took down and revoked."""

    repository: str
    url: str
    asked_ms: int
    """The last time with an answer to everything; 0 for never."""
    next_ms: int
    failures: int
    """Since then."""
    problem: str
    """Of the last of them."""


_READ = "SELECT repository, skill, version, digest, reason, signed, at_ms FROM takedown "
_KEEP = (
    "INSERT INTO takedown (repository, skill, version, digest, tree_digest, reason, signed, at_ms) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_LOOK = (
    "INSERT INTO repository_look (repository, url, asked_ms, next_ms, failures, problem) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (repository) DO UPDATE SET url = excluded.url, "
    "asked_ms = excluded.asked_ms, next_ms = excluded.next_ms, failures = excluded.failures, "
    "problem = excluded.problem"
)
_AGAIN = "UPDATE takedown SET signed = ? WHERE repository = ? AND digest = ?"
_LIFT = "DELETE FROM takedown WHERE repository = ? AND digest = ?"


class TrustMemory:
    """The state's tables of verified trees and of takedowns."""

    def __init__(
        self,
        state_directory: Path,
        *,
        note: Callable[[str, str], None] = lambda _tree, _who: None,
        machine_id: Path = _MACHINE_ID,
    ) -> None:
        """Take the directory of the state.

        Args:
            note: Gets the digest of a tree, and who signed it, when it is verified first.
        """
        self._path = state_directory / STATE_FILE
        self._note = note
        self._machine_id = machine_id
        self._known: dict[tuple[str, str], datetime] = {}

    def verified_at(self, tree_digest: str, signature: str) -> datetime | None:
        """Return when this machine first verified a tree with a signature (its SHA-256)."""
        key = tree_digest, signature
        if key not in self._known and state_exists(self._path):
            query = (
                "SELECT at_ms FROM verified_tree "
                "WHERE home = ? AND tree_digest = ? AND signature = ?"
            )
            with pooled(self._path, STATE) as store:
                rows = store.rows(query, (self._home(), *key))
            for (at_ms,) in rows:
                self._known[key] = _moment(at_ms)
        return self._known.get(key)

    def keep_verified(self, tree_digest: str, signature: str, who: str, now: datetime) -> None:
        """Keep that a tree was verified now, unless that is known, or the clock was set back.

        INVARIANT: with a clock that was set back an ended certificate seems to hold, so no time
        before one that is kept already is kept.
        """
        home, at_ms = self._home(), _milliseconds(now)
        try:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                query = "SELECT max(at_ms), count(*) FROM verified_tree WHERE home = ?"
                latest, count = connection.execute(query, (home,)).fetchone()
                if latest is not None and latest > _milliseconds(now + _AHEAD):
                    return
                if count >= VERIFIED_MAX:
                    connection.execute(
                        "DELETE FROM verified_tree WHERE seq IN (SELECT seq FROM verified_tree "
                        "WHERE home = ? ORDER BY seq LIMIT ?)",
                        (home, VERIFIED_MAX // 10),
                    )
                insert = (
                    "INSERT INTO verified_tree (home, tree_digest, signature, at_ms) "
                    "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
                )
                connection.execute(insert, (home, tree_digest, signature, at_ms))
        except StateError:
            # In a home that cannot be written the signature holds for as long as it would
            # without this.
            return
        self._known[tree_digest, signature] = now
        self._note(tree_digest, who)

    def _home(self) -> str:
        """Return what a state is not, once it is copied to another machine, user or place."""
        try:
            machine = self._machine_id.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            machine = ""
        user = os.getuid() if hasattr(os, "getuid") else ""
        place = os.path.realpath(self._path.parent)
        return hashlib.sha256(f"{machine}\n{user}\n{place}".encode()).hexdigest()

    def hear(
        self,
        repository: str,
        skill: SkillReleases,
        *,
        installed: LockEntry | None = None,
        signed: int = 0,
        now: datetime,
    ) -> str:
        """Take over what a repository says of a skill; return what a person should know of it.

        A takedown is lifted only where the repository says of that release, in a signed document
        that is later than the one of the takedown, that it is something else. One that leaves the
        release out, and any that is not signed, lifts nothing: that is what a mirror would say.

        Args:
            repository: Its name in the configuration.
            installed: Whose takedown is kept, however many there are.
            signed: Number of the signed document that this is from; 0 where it is not signed.

        Raises:
            StateError: the state cannot be read or written.
        """
        place = locked_name(repository, skill.namespace)
        if not state_exists(self._path) and all(one.state != "revoked" for one in skill.versions):
            return ""
        known = {one.digest: one for one in self._found(_READ + "WHERE repository = ?", place)}
        added, changed = _news(skill, known, signed)
        if not added and not changed:
            return ""
        # What is installed first: there is always room for it.
        wanted = "" if installed is None else installed.digest
        added.sort(key=lambda one: one.digest != wanted)
        least = 1 if added and added[0].digest == wanted else 0
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            for one in changed:
                # One that is taken down by a later word is lifted by a later one than that.
                if one.state == "revoked":
                    connection.execute(_AGAIN, (signed, place, one.digest))
                else:
                    connection.execute(_LIFT, (place, one.digest))
            prefix = f"{repository}/@"
            counting = (
                "SELECT count(*) FROM takedown WHERE repository = ? OR substr(repository, 1, ?) = ?"
            )
            (count,) = connection.execute(counting, (repository, len(prefix), prefix)).fetchone()
            kept = added[: max(least, TAKEDOWNS_MAX - count)]
            for one in kept:
                values = (place, skill.skill, one.version, one.digest, one.tree_digest)
                said = _one_line(one.reason), signed, _milliseconds(now)
                connection.execute(_KEEP, (*values, *said))
        if len(kept) == len(added):
            return ""
        return f"`{repository}` took down more than {TAKEDOWNS_MAX:,} releases: no more are kept"

    def taken_down(self, entry: LockEntry) -> Takedown | None:
        """Return the takedown of an installed skill, by its own repository; None without one.

        Another repository's release of the same name, or of the same files, binds nothing here.
        """
        if not entry.repository or not state_exists(self._path):
            return None
        place = entry.repository.removesuffix(f"/@{DEFAULT_NAMESPACE}")
        query = (
            _READ + "WHERE repository = ? AND (digest = ? OR tree_digest IN (?, ?)) ORDER BY seq"
        )
        accepted = entry.accepted or entry.tree_digest
        return next(
            iter(self._found(query, place, entry.digest, entry.tree_digest, accepted)), None
        )

    def of_skill(self, skill: str) -> tuple[Takedown, ...]:
        """Return the takedowns of skills of a name, of every repository."""
        query = _READ + "WHERE skill = ? ORDER BY seq"
        return self._found(query, skill) if state_exists(self._path) else ()

    def lift(self, one: Takedown) -> None:
        """Forget a takedown, for a person who says so."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(_LIFT, (one.repository, one.digest))

    def looks(self) -> tuple[RepositoryLook, ...]:
        """Return when repositories were asked in the background."""
        if not state_exists(self._path):
            return ()
        query = (
            "SELECT repository, url, asked_ms, next_ms, failures, problem FROM repository_look "
            "ORDER BY repository"
        )
        with pooled(self._path, STATE) as store:
            rows = store.rows(query)
        return tuple(
            RepositoryLook(
                repository=repository, url=url, asked_ms=asked_ms, next_ms=next_ms,
                failures=failures, problem=problem,
            )
            for repository, url, asked_ms, next_ms, failures, problem in rows
        )  # fmt: skip

    def claim(
        self, repository: str, url: str, *, now_ms: int, longest_ms: int, lease_ms: int
    ) -> RepositoryLook | None:
        """Return the look that is due, for this process alone; None where none is.

        Args:
            longest_ms: How far ahead the next look may be: one that is further was planned by a
                clock that was ahead.
            lease_ms: When another process may look, should this one end before it has.
        """
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            query = (
                "SELECT asked_ms, next_ms, failures, problem FROM repository_look "
                "WHERE repository = ? AND url = ?"
            )
            row = connection.execute(query, (repository, url)).fetchone()
            asked_ms, next_ms, failures, problem = row or (0, 0, 0, "")
            if now_ms < next_ms <= now_ms + longest_ms:
                return None
            claimed = RepositoryLook(
                repository=repository,
                url=url,
                asked_ms=asked_ms,
                next_ms=now_ms + lease_ms,
                failures=failures,
                problem=problem,
            )
            connection.execute(_LOOK, structs.astuple(claimed))
        return claimed

    def looked(self, look: RepositoryLook) -> None:
        """Keep what came of a look."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(_LOOK, structs.astuple(look))

    def _found(self, query: str, *values: str) -> tuple[Takedown, ...]:
        with pooled(self._path, STATE) as store:
            rows = store.rows(query, values)
        return tuple(
            Takedown(
                repository=repository, skill=skill, version=version, digest=digest,
                reason=reason, signed=signed, at_ms=at_ms,
            )
            for repository, skill, version, digest, reason, signed, at_ms in rows
        )  # fmt: skip


def _news(
    skill: SkillReleases, known: Mapping[str, Takedown], signed: int
) -> tuple[list[Release], list[Release]]:
    """Return the releases that are taken down now, and known ones of which a later word is here."""
    added, changed = [], []
    for one in skill.versions:
        before = known.get(one.digest)
        if before is not None and before.signed < signed:
            changed.append(one)
        elif before is None and one.state == "revoked":
            added.append(one)
    return added, changed


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _one_line(text: str) -> str:
    """Return a repository's text as one line that a terminal can show."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:REASON_MAX]

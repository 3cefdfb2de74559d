"""Holds installed skills against the lock: for a person who asks, and whenever one is loaded.

Lists show how the skills are by the marks of their files, where these are the same as when the
files were last read. Only what is shown goes by this: whether a skill is loaded is decided by its
bytes, each time.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from skillhouse import registry
from skillhouse import tools as toolbox
from skillhouse.discovery.watcher import survey
from skillhouse.floor import (
    MissingExtraError,
    SkillError,
    SkillhouseError,
    StateError,
    TreeError,
    as_error,
    decode,
    encode,
    file_stamp,
    isolated,
    matching_tree,
    without_leftovers,
    write_atomically,
)
from skillhouse.floor.lock import once
from skillhouse.house.config.config_files import project_of
from skillhouse.registry import (
    InstallPlace,
    LockEntry,
    PackageStore,
    Publisher,
    PublisherCheck,
    TreeChanges,
    TrustMemory,
)

if TYPE_CHECKING:
    from skillhouse.house.config import Config
    from skillhouse.registry import LockEntry


MARKS_FILE = "installed-marks"
"""Below the cache directory."""
MARKS_MAX = 16 * 1024 * 1024
"""Bytes of that file."""
STEADY_NANOSECONDS = 2_000_000_000
"""A file that changed more recently may change again without another time stamp."""

MarkState = Literal["ok", "accepted", "edited", "refused", "missing"]
Judge = Callable[[Path, "LockEntry"], "Judgement"]
"""Reads a directory and says how it compares with its entry."""


class Judgement(Struct, frozen=True):
    """How the files in a directory compare with a lock's entry."""

    state: MarkState
    reason: str = ""
    """Why it is not to be used; empty where it is."""
    ending: str = ""
    """What vouches for it and ended, or soon does."""


class InstalledMark(Struct, frozen=True, kw_only=True):
    """One installed skill."""

    scope: str
    name: str
    directory: Path
    """Its real path."""
    state: MarkState
    reason: str = ""
    ending: str = ""
    """What a person should do about the signature of one that is well, in time."""

    @property
    def is_well(self) -> bool:
        return self.state in ("ok", "accepted")

    @property
    def hint(self) -> str:
        """What a person can do about it."""
        verify = f"`skillhouse verify {self.scope}:{self.name}"
        back = f"{verify} --restore` puts back what was installed"
        if self.state == "edited":
            return f"{verify}` shows the edits, {verify} --accept` keeps them, {back}"
        if self.state == "missing":
            return f"{back}, `skillhouse uninstall {self.scope}:{self.name}` forgets it"
        if self.state == "refused":
            update, remove = (f"`skillhouse {verb} {self.scope}:{self.name}`" for verb in _AFTER)
            return f"{update} if there is a newer one, or {remove}"
        return ""


_AFTER = ("update", "uninstall")


class _LastFound(Struct, frozen=True):
    """What was found when the files were last read."""

    key: str
    """Of the marks, the entry and what is trusted."""
    state: str
    reason: str
    ending: str = ""


class InstalledMarks:
    """The installed skills of one user and project."""

    def __init__(
        self,
        judge: Judge,
        entries: Callable[[str], Mapping[str, LockEntry]],
        bases: Mapping[str, Path],
        *,
        trusted: Path,
        cache: Path | None,
        clock: Callable[[], int] = time.time_ns,
        taken_down: Callable[[LockEntry], str] = lambda _: "",
        policy: str = "",
    ) -> None:
        """Take what judges files that differ, and what the locks say.

        Args:
            entries: Gives the entries of a scope by their paths, which are relative to its base.
            trusted: The directory of what is trusted: after a change all signatures are read again.
            cache: Where the marks are kept; None reads every file each time.
            taken_down: Says why a repository took a skill down; asked each time.
            policy: What the judge goes by besides: after a change all is judged again.
        """
        self._taken_down = taken_down
        self._policy = policy
        self._judge = judge
        self._entries = entries
        self._bases = bases
        self._trusted = trusted
        self._file = None if cache is None else cache / MARKS_FILE
        self._clock = clock

    def of(self, scopes: Iterable[str]) -> tuple[InstalledMark, ...]:
        """Return the installed skills of some scopes, by scope and path.

        Raises:
            StateError: a lock cannot be used.
        """
        known = self._known()
        kept = dict(known)
        # A certificate may end any day; signatures are judged again on each.
        day = self._clock() // 86_400_000_000_000
        around = f"{day} {_marks_of(self._trusted)[0]} {self._policy}"
        found = tuple(
            mark
            for scope in scopes
            if scope in self._bases
            for mark in self._of(scope, around, kept)
        )
        if kept != known:
            self._keep(kept, {str(mark.directory) for mark in found})
        return found

    def _of(self, scope: str, around: str, kept: dict[str, _LastFound]) -> Iterator[InstalledMark]:
        base = Path(os.path.realpath(self._bases[scope]))
        for path, entry in sorted(self._entries(scope).items()):
            name = path.rpartition("/")[2]
            # A project's lock may have any path; only directories below the project are read.
            real = Path(os.path.realpath(base / path))
            if not real.is_relative_to(base) or not real.is_dir():
                reason = f"no directory `{path}`"
                yield InstalledMark(
                    scope=scope, name=name, directory=real, state="missing", reason=reason
                )
                continue
            marks, newest = _marks_of(real)
            signer = "" if entry.signature is None else entry.signature.cert_sha256
            key = f"{around} {marks} {entry.tree_digest} {entry.accepted} {signer}"
            last = kept.get(str(real))
            if last is not None and last.key == key and last.state in _STATES:
                found = Judgement(_STATES[last.state], last.reason, last.ending)
            else:
                found = self._judged(real, entry)
                kept.pop(str(real), None)
                if newest < self._clock() - STEADY_NANOSECONDS:
                    kept[str(real)] = _LastFound(key, found.state, found.reason, found.ending)
            if not found.reason and (why := self._taken_down(entry)):
                found = Judgement("refused", why)
            yield InstalledMark(
                scope=scope,
                name=name,
                directory=real,
                state=found.state,
                reason=found.reason,
                ending=found.ending,
            )

    def _judged(self, real: Path, entry: LockEntry) -> Judgement:
        with isolated() as failed:
            return self._judge(real, entry)
        # INVARIANT: what cannot be judged is refused.
        return Judgement("refused", str(failed[0]))

    def _known(self) -> dict[str, _LastFound]:
        if self._file is None:
            return {}
        try:
            with open(self._file, "rb") as file:
                return decode(file.read(MARKS_MAX), dict[str, _LastFound])
        except (OSError, SkillhouseError):
            return {}

    def _keep(self, kept: Mapping[str, _LastFound], seen: set[str]) -> None:
        if self._file is None:
            return
        # Of other projects those that are still there.
        left = {path: one for path, one in kept.items() if path in seen or os.path.isdir(path)}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with write_atomically(self._file) as file:
                file.write(encode(left))
        except OSError:
            # The next list reads the files again.
            return


_STATES: Mapping[str, MarkState] = {
    "ok": "ok",
    "accepted": "accepted",
    "edited": "edited",
    "refused": "refused",
}


def _marks_of(directory: Path) -> tuple[str, int]:
    """Return a digest of the marks of all files, and the newest change in nanoseconds."""
    entries = survey([str(directory)]).entries
    text = repr(sorted(entries.items())).encode("utf-8", "surrogateescape")
    newest = max((max(mark[1:3]) for mark in entries.values() if len(mark) > 2), default=0)
    return hashlib.sha256(text).hexdigest()[:32], newest


INSTALLS = "installs"
"""The directory of the state with the journal and the packages."""


class InstalledState(Struct, frozen=True, kw_only=True):
    """An installed skill, compared with the lock."""

    name: str
    entry: LockEntry
    place: InstallPlace
    state: str
    """ok, accepted, edited, missing, unreadable, refused, or unasked: well, as far as is known."""
    problem: str = ""
    digest: str = ""
    """Of the files as they are; empty where they cannot be read."""
    changes: TreeChanges | None = None
    """None where what was installed is not known file by file any more."""
    difference: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Files that programs left there, which are no edits and which no one reads."""
    note: str = ""
    """What its repository says of it, where that does not stop it."""

    @property
    def is_well(self) -> bool:
        return self.state in ("ok", "accepted")


def install_locks(config: Config) -> dict[str, tuple[Path, Path]]:
    """Return for each scope the lock, and the directory that its paths are relative to."""
    places = config.places
    project = project_of(places.start)
    return {
        "user": (places.user_file.parent / registry.LOCK_FILE, places.home),
        "project": (project / registry.LOCK_FILE, project),
    }


def compared_state(
    store: PackageStore,
    check: InstalledCheck,
    name: str,
    entry: LockEntry,
    place: InstallPlace,
) -> InstalledState:
    """Compare an installed skill with the lock, and its signature with what is trusted.

    One that cannot be compared is `unreadable`, whatever the reason.

    Raises:
        StateError, MissingExtraError: what is about all skills alike.
    """
    with isolated(passing=(StateError, MissingExtraError)) as failed:
        return _compared(store, check, name, entry, place)
    problem = str(failed[0])
    return InstalledState(name=name, entry=entry, place=place, state="unreadable", problem=problem)


def _compared(
    store: PackageStore,
    check: InstalledCheck,
    name: str,
    entry: LockEntry,
    place: InstallPlace,
) -> InstalledState:
    target = place.target(name)
    made = functools.partial(InstalledState, name=name, entry=entry, place=place)
    if not target.is_dir() or target.is_symlink():
        return made(state="missing", problem=f"no directory `{target}`")
    try:
        tree = matching_tree(target, entry.expected, store.tree)
        _, members = registry.directory_members(target)
    except SkillhouseError as error:
        return made(state="unreadable", problem=str(error))
    made = functools.partial(made, left=tree.left)
    if tree.digest not in entry.expected:
        before = store.get(entry.tree_digest)
        if before is None:
            return made(state="edited", problem="its files are others", digest=tree.digest)
        packed = without_leftovers(registry.member_tree(before))
        changes = registry.compare_trees(packed, tree)
        return made(
            state="edited",
            problem=f"its files are others: {changes.summary}",
            digest=tree.digest,
            changes=changes,
            difference=tuple(registry.text_changes(changes, before, members)),
        )
    try:
        publisher = check.publishers.publisher_of(target, tree)
    except registry.PublisherError as error:
        return made(state="refused", problem=str(error), digest=tree.digest)
    if problem := other_publisher(entry, publisher) or check.taken_down(entry):
        return made(state="refused", problem=problem, digest=tree.digest)
    note = "" if publisher is None else "; ".join(publisher.warnings)
    return made(state="accepted" if entry.accepted else "ok", digest=tree.digest, note=note)


class InstalledCheck:
    """Refuses installed skills whose files are not those that were installed."""

    def __init__(
        self,
        state_directory: Path,
        locks: Mapping[str, tuple[Path, Path]],
        *,
        require_signature: bool = False,
        refuses_ended: bool = False,
        cache: Path | None = None,
        note: Callable[[str, str], None] = lambda _tree, _who: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Take for each scope the lock and the directory that its paths are relative to.

        Args:
            require_signature: Refuse what is unsigned, installed or not.
            refuses_ended: Refuse a certificate or a list of revocations that ended.
            cache: Where `marks` keeps what it knows.
            note: Gets the digest of a tree, and who signed it, when it is verified first.
        """
        self._require_signature = require_signature
        self._refuses_ended = refuses_ended
        self._now = now
        self._note = note
        self._state = state_directory
        self._locks = locks
        self._read: dict[Path, tuple[tuple[int, ...], Mapping[str, LockEntry]]] = {}
        self.marks = InstalledMarks(
            self.judge,
            lambda scope: self._entries(locks[scope][0]),
            {scope: base for scope, (_, base) in locks.items()},
            trusted=state_directory / registry.TRUSTED_DIRECTORY,
            cache=cache,
            clock=lambda: int(now().timestamp() * 1_000_000_000),
            taken_down=self.taken_down,
            policy=str(refuses_ended),
        )
        """How the installed skills are, for lists."""

    @once
    def memory(self) -> TrustMemory:
        """What this machine learned of publishers and repositories."""
        return TrustMemory(self._state, note=self._note)

    @once
    def publishers(self) -> PublisherCheck:
        return PublisherCheck(
            self._state, self._now, memory=self.memory, refuses_ended=self._refuses_ended
        )

    @once
    def _installs(self) -> registry.Installs:
        return registry.Installs(self._state / INSTALLS)

    def fault(self, directory: Path, scope: str) -> str:
        """Return why a skill is not to be used; empty where nothing is wrong with it.

        INVARIANT: what cannot be judged is not to be used, and the skills beside it still are.
        """
        try:
            return self._unsigned(directory, scope) or self._changed(directory, scope)
        except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
            return f"it cannot be compared with what was installed: {as_error(error)}"

    def _unsigned(self, directory: Path, scope: str) -> str:
        """Return why a skill has no signature that counts, where one is required."""
        if not self._require_signature or scope == "builtin":
            return ""
        try:
            found = self.publishers.publisher_in(directory)
        except (registry.PublisherError, MissingExtraError, TreeError, SkillError) as error:
            return str(error)
        return "" if found else "it is unsigned, and `registry.require_signature` is set"

    def _changed(self, directory: Path, scope: str) -> str:
        """Return why a skill is not what was installed; empty for one that was not.

        Each lock is asked, as one directory can be of another scope elsewhere.
        """
        places = {directory, Path(os.path.realpath(directory))}
        for of_scope, (lock, base) in self._locks.items():
            try:
                entries = self._entries(lock)
            except StateError as error:
                if of_scope == scope:
                    return str(error)
                continue
            for place, real in itertools.product(places, {base, Path(os.path.realpath(base))}):
                if place.is_relative_to(real):
                    entry = entries.get(place.relative_to(real).as_posix())
                    if entry is None:
                        continue
                    if fault := self.judge(place, entry).reason or self.taken_down(entry):
                        return fault
        return ""

    def taken_down(self, entry: LockEntry) -> str:
        """Return why the repository of an installed skill took it down; empty where it did not."""
        found = self.memory.taken_down(entry)
        return "" if found is None else found.text

    def _entries(self, lock: Path) -> Mapping[str, LockEntry]:
        stamp = file_stamp(lock)
        known = self._read.get(lock)
        if known is None or known[0] != stamp:
            skills = registry.read_lock(lock).skills if stamp else {}
            known = (stamp, {entry.path: entry for entry in skills.values()})
            self._read[lock] = known
        return known[1]

    def judge(self, directory: Path, entry: LockEntry) -> Judgement:
        """Return how the files in a directory compare with a lock's entry."""
        known = self._installs.expected(directory, entry)
        expected = tuple(digest for one in known for digest in one.expected)
        try:
            tree = matching_tree(directory, expected, self._installs.packed)
        except (TreeError, OSError) as error:
            reason = f"its files cannot be compared with those that were installed: {error}"
            return Judgement("edited", reason)
        entries = [one for one in known if tree.digest in one.expected]
        if not entries:
            return Judgement("edited", "its files are not those that were installed")
        try:
            publisher = self.publishers.publisher_of(directory, tree)
        except (registry.PublisherError, MissingExtraError) as error:
            return Judgement("refused", str(error))
        # While the same files with another signature come into place, there are two entries.
        if problem := min((other_publisher(one, publisher) for one in entries), key=bool):
            return Judgement("refused", problem)
        ending = "" if publisher is None else "; ".join(publisher.ending)
        state: MarkState = "accepted" if tree.digest == entry.accepted else "ok"
        return Judgement(state, ending=ending)


def other_publisher(entry: LockEntry, publisher: Publisher | None) -> str:
    """Return what is wrong with who signed it, held against the lock; empty for nothing."""
    if entry.signature is None:
        return ""
    if publisher is None:
        return "its signature is gone"
    if publisher.certificate != entry.signature.cert_sha256:
        return f"it is signed by another certificate than in the lock: {publisher.handle}"
    return ""


def refuse_changed(check: InstalledCheck, directory: Path, scope: str) -> None:
    """Raise RefusedError for an installed skill whose files are others."""
    if fault := check.fault(directory, scope):
        message = f"`{directory.name}` is not loaded: {fault}; `skillhouse verify` shows more"
        raise toolbox.RefusedError(message, denied=True)

"""Puts a checked skill into place and into the lock, or changes nothing; also after a crash.

INVARIANT: a journal says what is about to change before anything does. Whatever moment a process
dies at, the next one finds from the files which side of the change they are on, and ends it. Where
the system can, one directory takes another's place at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import (
    SkillError,
    SkillhouseError,
    StateError,
    Tree,
    TreeError,
    decode,
    descriptor,
    encode,
    make_private,
    matching_tree,
    persons_leftovers,
    read_tree,
    sync_directory,
    write_atomically,
)
from skillhouse.floor.crash_cleanup import is_left, owner_name
from skillhouse.floor.lock import lock as hold
from skillhouse.floor.machine import is_unwritable
from skillhouse.floor.structs import replace
from skillhouse.registry.lock import Lock, LockEntry, entry_of, entry_value, read_lock, write_lock
from skillhouse.registry.signed_directory import read_signature
from skillhouse.registry.trust import PublisherError

_EXCHANGE = 2
_AT_FDCWD = -100
_UNKNOWN = (errno.ENOSYS, errno.EINVAL)
STAGING = ".skillhouse-staging-"
"""Begins the name of a directory beside the skills, on their file system, before its owner."""
SYNC_THREADS = 8
SYNCED_EACH = 64
"""Files up to which each is waited for by itself."""
_OLD = "old"
PACKAGES = "packages"
"""The directory of the packages, beside the journal."""


def exchange(first: Path, second: Path) -> bool:
    """Let two directories swap names in one step; False where the system cannot, or one is gone.

    At no moment is one of the two names missing.
    """
    call = _renameat2()
    if call is None:
        return False
    done = call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE)
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(first))


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return None
    call.restype = ctypes.c_int
    call.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    )
    found: Callable[..., int] = call
    return found


class InstallPlace(Struct, frozen=True, kw_only=True):
    """Where skills of one kind are installed."""

    scope: str
    """user or project."""
    base: Path
    """The home or the project, to which the lock's paths are relative."""
    root: Path
    """The directory of the skills."""
    lock: Path

    def target(self, name: str) -> Path:
        return self.root / name

    def path_of(self, name: str) -> str:
        return Path(os.path.relpath(self.target(name), self.base)).as_posix()


class LocalEditsError(SkillError):
    """A skill's files are not those that were installed, so nothing was changed."""


class StagedInstall(Struct, frozen=True, kw_only=True):
    """A checked skill in a staging directory, with the entry that the lock gets."""

    name: str
    directory: Path
    entry: LockEntry


class _Pending(Struct, frozen=True, kw_only=True):
    """A change that was begun."""

    lock: str
    name: str
    target: str
    staging: str
    before: str
    """Tree digest; empty where nothing was there."""
    after: str
    """Likewise; empty for a removal."""
    entry: str
    """The lock's new entry as JSON; empty for a removal."""
    before_signature: str | None = None
    """SHA-256 of `skill.sig`, which is no part of a tree; empty for none, None if not recorded."""
    after_signature: str | None = None

    def is_after(self, digest: str, signature: str) -> bool:
        """Whether files are those of the later side of the change."""
        return digest == self.after and self.after_signature in (None, signature)


class _Journal(Struct, frozen=True, kw_only=True):
    """The changes that were begun together."""

    changes: tuple[_Pending, ...]


class Installs:
    """The changes of one user; one at a time, in any number of processes."""

    def __init__(self, directory: Path) -> None:
        """Take the directory of the journal, in the state directory."""
        self._directory = directory
        self._journal = directory / "pending"
        self._threads: ThreadPoolExecutor | None = None
        """Those that wait for the disk; started once, as many skills may come one by one."""

    def stage(self, place: Path) -> Path:
        """Return a new private directory beside `place`, on the same file system."""
        place.parent.mkdir(parents=True, exist_ok=True)
        staging = place.parent / f"{STAGING}{owner_name()}-{secrets.token_hex(4)}"
        staging.mkdir(mode=0o700)
        return staging

    def install(
        self, place: InstallPlace, name: str, staged: Path, entry: LockEntry, *, force: bool = False
    ) -> None:
        """Put the directory `staged`, in a staging directory, into place and into the lock.

        Args:
            force: Also over files that are not those that were installed.

        Raises:
            LocalEditsError: such files are there; `skill-exists`: they were never installed.
            SkillError: the staged files are not those of the entry.
            StateError: the lock cannot be used.
        """
        one = StagedInstall(name=name, directory=staged, entry=entry)
        (fault,) = self.install_all(place, [one], force=force)
        if fault is not None:
            raise fault

    def install_all(
        self,
        place: InstallPlace,
        wanted: Sequence[StagedInstall],
        *,
        force: bool = False,
        also: Path | None = None,
    ) -> tuple[SkillhouseError | None, ...]:
        """Put several skills into place and into the lock, and wait for the disk once.

        Return of each the error of `install` for which it alone was left out.

        Args:
            also: A directory whose new files are to be on the disk before.
        """
        faults: list[SkillhouseError | None] = [None] * len(wanted)
        ready: list[tuple[StagedInstall, str]] = []
        with self._changing(place):
            lock = read_lock(place.lock)
            for number, one in enumerate(wanted):
                try:
                    ready.append((one, self._ready(place, lock, one, force=force)))
                except SkillhouseError as error:
                    faults[number] = error
            self._threads = self._threads or ThreadPoolExecutor(max_workers=SYNC_THREADS)
            make_durable([one.directory for one, _ in ready], self._threads, also=also)
            # One rename, after which all is as the lock has it already: nothing to recover.
            journaled = [
                (one, before)
                for one, before in ready
                if before or lock.skills.get(one.name) != one.entry
            ]
            if journaled:
                self._begin(
                    _pending(place, one.name, one.directory, before, one.entry)
                    for one, before in journaled
                )
            for one, before in ready:
                _put(one.directory, place.target(one.name), is_there=bool(before))
            if ready:
                sync_directory(place.root)
            if journaled:
                changed = lock
                for one, _ in journaled:
                    changed = changed.with_skill(one.name, one.entry)
                # A skill that comes back as the lock has it changes nothing there.
                self._end(place.lock, None if changed.skills == lock.skills else changed)
        return tuple(faults)

    def _ready(self, place: InstallPlace, lock: Lock, one: StagedInstall, *, force: bool) -> str:
        """Judge what is staged and what is in its place; return the digest of that."""
        staged, entry, target = one.directory, one.entry, place.target(one.name)
        before = self._judged(lock, one.name, target, force=force, wanted=entry.tree_digest)
        # INVARIANT: read again from the disk, after everything that could write there.
        after = read_tree(staged, whole=True).digest
        if after != entry.tree_digest:
            message = f"expected {entry.tree_digest}, got {after}: nothing was installed"
            raise SkillError("tree-digest", staged, message)
        if _signature(staged) != entry.signature_file and entry.signature_file:
            message = "its signature was changed: nothing was installed"
            raise SkillError("signature-changed", staged, message)
        if before:
            _carry(target, staged)
        staged.chmod(0o755)
        return before

    def check(
        self, place: InstallPlace, name: str, *, wanted: str = "", force: bool = False
    ) -> None:
        """Refuse what `install` would refuse to replace, before a person is asked for more.

        Args:
            wanted: The tree digest of what is to be installed: just these files may be there.
        """
        lock = read_lock(place.lock)
        self._judged(lock, name, place.target(name), force=force, wanted=wanted)

    def remove(self, place: InstallPlace, name: str, *, force: bool = False) -> Path | None:
        """Take a skill out of place and out of the lock; return where its directory is now.

        The directory returned is in a staging directory, which the caller clears; None when only
        the lock had it.

        Raises:
            SkillError: it is not in the lock (`not-installed`).
            LocalEditsError: its files are not those that were installed.
        """
        target = place.target(name)
        with self._changing(place):
            lock = read_lock(place.lock)
            if name not in lock.skills:
                raise SkillError("not-installed", target, f"`{name}` is not in {place.lock.name}")
            before = self._judged(lock, name, target, force=force)
            if not before:
                write_lock(place.lock, lock.with_skill(name, None))
                return None
            staging = self.stage(place.root)
            self._begin([_pending(place, name, staging / _OLD, before, None)])
            os.rename(target, staging / name)
            sync_directory(place.root)
            self._end(place.lock, lock.with_skill(name, None))
            return staging / name

    def amend(self, place: InstallPlace, name: str, entry: LockEntry) -> None:
        """Replace an entry of the lock; no file of the skill changes."""
        with self._changing(place):
            write_lock(place.lock, read_lock(place.lock).with_skill(name, entry))

    def put_back(self, path: Path, name: str, entry: LockEntry, put: Callable[[], object]) -> None:
        """Put a skill that was removed back by `put`, and into the lock at `path` again.

        Raises:
            StateError: the lock cannot be used; nothing was put back.
        """
        with self._held():
            self._recover()
            lock = read_lock(path)
            put()
            if name not in lock.skills:
                write_lock(path, lock.with_skill(name, entry))

    def replace_lock(self, path: Path, lock: Lock) -> None:
        """Put a lock in the place of one that cannot be used."""
        with self._held():
            write_lock(path, lock)

    def recover(self) -> None:
        """End a change that another process began and did not end, where that can be written."""
        try:
            with self._held():
                self._recover()
        except OSError as error:
            # Who may not write here reads what is there; `expected` knows of an unfinished change.
            if not is_unwritable(error):
                raise

    def expected(self, target: Path, entry: LockEntry) -> tuple[LockEntry, ...]:
        """Return what a skill's files may be: the entry of the lock, and of an unfinished change.

        For those who only read: nothing is recovered.
        """
        pending = next((one for one in self._pending() if one.target == str(target)), None)
        if pending is None:
            return (entry,)
        after = entry_of(json.loads(pending.entry)) if pending.entry else entry
        # Files that a person had edited, and agreed to have replaced, are there until then.
        before = replace(entry, accepted=pending.before or entry.accepted)
        return (before, after)

    def packed(self, tree_digest: str) -> Tree | None:
        """Return the tree with a digest as it was packed, where that is kept."""
        # What reads packages takes 30 ms to load, and only skills with other files need it.
        from skillhouse.registry.package import PackageStore  # noqa: PLC0415

        return PackageStore(self._directory / PACKAGES).tree(tree_digest)

    @contextlib.contextmanager
    def _changing(self, place: InstallPlace) -> Iterator[None]:
        with self._held():
            self._recover()
            yield
            _sweep(place.root.parent)

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        make_private(self._directory)
        with open(self._directory / "lock", "wb") as file:
            try:
                hold(file.fileno())
            except TimeoutError as error:
                message = "another process is installing; try again later"
                raise StateError(message, self._directory) from error
            yield

    def _judged(self, lock: Lock, name: str, target: Path, *, force: bool, wanted: str = "") -> str:
        """Return the digest of what is at `target`, empty for nothing, or refuse to replace it."""
        if not os.path.lexists(target):
            return ""
        entry = lock.skills.get(name)
        if entry is None:
            if wanted and self._holds(target, wanted):
                return wanted
            message = "other files are there, of a skill that was not installed; move it away first"
            raise SkillError("skill-exists", target, message)
        if target.is_symlink() or not target.is_dir():
            raise LocalEditsError("local-edits", target, "is no directory any more; move it away")
        try:
            found = matching_tree(target, (entry.tree_digest,), self.packed).digest
        except TreeError as error:
            message = f"its files cannot be compared, move them away first: {error}"
            raise LocalEditsError("local-edits", target, message) from error
        # INVARIANT: edits that a person accepted are edits, too.
        if found != entry.tree_digest and not force:
            message = "its files are not those that were installed, nothing was changed (--force)"
            raise LocalEditsError("local-edits", target, message)
        return found

    def _holds(self, target: Path, wanted: str) -> bool:
        """Whether just these files are there: a lock that was lost makes them no one else's."""
        if target.is_symlink() or not target.is_dir():
            return False
        try:
            return matching_tree(target, (wanted,), self.packed).digest == wanted
        except TreeError:
            return False

    def _begin(self, changes: Iterable[_Pending]) -> None:
        """Say what is about to change."""
        with write_atomically(self._journal, durable=True) as file:
            file.write(encode(_Journal(changes=tuple(changes))))

    def _end(self, path: Path, lock: Lock | None) -> None:
        """Write the lock, unless it stays as it is, and then end the change."""
        if lock is not None:
            write_lock(path, lock)
        self._journal.unlink()
        sync_directory(self._directory)

    def _pending(self) -> tuple[_Pending, ...]:
        try:
            data = self._journal.read_bytes()
        except FileNotFoundError:
            return ()
        with contextlib.suppress(SkillhouseError):
            return decode(data, _Journal).changes
        try:
            # Of an older version, which began one change at a time.
            return (decode(data, _Pending),)
        except SkillhouseError as error:
            message = f"the journal of installs cannot be read: {error}"
            raise StateError(message, self._journal) from error

    def _recover(self) -> None:
        pending = self._pending()
        if not pending:
            return
        made = [one for one in pending if self._is_made(one)]
        path = Path(pending[0].lock)
        lock = changed = read_lock(path) if made else Lock()
        for one in made:
            entry = entry_of(json.loads(one.entry)) if one.entry else None
            changed = changed.with_skill(one.name, entry)
        self._end(path, None if changed == lock else changed)

    def _is_made(self, pending: _Pending) -> bool:
        """Whether a change that was begun is on its later side, and the lock may be behind."""
        target, old = Path(pending.target), Path(pending.staging, _OLD)
        if not os.path.lexists(target) and old.is_dir() and pending.before:
            # Two renames, and the process died between them.
            os.rename(old, target)
        try:
            found = ""
            if os.path.lexists(target):
                sides = tuple(filter(None, (pending.before, pending.after)))
                found = matching_tree(target, sides, self.packed).digest
            signature = _signature(target)
        except TreeError:
            # It was changed since; the lock then says what was there before.
            found, signature = pending.before, pending.before_signature or ""
        # Of a new version with the same files the lock alone is behind.
        return pending.is_after(found, signature)


def _pending(
    place: InstallPlace, name: str, staged: Path, before: str, entry: LockEntry | None
) -> _Pending:
    """Return what is about to change; `staged` is in a staging directory, missing at a removal."""
    return _Pending(
        lock=str(place.lock),
        name=name,
        target=str(place.target(name)),
        staging=str(staged.parent),
        before=before,
        before_signature=_signature(place.target(name)),
        after="" if entry is None else entry.tree_digest,
        after_signature=_signature(staged),
        entry="" if entry is None else json.dumps(entry_value(entry)),
    )


def _signature(directory: Path) -> str:
    """Return the SHA-256 of a skill's signature; empty where there is none that can be read."""
    try:
        data = read_signature(directory)
    except PublisherError:
        # A link or a device in its place: whoever checks signatures refuses it.
        return ""
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _carry(target: Path, staged: Path) -> None:
    """Take what editors left of a person's text along to the files that take their place."""
    for relative in persons_leftovers(read_tree(target).left):
        source, copy = target / relative, staged / relative
        is_free = not os.path.lexists(copy) and copy.parent.resolve().is_relative_to(staged)
        if is_free and not source.is_symlink():
            try:
                copy.parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                # The new version has a file there.
                continue
            shutil.copy2(source, copy, follow_symlinks=False)


def _put(staged: Path, target: Path, *, is_there: bool) -> None:
    """Let `staged` be `target`; what was there goes into the staging directory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not is_there:
        os.rename(staged, target)
    elif not exchange(staged, target):
        os.rename(target, staged.parent / _OLD)
        os.rename(staged, target)


def make_durable(
    directories: Sequence[Path], threads: ThreadPoolExecutor, *, also: Path | None = None
) -> None:
    """Have every file and name below directories on the disk.

    Of many files whole file systems are waited for, once, where the system can. Of others each on
    one of several threads, because file systems write what waits at the same time together.
    """
    walked = [found for top in directories for found in os.walk(top)]
    files = [Path(place, name) for place, _, names in walked for name in names]
    places = [Path(place) for place, _, _ in walked]
    if also is not None:
        files += [path for path in also.iterdir() if path.is_file()]
        places.append(also)
    if len(files) > SYNCED_EACH:
        systems = {os.lstat(place).st_dev: place for place in places}
        if all(map(_sync_system, systems.values())):
            return
    for done in (threads.map(_sync, files), threads.map(sync_directory, places)):
        for _ in done:
            pass


def _sync_system(directory: Path) -> bool:
    """Have all of a file system on its disk; False where the system cannot."""
    call = _syncfs()
    if call is None:
        return False
    with descriptor(os.open(directory, os.O_RDONLY)) as handle:
        if call(handle) == 0:
            return True
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), str(directory))


@functools.cache
def _syncfs() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return None
    call.restype = ctypes.c_int
    call.argtypes = (ctypes.c_int,)
    found: Callable[..., int] = call
    return found


def _sync(file: Path) -> None:
    with descriptor(os.open(file, os.O_RDONLY)) as handle:
        os.fsync(handle)


def _sweep(directory: Path) -> None:
    """Remove staging directories of processes that are gone."""
    with os.scandir(directory) as entries:
        left = [entry.path for entry in entries if is_left(entry.name, STAGING)]
    for path in left:
        shutil.rmtree(path)

"""The closed files of a log: their names, their content, and all files of a log at one moment."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.log_end import HEAD_BYTES, head_path
from skillhouse.audit.log_files import (
    LogKeys,
    identity,
    lines_of,
    open_file,
    open_lines,
    pack,
    read_at,
    stat_at,
)
from skillhouse.audit.record import AuditError
from skillhouse.floor import DecodeError, descriptor, shaped, sync_directory
from skillhouse.floor.lock import lock, try_lock, unlock
from skillhouse.floor.structs import replace


class Archive(Struct, frozen=True, kw_only=True):
    """One closed file of the log."""

    log: Path
    """The active file."""
    path: Path
    day: str
    """UTC day of its first record; all of its records are of that day unless the clock was set."""
    number: int
    """Position among the archives, which is the order of the chain."""
    stage: str = ""
    """Empty while it is whole; "summary" without previews, "kept" with permanent records only."""

    @property
    def is_packed(self) -> bool:
        return self.path.suffix == ".gz"


def archive_directory(log: Path) -> Path:
    """Return the directory of closed files: `audit-archive` for `audit.jsonl`."""
    return log.with_name(f"{log.stem}-archive")


def archives_of(log: Path) -> tuple[Archive, ...]:
    """Return the closed files of a log, the oldest first; of one left twice, the older file."""
    pattern = re.compile(
        re.escape(log.stem)
        + r"-([0-9]{4}-[0-9]{2}-[0-9]{2})-([0-9]{6,12})(?:\.(summary|kept))?\.jsonl(\.gz)?"
    )
    found: dict[int, Archive] = {}
    try:
        names = os.listdir(archive_directory(log))
    except FileNotFoundError:
        return ()
    for name in names:
        if match := pattern.fullmatch(name):
            one = Archive(
                log=log,
                path=archive_directory(log) / name,
                day=match[1],
                number=int(match[2]),
                stage=match[3] or "",
            )
            other = found.get(one.number)
            if other is None or _age(one) < _age(other):
                found[one.number] = one
    return tuple(found[number] for number in sorted(found))


_TRIES = 3
STAGES = ("", "summary", "kept")


def _age(archive: Archive) -> tuple[int, bool, str]:
    return (STAGES.index(archive.stage), archive.is_packed, archive.path.name)


def next_archive(log: Path, day: str) -> Path:
    """Return the path of the archive that comes next; makes its directory."""
    directory = archive_directory(log)
    directory.mkdir(exist_ok=True, mode=0o700)
    if directory.is_symlink():
        raise AuditError("log-link", "a symbolic link is no directory of archives", directory)
    before = archives_of(log)
    number = before[-1].number + 1 if before else 1
    return directory / f"{log.stem}-{day}-{number:06}.jsonl"


def open_archive(archive: Archive) -> tuple[Archive, int]:
    """Return a descriptor of an archive, and the archive as it is now."""
    for _ in range(_TRIES):
        try:
            return archive, open_file(archive.path, os.O_RDONLY)
        except FileNotFoundError:
            # Packed or shortened since it was listed.
            same = [one for one in archives_of(archive.log) if one.number == archive.number]
            if not same:
                raise
            archive = same[0]
    return archive, open_file(archive.path, os.O_RDONLY)


def size_of(archive: Archive) -> int:
    """Return the bytes of an archive, 0 where it is just being replaced."""
    found = stat_at(archive.path)
    return 0 if found is None else found.st_size


def last_lines(archive: Archive) -> list[bytes]:
    """Return the last lines of an archive, without their newlines."""
    archive, handle = open_archive(archive)
    lines = deque(lines_of(handle, archive.path), maxlen=2)
    return [line.rstrip(b"\n") for line in lines]


def pack_archive(archive: Archive) -> Archive:
    """Compress an archive; a complete file exists at every moment."""
    packed = archive.path.with_name(archive.path.name + ".gz")
    replace_packed(packed, open_lines(archive.path))
    archive.path.unlink()
    return replace(archive, path=packed)


def replace_packed(path: Path, lines: Iterator[bytes]) -> None:
    """Write lines to a packed file and put it in place of an existing one."""
    # Not `write_atomically`: under the lock one name is enough, and what a crash left goes at the
    # next try.
    made = path.with_name(path.name + ".new")
    made.unlink(missing_ok=True)
    pack(lines, made)
    os.replace(made, path)
    sync_directory(path.parent)


@contextmanager
def tidying(log: Path) -> Iterator[bool]:
    """Hold the lock for work on the archives; yield False if another process has it."""
    with descriptor(open_file(archive_directory(log) / "lock", os.O_RDWR | os.O_CREAT)) as handle:
        yield try_lock(handle)


_REMOVED = b'{"removed":'
SEAL_LINE = b'{"reduced":{"stage":"%b"},"mac":"%b"}\n'


class Gap(Struct, frozen=True, kw_only=True):
    """The line that replaces removed records."""

    first: int
    last: int
    prev: str
    """Hash of the record before the first."""
    hash: str
    """Hash of the last."""


def archive_lines(archive: Archive, keys: LogKeys | None) -> tuple[Archive, Iterator[bytes]]:
    """Return an archive as it is now, and its lines but the seal of one that was shortened.

    `AuditError` is `archive-changed`, after the lines, or `key-missing`.
    """
    archive, handle = open_archive(archive)
    lines = lines_of(handle, archive.path)
    if archive.stage and keys is None:
        os.close(handle)
        raise AuditError("key-missing", "the log's key is gone", archive.path)
    return archive, _unsealed(archive, keys, lines) if archive.stage and keys else lines


def _unsealed(archive: Archive, keys: LogKeys, lines: Iterator[bytes]) -> Iterator[bytes]:
    mac = keys.archives.copy()
    held = b""
    for line in lines:
        if held:
            mac.update(held)
            yield held
        held = line
    if held != SEAL_LINE % (archive.stage.encode(), mac.hexdigest().encode()):
        raise AuditError("archive-changed", "the archive does not fit its seal", archive.path)


def gap_of(line: bytes) -> Gap | None:
    """Return the gap on a line without its newline, or None."""
    if not line.startswith(_REMOVED):
        return None
    try:
        return shaped(json.loads(line)["removed"], Gap)
    except (ValueError, KeyError, RecursionError, DecodeError):
        return None


_SNAPSHOT_TRIES = 64


class LogSnapshot(Struct, frozen=True, kw_only=True):
    """Files that belong together; the caller closes the descriptor."""

    handle: int
    """Of the active file, -1 where there is none."""
    size: int
    """Its bytes at that moment; later bytes are not read."""
    head: bytes | None
    """Content of the side file, None where there is none."""
    archives: tuple[Archive, ...]


def take_snapshot(path: Path) -> LogSnapshot:
    """Return the files of a log; a rotation meanwhile neither hides nor repeats one."""
    for _ in range(_SNAPSHOT_TRIES):
        head = _head(path)
        try:
            handle = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            archives = archives_of(path)
            # Between two files of a log there is none to lock. Any record since the file was
            # looked for changed the head that was read before.
            if _head(path) == head:
                return LogSnapshot(handle=-1, size=0, head=head, archives=archives)
            continue
        try:
            lock(handle, shared=True)
            try:
                there, here = stat_at(path), os.fstat(handle)
                # A file that was archived since it was opened would be met twice.
                if there is not None and identity(there) == identity(here):
                    found = archives_of(path)
                    return LogSnapshot(
                        handle=handle, size=here.st_size, head=_head(path), archives=found
                    )
            finally:
                unlock(handle)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise AuditError("log-replaced", "the audit log is replaced all the time", path)


def _head(path: Path) -> bytes | None:
    try:
        handle = open_file(head_path(path), os.O_RDONLY)
    except FileNotFoundError:
        return None
    with descriptor(handle):
        return read_at(handle, 0, HEAD_BYTES + 1)

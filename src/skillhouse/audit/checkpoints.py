"""Signed notes of where the chain stood, kept in a second place.

They show what the log and its side file together cannot: that both were put back to an earlier
state, or written anew by somebody who has the key of the records but cannot reach this place.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from skillhouse.audit.log_files import open_file, read_at, sync_directory, write_all
from skillhouse.audit.log_keys import LogKeys, seal
from skillhouse.audit.record import ZEROS, AuditError
from skillhouse.floor import DecodeError, make_private, shaped

CHECKPOINT_EVERY = 1_000
"""Records from one checkpoint to the next; one more is made at the end of a process."""
_MAX_CHECKPOINT = 512
"""Bytes of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where the chain stood."""

    seq: int
    hash: str
    """Hash of the record `seq`, which was on the disk."""
    ts: str
    prev: str
    """`mac` of the checkpoint before, zeros for the first."""
    mac: str = ""


def checkpoint_path(directory: Path, keys: LogKeys) -> Path:
    """Return the file of a log's checkpoints: logs with other keys may use the same directory."""
    return directory / f"audit-{keys.name}.checkpoints"


def default_directory(log: Path) -> Path:
    """Return where checkpoints go unless an operator names a better place.

    >>> default_directory(Path("audit.jsonl")).name
    'audit-checkpoints'
    """
    return log.with_name(f"{log.stem}-checkpoints")


def checkpoint_line(checkpoint: Checkpoint, keys: LogKeys) -> bytes:
    """Return the line of a checkpoint, sealed."""
    body = (
        f'{{"seq":{checkpoint.seq},"hash":"{checkpoint.hash}","ts":"{checkpoint.ts}",'
        f'"prev":"{checkpoint.prev}"'
    )
    return f'{body},"mac":"{seal(keys.checkpoints, body.encode())}"}}\n'.encode()


def checkpoint_of(line: bytes, keys: LogKeys) -> Checkpoint | None:
    """Return the checkpoint of a line with its newline, or None where it was changed."""
    try:
        found = shaped(json.loads(line), Checkpoint)
    except (ValueError, RecursionError, DecodeError):
        return None
    return found if checkpoint_line(found, keys) == line else None


def read_checkpoints(path: Path, keys: LogKeys) -> list[Checkpoint | None]:
    """Return the checkpoints of a file, None for each line that was changed.

    Raises:
        AuditError, OSError: it cannot be read.
    """
    try:
        handle = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    try:
        data = read_at(handle, 0, os.fstat(handle).st_size)
    finally:
        os.close(handle)
    found: list[Checkpoint | None] = []
    before = ZEROS
    for line in data.splitlines(keepends=True):
        one = checkpoint_of(line, keys)
        found.append(one if one is not None and one.prev == before else None)
        before = one.mac if one is not None else ""
    return found


class CheckpointFile:
    """The checkpoints of one log, used under its lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def last(self, keys: LogKeys) -> Checkpoint | None:
        """Return the newest checkpoint; a line that a power cut left unfinished is passed over.

        Raises:
            AuditError: `checkpoint-changed`.
            OSError: it cannot be read.
        """
        path = checkpoint_path(self._directory, keys)
        try:
            handle = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return self._last(handle, path, keys)[0]
        finally:
            os.close(handle)

    def write(self, seq: int, record_hash: str, ts: str, keys: LogKeys) -> None:
        """Add a checkpoint, which is on the disk when this returns.

        Raises:
            AuditError: `checkpoint-changed`.
            OSError: it cannot be written.
        """
        path = checkpoint_path(self._directory, keys)
        make_private(self._directory)
        handle = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            last, end = self._last(handle, path, keys)
            if os.fstat(handle).st_size > end:
                os.ftruncate(handle, end)
            made = Checkpoint(seq=seq, hash=record_hash, ts=ts, prev=last.mac if last else ZEROS)
            write_all(handle, checkpoint_line(made, keys))
            os.fsync(handle)
        finally:
            os.close(handle)
        if last is None:
            sync_directory(self._directory)

    def _last(self, handle: int, path: Path, keys: LogKeys) -> tuple[Checkpoint | None, int]:
        """Return the last whole checkpoint and where it ends."""
        size = os.fstat(handle).st_size
        start = max(0, size - 2 * _MAX_CHECKPOINT)
        data = read_at(handle, start, size - start)
        whole = data.rfind(b"\n") + 1
        if not whole and not start:
            return None, 0
        line = data[data.rfind(b"\n", 0, whole - 1) + 1 : whole]
        found = checkpoint_of(line, keys)
        if found is None:
            message = "the checkpoints were changed; look at them, then move them aside"
            raise AuditError("checkpoint-changed", message, path)
        return found, start + whole

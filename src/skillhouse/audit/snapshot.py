"""The files of a log as they are at one moment, while others append and rotate."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from skillhouse.audit.archives import Archive, archives_of
from skillhouse.audit.files import identity, open_file, read_at, stat_at
from skillhouse.audit.head import HEAD_BYTES, head_path
from skillhouse.audit.record import AuditError
from skillhouse.floor.lock import lock, unlock

_TRIES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """What belongs together; who takes it closes the descriptor."""

    handle: int
    """Of the active file, -1 where there is none."""
    size: int
    """Its bytes at that moment; what comes later is not looked at."""
    head: bytes | None
    """Content of the side file, None where there is none."""
    archives: tuple[Archive, ...]


def take_snapshot(path: Path) -> LogSnapshot:
    """Return the files of a log, none of them missed or twice because of a rotation.

    Raises:
        AuditError: a file is a link; `log-replaced`.
        OSError: a file cannot be opened, locked or read.
    """
    for _ in range(_TRIES):
        try:
            handle = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return LogSnapshot(handle=-1, size=0, head=_head(path), archives=archives_of(path))
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
    try:
        return read_at(handle, 0, HEAD_BYTES + 1)
    finally:
        os.close(handle)

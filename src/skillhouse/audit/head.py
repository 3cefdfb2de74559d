"""The side file that remembers where the log ends, so that a cut shows."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from skillhouse.audit.files import is_at, open_file, read_at, sync_directory, write_all
from skillhouse.audit.record import ZEROS, AuditError
from skillhouse.floor import DecodeError, shaped

HEAD_BYTES = 256
"""Always this many, written in place: less than a sector, which a disk writes whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where the log ended after the last append."""

    seq: int = 0
    size: int = 0
    """Bytes of the log."""
    hash: str = ZEROS
    """Hash of the last record."""
    durable: int = 0
    """The last record that was on the disk; those after it a power cut may take."""


def head_path(log: Path) -> Path:
    """Return the side file of a log.

    >>> head_path(Path("audit.jsonl")).name
    'audit.jsonl.head'
    """
    return log.with_name(log.name + ".head")


def head_bytes(head: Head) -> bytes:
    """Return the content of the side file: canonical JSON, filled up with spaces.

    >>> head_bytes(Head(seq=1, size=9, hash="ab", durable=1)).rstrip()
    b'{"durable":1,"hash":"ab","seq":1,"size":9}'
    """
    text = f'{{"durable":{head.durable},"hash":"{head.hash}","seq":{head.seq},"size":{head.size}}}'
    return text.encode().ljust(HEAD_BYTES - 1) + b"\n"


def head_of(data: bytes) -> Head | None:
    """Return the head that the bytes of a side file say, or None: one changed byte is enough."""
    try:
        head = shaped(json.loads(data.decode("ascii")), Head)
    except (ValueError, RecursionError, DecodeError):
        return None
    return head if head_bytes(head) == data else None


class HeadFile:
    """The side file, kept open. It is used under the lock of its log."""

    def __init__(self, log: Path) -> None:
        self.path = head_path(log)
        self._handle = -1
        self._known = (b"", Head())

    def read(self, *, new_log: bool) -> Head:
        """Return the head; the first one is made where the log is new.

        Raises:
            AuditError: the file is missing, no longer readable as a head, or a link.
            OSError: it cannot be opened or made.
        """
        if self._handle != -1 and not is_at(self._handle, self.path):
            self.close()
        if self._handle == -1:
            try:
                self._handle = open_file(self.path, os.O_RDWR)
            except FileNotFoundError:
                if not new_log:
                    raise AuditError(
                        "head-missing",
                        "the log's side file is gone; move the log aside to start a new one",
                        self.path,
                    ) from None
                self._handle = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        data = read_at(self._handle, 0, HEAD_BYTES + 1)
        if new_log and not data:
            self.write(Head())
            # A side file that a power cut takes would look like one that was removed.
            os.fsync(self._handle)
            sync_directory(self.path.parent)
            return Head()
        known, head = self._known
        if data == known:
            return head
        found = head_of(data)
        if found is None:
            raise AuditError("head-unreadable", "the log's side file was changed", self.path)
        return found

    def write(self, head: Head) -> None:
        """Replace the head.

        Raises:
            OSError: it cannot be written.
        """
        data = head_bytes(head)
        os.lseek(self._handle, 0, os.SEEK_SET)
        write_all(self._handle, data)
        self._known = (data, head)

    def close(self) -> None:
        """Close the file; the next `read` opens it again."""
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1

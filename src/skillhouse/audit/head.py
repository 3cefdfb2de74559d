"""The side file that remembers where the log ends, so that a cut shows."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from skillhouse.audit.files import (
    identity,
    open_file,
    read_at,
    stat_at,
    sync_directory,
    write_at_start,
)
from skillhouse.audit.keys import LogKeys, seal
from skillhouse.audit.record import ZEROS, AuditError
from skillhouse.floor import DecodeError, shaped

HEAD_BYTES = 256
"""Always this many, written in place: less than a sector, which a disk writes whole."""
_MAC_HEX = 32
"""Hex digits of the seal, 128 bits, so that the file keeps its length."""


@dataclass(slots=True, kw_only=True)
class LogHead:
    """Where the log ended after the last append. Not frozen, since each append makes one."""

    seq: int = 0
    size: int = 0
    """Bytes of the file that was appended to."""
    hash: str = ZEROS
    """Hash of the last record."""
    durable: int = 0
    """The last record that was on the disk; those after it a power cut may take."""
    mac: str = ""
    """Seal of the rest; empty in a side file from before logs had keys."""


def head_path(log: Path) -> Path:
    """Return the side file of a log.

    >>> head_path(Path("audit.jsonl")).name
    'audit.jsonl.head'
    """
    return log.with_name(log.name + ".head")


def head_bytes(head: LogHead, keys: LogKeys | None) -> bytes:
    """Return the content of the side file: canonical JSON, filled up with spaces.

    >>> head_bytes(LogHead(seq=1, size=9, hash="ab", durable=1), None).rstrip()
    b'{"durable":1,"hash":"ab","seq":1,"size":9}'
    """
    front = f'{{"durable":{head.durable},"hash":"{head.hash}"'
    behind = f'"seq":{head.seq},"size":{head.size}}}'
    if keys is None:
        text = f"{front},{behind}"
    else:
        mac = seal(keys.heads, f"{front},{behind}".encode())[:_MAC_HEX]
        text = f'{front},"mac":"{mac}",{behind}'
    return text.encode().ljust(HEAD_BYTES - 1) + b"\n"


def head_of(data: bytes, keys: LogKeys | None) -> LogHead | None:
    """Return the head that the bytes of a side file say, or None: one changed byte is enough.

    Without keys, a seal is passed over. A side file without a seal is one from before there were
    keys, and right only where the key says that the log is older than itself.
    """
    try:
        head = shaped(json.loads(data.decode("ascii")), LogHead)
    except (ValueError, RecursionError, DecodeError):
        return None
    if head.mac and keys is None:
        return head
    if not head.mac and keys is not None and head.seq > keys.since:
        return None
    return head if head_bytes(head, keys if head.mac else None) == data else None


class HeadFile:
    """The side file, kept open. It is used under the lock of its log."""

    def __init__(self, log: Path) -> None:
        self.path = head_path(log)
        self._handle = -1
        self._identity = (0, 0)
        self._known = (b"", LogHead())

    def is_known(self) -> bool:
        """Return whether the file is there and still says what was last written here."""
        found = stat_at(self.path)
        return (
            found is not None
            and (found.st_dev, found.st_ino) == self._identity
            and read_at(self._handle, 0, HEAD_BYTES + 1) == self._known[0]
        )

    def known(self) -> LogHead:
        """Return what was last written here, where `is_known`."""
        return self._known[1]

    def data(self, *, new_log: bool) -> bytes:
        """Return the bytes of the file, which is made where the log is new.

        Raises:
            AuditError: the file is missing, or a link.
            OSError: it cannot be opened or made.
        """
        self.close()
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
        self._identity = identity(os.fstat(self._handle))
        return read_at(self._handle, 0, HEAD_BYTES + 1)

    def begin(self, keys: LogKeys) -> LogHead:
        """Write the head of a new log, so that a power cut does not take the file.

        Raises:
            OSError: it cannot be written.
        """
        self.write(LogHead(), keys)
        self.sync()
        sync_directory(self.path.parent)
        return LogHead()

    def write(self, head: LogHead, keys: LogKeys) -> None:
        """Replace the head.

        Raises:
            OSError: it cannot be written.
        """
        data = head_bytes(head, keys)
        write_at_start(self._handle, data)
        self._known = (data, head)

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the file; the next `data` opens it again."""
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1
            self._identity = (0, 0)

"""The files of a log: opened without following links, read by lines, packed; and its key."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.record import MAX_LINE, ZEROS, AuditError
from skillhouse.floor import DecodeError, descriptor, opened_problem, shaped, sync_directory
from skillhouse.floor.structs import asdict

_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


def open_file(path: Path, flags: int) -> int:
    """Return a descriptor of the regular file at `path`, private when it is made.

    `AuditError` is `log-link` for a link, `log-not-a-file` for what is no regular file.
    """
    try:
        handle = os.open(path, flags | _FLAGS, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise AuditError("log-link", "a symbolic link is no audit log", path) from error
        if error.errno in (errno.EISDIR, errno.ENXIO):
            raise AuditError("log-not-a-file", "expected a regular file", path) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise AuditError("log-not-a-file", "expected a regular file", path)
    return handle


def identity(info: os.stat_result) -> tuple[int, int]:
    return (info.st_dev, info.st_ino)


def stat_at(path: Path) -> os.stat_result | None:
    """Return the status of the file at `path`, not following a link, or None."""
    try:
        return os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None


def read_at(handle: int, start: int, size: int) -> bytes:
    """Return `size` bytes from `start`, fewer where the file ends."""
    found = _read_once(handle, start, size)
    if len(found) == size:
        return found
    while 0 < len(found) < size and (
        piece := _read_once(handle, start + len(found), size - len(found))
    ):
        found += piece
    return found


if hasattr(os, "pread"):

    def _read_once(handle: int, start: int, size: int) -> bytes:
        return os.pread(handle, size, start)

else:  # pragma: no cover - Windows

    def _read_once(handle: int, start: int, size: int) -> bytes:
        os.lseek(handle, start, os.SEEK_SET)
        return os.read(handle, size)


def write_all(handle: int, data: bytes) -> None:
    """Write `data`, by one call unless the system takes only a part of it."""
    written = os.write(handle, data)
    while written < len(data):
        # The next call says why the one before stopped, or goes on after a signal.
        written += os.write(handle, data[written:])


def write_at_start(handle: int, data: bytes) -> None:
    """Replace the first bytes of a file that is not appended to."""
    if hasattr(os, "pwrite") and os.pwrite(handle, data, 0) == len(data):
        return
    os.lseek(handle, 0, os.SEEK_SET)
    write_all(handle, data)


_CHUNK = 1 << 20
_LOOK = 1 << 18
MAX_UNPACKED = 512 * 1024 * 1024
"""Bytes of an archive when unpacked: ten times what is packed, and no bomb."""

# RFC 1952: no time, no name, an unknown system, and one extra field with the digest of what
# follows. The format leaves bytes open that change nothing; the digest makes each of them show.
_HEADER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + b"\x24\0" + b"SH\x20\0"
_DIGEST = 32
_START = len(_HEADER) + _DIGEST


def open_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of an archive as `lines_of` does."""
    return lines_of(open_file(path, os.O_RDONLY), path)


def lines_of(handle: int, path: Path) -> Iterator[bytes]:
    """Yield the lines of an open archive with their newlines, overlong ones in pieces; close it.

    `AuditError` (`archive-changed`): the file is not as it was packed.
    """
    with descriptor(handle):
        if path.suffix == ".gz":
            yield from split(_unpacked(handle, path))
        else:
            yield from split(chunks(handle, os.fstat(handle).st_size))


def chunks(handle: int, size: int) -> Iterator[bytes]:
    place = 0
    while place < size and (chunk := read_at(handle, place, min(_CHUNK, size - place))):
        place += len(chunk)
        yield chunk


def split(data: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with their newlines; overlong ones in pieces."""
    rest = b""
    for chunk in data:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield line + b"\n"
        if len(rest) > 2 * MAX_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest


def pack(lines: Iterable[bytes], target: Path) -> None:
    """Write lines as a new gzip file, on the disk when this returns."""
    squeezing = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    digest, check, size = hashlib.sha256(), 0, 0
    handle = open_file(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def put(data: bytes) -> None:
        digest.update(data)
        write_all(handle, data)

    with descriptor(handle):
        write_all(handle, _HEADER + bytes(_DIGEST))
        for data in _grouped(lines):
            check, size = zlib.crc32(data, check), size + len(data)
            put(squeezing.compress(data))
        put(squeezing.flush())
        put(check.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"))
        os.lseek(handle, len(_HEADER), os.SEEK_SET)
        write_all(handle, digest.digest())
        os.fsync(handle)


def _grouped(lines: Iterable[bytes]) -> Iterator[bytes]:
    group: list[bytes] = []
    size = 0
    for line in lines:
        group.append(line)
        size += len(line)
        if size >= _CHUNK:
            yield b"".join(group)
            group, size = [], 0
    yield b"".join(group)


def _unpacked(handle: int, path: Path) -> Iterator[bytes]:
    changed = AuditError("archive-changed", "the archive is not as it was packed", path)
    head = read_at(handle, 0, _START)
    if head[: len(_HEADER)] != _HEADER:
        raise changed
    digest = hashlib.sha256()
    opening = zlib.decompressobj(zlib.MAX_WBITS | 16)
    size = 0
    try:
        opening.decompress(head)
        place, end = _START, os.fstat(handle).st_size
        while place < end and (chunk := read_at(handle, place, min(_LOOK, end - place))):
            place += len(chunk)
            digest.update(chunk)
            while chunk and not opening.eof:
                found = opening.decompress(chunk, _CHUNK)
                chunk = opening.unconsumed_tail
                size += len(found)
                if size > MAX_UNPACKED:
                    raise changed
                yield found
    except zlib.error as error:
        raise changed from error
    if not opening.eof or opening.unused_data or digest.digest() != head[len(_HEADER) :]:
        raise changed


def backwards(handle: int, end: int) -> Iterator[bytes]:
    """Yield the lines of the first `end` bytes without their newlines, the last one first."""
    rest = b""
    while end:
        start = max(0, end - _LOOK)
        first, *lines = (read_at(handle, start, end - start) + rest).split(b"\n")
        yield from reversed(lines)
        # No record is that long; what is dropped would be passed over anyway.
        rest = first if len(first) <= 2 * MAX_LINE else b"?"
        end = start
    yield rest


KEY_BYTES = 32
MIN_KEY_BYTES = 16
"""Bytes of a key that an operator gives; a shorter one could be guessed."""
_MAX_FILE = 4_096


class LogKeys(Struct, frozen=True, kw_only=True):
    """The keys that seal a log, one for each use, so that one can be disclosed alone."""

    records: hmac.HMAC
    archives: hmac.HMAC
    heads: hmac.HMAC
    checkpoints: hmac.HMAC
    answers: hmac.HMAC
    """From which the key that signs answers to other servers is made."""
    name: str
    """Identifies the key in file names without revealing it."""


def seal(mac: hmac.HMAC, data: bytes) -> str:
    mac = mac.copy()
    mac.update(data)
    return mac.hexdigest()


def keys_of(key: bytes, path: Path) -> LogKeys:
    """Return the keys derived from one secret, or raise `key-weak`."""
    if len(key) < MIN_KEY_BYTES:
        message = f"expected a key of at least {MIN_KEY_BYTES} bytes, got {len(key)}"
        raise AuditError("key-weak", message, path)

    def derived(use: str) -> bytes:
        return hmac.digest(key, b"skillhouse audit " + use.encode(), "sha256")

    return LogKeys(
        records=hmac.new(derived("records"), digestmod=hashlib.sha256),
        archives=hmac.new(derived("archives"), digestmod=hashlib.sha256),
        heads=hmac.new(derived("heads"), digestmod=hashlib.sha256),
        checkpoints=hmac.new(checkpoint_key(key), digestmod=hashlib.sha256),
        answers=hmac.new(derived("answers"), digestmod=hashlib.sha256),
        name=derived("name").hex()[:12],
    )


def checkpoint_key(key: bytes) -> bytes:
    """Return the key of the checkpoints, which verifies them and cannot forge a record."""
    return hmac.digest(key, b"skillhouse audit checkpoints", "sha256")


def key_path(log: Path) -> Path:
    """Return the key file of a log, `audit.jsonl.key`, unused if the operator gives the key."""
    return log.with_name(log.name + ".key")


class _KeyFile(Struct, frozen=True, kw_only=True):
    """The file of the key, as it is written."""

    key: str
    since: int = 0
    """This and `hash` belong to the form of the file; every release wrote these values."""
    hash: str = ZEROS
    version: int = 1


def read_keys(log: Path, given: bytes | None) -> LogKeys | None:
    """Return the keys of a log, or None where it has none yet.

    `AuditError` is `key-exposed`, `key-unreadable` or `key-weak`.
    """
    path = key_path(log)
    if given is not None:
        return keys_of(given, path)
    try:
        handle = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with descriptor(handle):
        found = os.fstat(handle)
        if problem := opened_problem(found, path, secret=True):
            raise AuditError("key-exposed", f"the key of the log is not used: {problem}", path)
        data = read_at(handle, 0, _MAX_FILE)
    try:
        fields = shaped(json.loads(data), _KeyFile)
        key = bytes.fromhex(fields.key)
        if fields.version != 1 or len(key) != KEY_BYTES or len(bytes.fromhex(fields.hash)) != 32:
            raise ValueError("not a key")
    except (ValueError, RecursionError, DecodeError) as error:
        raise AuditError("key-unreadable", "the key of the log was changed", path) from error
    return keys_of(key, path)


def make_keys(log: Path, random: bytes) -> LogKeys:
    """Make the key file of a log from `KEY_BYTES` random bytes, while its lock is held."""
    path = key_path(log)
    fields = asdict(_KeyFile(key=random.hex()))
    # Renamed into place: a key file that a crash left half would look like a changed one. Under a
    # fixed name, unlike `write_atomically`: the next try removes what a crash left.
    made = path.with_name(path.name + ".new")
    made.unlink(missing_ok=True)
    with descriptor(open_file(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL)) as handle:
        write_all(handle, json.dumps(fields, sort_keys=True).encode() + b"\n")
        os.fsync(handle)
    os.replace(made, path)
    sync_directory(path.parent)
    return keys_of(random, path)

"""The key of a log: made once, kept in a file for its owner alone, or given by an operator."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from skillhouse.audit.log_files import open_file, read_at, sync_directory, write_all
from skillhouse.audit.record import ZEROS, AuditError
from skillhouse.floor import DecodeError, opened_problem, shaped

KEY_BYTES = 32
MIN_KEY_BYTES = 16
"""Bytes of a key that an operator gives; a shorter one could be tried out."""
_MAX_FILE = 4_096


class Mac(Protocol):
    """A keyed hash that is copied for each use."""

    def copy(self) -> Mac: ...
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKeys:
    """What seals a log. Each use has a key of its own, so that one may be told to others."""

    records: Mac
    archives: Mac
    heads: Mac
    checkpoints: Mac
    name: str
    """Identifies the key in file names without revealing it."""


def seal(mac: Mac, data: bytes) -> str:
    """Return the HMAC-SHA-256 of `data` as hex."""
    mac = mac.copy()
    mac.update(data)
    return mac.hexdigest()


def keys_of(key: bytes, path: Path) -> LogKeys:
    """Return the keys that follow from one secret.

    Raises:
        AuditError: `key-weak`.
    """
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
        name=derived("name").hex()[:12],
    )


def checkpoint_key(key: bytes) -> bytes:
    """Return the key of the checkpoints, which proves them and forges no record."""
    return hmac.digest(key, b"skillhouse audit checkpoints", "sha256")


def key_path(log: Path) -> Path:
    """Return where the key of a log is kept unless an operator gives it.

    >>> key_path(Path("audit.jsonl")).name
    'audit.jsonl.key'
    """
    return log.with_name(log.name + ".key")


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyFile:
    key: str
    since: int = 0
    """Of a log that was older than its key: no release wrote one. Kept for the form of the file."""
    hash: str = ZEROS
    version: int = 1


def read_keys(log: Path, given: bytes | None) -> LogKeys | None:
    """Return the keys of a log, or None where it has none yet.

    Raises:
        AuditError: `key-exposed`, `key-unreadable` or `key-weak`.
        OSError: the file cannot be read.
    """
    path = key_path(log)
    if given is not None:
        return keys_of(given, path)
    try:
        handle = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(handle)
        if problem := opened_problem(found, path, secret=True):
            raise AuditError("key-exposed", f"the key of the log is not used: {problem}", path)
        data = read_at(handle, 0, _MAX_FILE)
    finally:
        os.close(handle)
    try:
        said = shaped(json.loads(data), _KeyFile)
        key = bytes.fromhex(said.key)
        if said.version != 1 or len(key) != KEY_BYTES or len(bytes.fromhex(said.hash)) != 32:
            raise ValueError("not a key")
    except (ValueError, RecursionError, DecodeError) as error:
        raise AuditError("key-unreadable", "the key of the log was changed", path) from error
    return keys_of(key, path)


def make_keys(log: Path, random: bytes) -> LogKeys:
    """Make the key file of a log, which its lock is held for.

    Args:
        log: The log.
        random: `KEY_BYTES` that nobody can guess.

    Raises:
        OSError: the file cannot be written.
    """
    path = key_path(log)
    said = asdict(_KeyFile(key=random.hex()))
    # Renamed into place: a key file that a crash left half would look like a changed one.
    made = path.with_name(path.name + ".new")
    made.unlink(missing_ok=True)
    handle = open_file(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(handle, json.dumps(said, sort_keys=True).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(made, path)
    sync_directory(path.parent)
    return keys_of(random, path)

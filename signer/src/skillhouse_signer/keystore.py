"""The file of the keys: public parts in the open, secrets sealed, all of it authenticated.

INVARIANT: the seal covers the open part too, so editing a limit breaks the seal.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from skillhouse.floor import (
    DecodeError,
    ExposedError,
    MissingExtraError,
    canonical_json,
    make_private,
    open_own,
    shaped,
    write_atomically,
)
from skillhouse.floor.structs import PartialStruct
from skillhouse.registry.passwords import SignerError
from skillhouse_signer.keys import KeyInfo, KeyRecords
from skillhouse_signer.request import load_shallow

VERSION = 1
KEYSTORE_MAX = 1_048_576
"""Bytes of a keystore: thousands of keys."""
KEYS_MAX = 256
"""Keys of one keystore; each signature reads them all."""
COST = 17
"""log2 of scrypt's N, with r = 8 and p = 1: 128 MiB (OWASP Password Storage Cheat Sheet)."""
COSTS = range(14, 21)
"""A file that names another cost is refused: less is no protection, more a trap."""

_KEY_BYTES, _NONCE_BYTES, _SALT_BYTES = 32, 12, 16


class _Header(Struct, frozen=True, kw_only=True):
    """The open part, as it is in the file."""

    version: int
    store_id: str
    lock: str
    """password or keyring: what opens it."""
    cost: int
    salt: str
    nonce: str
    keys: tuple[KeyInfo, ...] = ()


class OpenKeystore(PartialStruct, frozen=True, kw_only=True):
    """An opened keystore; lives in the signer's own process only."""

    HIDDEN = frozenset(("secrets", "sealing_key"))

    records: KeyRecords
    secrets: dict[str, bytes]
    """Private keys by id."""
    sealing_key: bytes
    lock: str
    cost: int
    salt: bytes


def read_key_records(path: Path) -> KeyRecords:
    """Return the open part of a keystore, which anyone who can write the file may have changed.

    For showing only: what is signed is held against the sealed file. An absent file has no keys;
    one that is damaged or newer than this program is refused with "keystore".
    """
    try:
        header, _ = _read(path)
    except FileNotFoundError:
        return KeyRecords(store_id="")
    return KeyRecords(store_id=header.store_id, keys=header.keys)


def lock_of(path: Path) -> tuple[str, str]:
    """Return what opens a keystore (password or keyring) and its id; like `read_key_records`."""
    header, _ = _read(path)
    return header.lock, header.store_id


def new_keystore(secret: bytes, lock: str, store_id: str, *, cost: int = COST) -> OpenKeystore:
    """Return an empty keystore that `secret` will open; `save` writes it."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return OpenKeystore(
        records=KeyRecords(store_id=store_id),
        secrets={},
        sealing_key=_derived(secret, salt, cost),
        lock=lock,
        cost=cost,
        salt=salt,
    )


def open_keystore(path: Path, secret: bytes) -> OpenKeystore:
    """Return the keys of a keystore.

    "wrong-password": another secret, or the file was changed; "keystore": the file is damaged.
    """
    header, sealed = _read(path)
    key = _derived(secret, base64.b64decode(header.salt), header.cost)
    return _opened(path, header, sealed, key)


def reopen(path: Path, store: OpenKeystore) -> OpenKeystore:
    """Return a keystore as it is now, since another process may change it; see `open_keystore`."""
    header, sealed = _read(path)
    return _opened(path, header, sealed, store.sealing_key)


def save(path: Path, store: OpenKeystore) -> None:
    """Write a keystore whole or not at all (OSError); only its owner may read it."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    header = _Header(
        version=VERSION,
        store_id=store.records.store_id,
        lock=store.lock,
        cost=store.cost,
        salt=_base64(store.salt),
        nonce=_base64(nonce),
        keys=store.records.keys,
    )
    plain = json.dumps({name: secret.hex() for name, secret in store.secrets.items()}).encode()
    cipher, _ = _cipher(store.sealing_key)
    sealed = cipher.encrypt(nonce, plain, _aad(header))
    content = json.dumps(_plain(header) | {"sealed": _base64(sealed)}, indent=1).encode() + b"\n"
    make_private(path.parent)
    with write_atomically(path, durable=True) as file:
        file.write(content)


def _read(path: Path) -> tuple[_Header, bytes]:
    try:
        handle = open_own(path, secret=True)
    except ExposedError as error:
        raise SignerError("keystore", f"the keystore is not used: {error}") from error
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise SignerError("keystore", f"expected a file as keystore: `{path}`")
        data = file.read(KEYSTORE_MAX + 1)
    try:
        if len(data) > KEYSTORE_MAX:
            raise ValueError(f"more than {KEYSTORE_MAX} bytes")
        fields = load_shallow(data)
        if fields.get("version") != VERSION:
            raise SignerError(
                "keystore",
                f"expected version {VERSION} of a keystore, got {str(fields.get('version'))[:20]}: "
                f"use a newer skillhouse: `{path}`",
            )
        sealed = _unbase64(fields.pop("sealed"))
        header = shaped(fields, _Header)
        if header.cost not in COSTS or header.lock not in ("password", "keyring"):
            raise ValueError("an unknown cost or lock")
        if len(header.keys) > KEYS_MAX:
            raise ValueError(f"more than {KEYS_MAX} keys")
        _unbase64(header.salt, _SALT_BYTES)
        _unbase64(header.nonce, _NONCE_BYTES)
    except (ValueError, KeyError, AttributeError, DecodeError) as error:
        raise SignerError("keystore", f"the keystore is damaged ({error}): `{path}`") from error
    return header, sealed


def _opened(path: Path, header: _Header, sealed: bytes, key: bytes) -> OpenKeystore:
    cipher, invalid = _cipher(key)
    try:
        plain = cipher.decrypt(base64.b64decode(header.nonce), sealed, _aad(header))
    except invalid:
        raise SignerError(
            "wrong-password",
            f"the keystore does not open: another {header.lock}, or the file was changed: `{path}`",
        ) from None
    return OpenKeystore(
        records=KeyRecords(store_id=header.store_id, keys=header.keys),
        secrets={name: bytes.fromhex(secret) for name, secret in json.loads(plain).items()},
        sealing_key=key,
        lock=header.lock,
        cost=header.cost,
        salt=base64.b64decode(header.salt),
    )


def _derived(secret: bytes, salt: bytes, cost: int) -> bytes:
    """Return the sealing key: slow to guess for a password."""
    n = 1 << cost
    return hashlib.scrypt(secret, salt=salt, n=n, r=8, p=1, maxmem=n * 1100, dklen=_KEY_BYTES)


def _cipher(key: bytes) -> tuple[Any, type[Exception]]:
    """Return the cipher of the seal, and what it raises when the seal is broken."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    except ImportError as error:
        raise MissingExtraError("signer", "cryptography") from error
    return ChaCha20Poly1305(key), InvalidTag


def _plain(header: _Header) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(header)
    return fields


def _aad(header: _Header) -> bytes:
    return canonical_json(_plain(header))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str, size: int | None = None) -> bytes:
    data = base64.b64decode(text, validate=True)
    if size is not None and len(data) != size:
        raise ValueError(f"expected {size} bytes")
    return data

"""The keys of this user that sign skills and issue certificates: encrypted files, or a token.

A file is encrypted PKCS #8, which other programs can open too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import textwrap
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import padding, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.x509 import ObjectIdentifier
from msgspec import Struct

from skillhouse.floor import (
    DecodeError,
    ExposedError,
    make_private,
    open_own,
    shaped,
    sync_directory,
    write_atomically,
)
from skillhouse.floor.documents import json_value
from skillhouse.floor.structs import asdict
from skillhouse.registry.certificates import CURVES, Role, load_certificates, pem_of
from skillhouse.registry.trust import PublisherError

COST, BLOCK, PARALLEL = 1 << 14, 8, 5
"""scrypt's N, r and p (OWASP Password Storage Cheat Sheet): 16 MiB, as much as OpenSSL opens."""
KEY_MAX = 4_096
"""Bytes of the file of a key."""
_LABEL = "ENCRYPTED PRIVATE KEY"
_PBES2 = ObjectIdentifier("1.2.840.113549.1.5.13")
_SCRYPT = ObjectIdentifier("1.3.6.1.4.1.11591.4.11")
_AES_256_CBC = ObjectIdentifier("2.16.840.1.101.3.4.1.42")
VERSION = 1
KEYS_MAX = 256
"""Keys of one user."""
CURVE_OF = {
    Role.ROOT: ec.SECP384R1,
    Role.INTERMEDIATE: ec.SECP384R1,
    Role.DEVELOPER: ec.SECP256R1,
}
"""Those that live longer are larger (reference/registry.md, L1)."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_FACTS_MAX = 8_192
_SUFFIXES = ("key", "csr", "crt", "json")
"""Of the files of a key: the secret first, and last what it is known by."""
REMOVED = "removed"
"""The directory beside that of the keys where copies of removed ones are."""


@asn1.sequence
class _ScryptParameters:
    """RFC 7914, section 7.1."""

    salt: bytes
    cost: int
    block: int
    parallel: int


@asn1.sequence
class _Derivation:
    """PBES2's algorithm that makes a key of a password (RFC 8018, appendix A.4)."""

    algorithm: ObjectIdentifier
    parameters: _ScryptParameters


@asn1.sequence
class _Encryption:
    """PBES2's cipher."""

    algorithm: ObjectIdentifier
    initial: bytes


@asn1.sequence
class _Parameters:
    """PBES2's two algorithms."""

    derivation: _Derivation
    encryption: _Encryption


@asn1.sequence
class _Algorithm:
    """PBES2 with its parameters."""

    algorithm: ObjectIdentifier
    parameters: _Parameters


@asn1.sequence
class _EncryptedKey:
    """EncryptedPrivateKeyInfo (RFC 5208, section 6)."""

    algorithm: _Algorithm
    data: bytes


def new_private_key(curve: type[ec.EllipticCurve]) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def seal_key(key: ec.EllipticCurvePrivateKey, password: bytes) -> bytes:
    """Return a private key in PEM, encrypted with scrypt and AES-256."""
    plain = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    salt, initial = secrets.token_bytes(16), secrets.token_bytes(16)
    derived = hashlib.scrypt(
        password, salt=salt, n=COST, r=BLOCK, p=PARALLEL, maxmem=1 << 26, dklen=32
    )
    padder = padding.PKCS7(128).padder()
    padded = padder.update(plain) + padder.finalize()
    cipher = Cipher(algorithms.AES(derived), modes.CBC(initial)).encryptor()
    sealed = _EncryptedKey(
        algorithm=_Algorithm(
            algorithm=_PBES2,
            parameters=_Parameters(
                derivation=_Derivation(
                    algorithm=_SCRYPT,
                    parameters=_ScryptParameters(
                        salt=salt, cost=COST, block=BLOCK, parallel=PARALLEL
                    ),
                ),
                encryption=_Encryption(algorithm=_AES_256_CBC, initial=initial),
            ),
        ),
        data=cipher.update(padded) + cipher.finalize(),
    )
    lines = textwrap.wrap(base64.b64encode(asn1.encode_der(sealed)).decode(), 64)
    return "\n".join((f"-----BEGIN {_LABEL}-----", *lines, f"-----END {_LABEL}-----", "")).encode()


def open_key(pem: bytes, password: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the private key of an encrypted PEM text.

    Raises:
        PublisherError: `key`, another password, another kind of key, or one without a password.
    """
    if len(pem) > KEY_MAX or _LABEL.encode() not in pem:
        raise PublisherError("key", f"expected a PEM text `{_LABEL}` of at most {KEY_MAX} bytes")
    try:
        key = serialization.load_pem_private_key(pem, password)
    except (ValueError, TypeError):
        # Not chained: what a library says of a secret is no business of a log.
        raise PublisherError("key", "does not open: another password, or it is damaged") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, CURVES):
        raise PublisherError("key", "expected a key on P-256 or P-384")
    return key


class PublisherKey(Struct, frozen=True, kw_only=True):
    """What is known of a key without its password."""

    name: str
    role: str
    registry: str
    """Whose certificates it issues, or is certified by."""
    lock: str
    """What opens it: password, keyring or pkcs11."""
    token: str = ""
    """Of a key in a hardware token: its PKCS #11 URI (RFC 7512)."""
    id: str = ""
    """Of this key among all of its name that ever were; what the keyring knows it by."""
    version: int = VERSION


def new_publisher_key(
    name: str, role: str, *, registry: str, lock: str, token: str = ""
) -> PublisherKey:
    """Return what will be known of a key that is to be made.

    Args:
        lock: What opens it: keyring, pkcs11, or anything else for a password.
    """
    return PublisherKey(
        name=name,
        role=str(Role(role)),
        registry=registry,
        lock=lock if lock in ("keyring", "pkcs11") else "password",
        token=token,
        id=f"publisher-{secrets.token_hex(8)}",
    )


class PublisherKeys:
    """The directory of a user's publisher keys."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def all(self) -> tuple[PublisherKey, ...]:
        """Return every key, by name; PublisherError `key` for one that is damaged."""
        if not self._directory.is_dir():
            return ()
        found = sorted(self._directory.glob("*.json"))
        return tuple(self.get(path.stem) for path in found[:KEYS_MAX])

    def get(self, name: str) -> PublisherKey:
        """Return the key of a name; PublisherError `key` if there is none or it is damaged."""
        path = self._path(name, "json")
        data = self._read(path, _FACTS_MAX)
        if data is None:
            names = ", ".join(f"`{one.stem}`" for one in sorted(self._directory.glob("*.json"))[:5])
            hint = f"there are {names}" if names else "`skillhouse keys new NAME --for skills`"
            raise PublisherError("key", f"no publisher key `{name}`; {hint}")
        try:
            key = shaped(json_value(data), PublisherKey)
            if key.version != VERSION or key.name != name or key.role not in set(Role):
                raise DecodeError("another version, name or role")
        except DecodeError as error:
            raise PublisherError("key", f"is damaged: `{path}`: {str(error)[:120]}") from error
        return key

    def add(
        self, key: PublisherKey, password: bytes, *, curve: type[ec.EllipticCurve] | None = None
    ) -> ec.EllipticCurvePrivateKey:
        """Make a key, keep it encrypted, and return it; PublisherError where the name is taken."""
        private = new_private_key(curve or CURVE_OF[Role(key.role)])
        self._refuse_taken(key.name)
        # First the secret: a name without one would look like a key.
        self._write(self._path(key.name, "key"), seal_key(private, password))
        self._write_facts(key)
        return private

    def add_token(self, key: PublisherKey) -> None:
        """Keep where a key in a token is."""
        self._refuse_taken(key.name)
        self._write_facts(key)

    def open(self, key: PublisherKey, password: bytes) -> ec.EllipticCurvePrivateKey:
        """Return the private key of one in a file; PublisherError `key` where it does not open."""
        path = self._path(key.name, "key")
        data = self._read(path, KEY_MAX)
        if data is None:
            raise PublisherError("key", f"the file of the key is missing: `{path}`")
        return open_key(data, password)

    def certificates(self, name: str) -> tuple[x509.Certificate, ...]:
        """Return the certificate of a key, then the intermediate; empty before the issue."""
        path = self._path(name, "crt")
        data = self._read(path, KEY_MAX * 8)
        return () if data is None else load_certificates(data)

    def keep_certificates(self, name: str, chain: Sequence[x509.Certificate]) -> None:
        """Keep the certificate of a key."""
        self._write(self._path(name, "crt"), pem_of(chain))

    def remove(self, name: str, now: datetime, *, final: bool) -> Path | None:
        """Remove a key with its certificate; return where the copy is, None if `final`.

        Raises:
            PublisherError: `key`, there is none of that name, or a file of it cannot be used.
        """
        self.get(name)
        copy = None
        if not final:
            copy = self._directory.parent / REMOVED / f"{name}-{now:%Y%m%dT%H%M%SZ}"
            copy = copy.with_name(f"{copy.name}-{secrets.token_hex(2)}")
            make_private(copy)
            # INVARIANT: the whole copy is on the disk before the first file goes.
            for suffix in _SUFFIXES:
                data = self._read(self._path(name, suffix), KEY_MAX * 8)
                if data is not None:
                    self._write(copy / f"{name}.{suffix}", data)
            sync_directory(copy)
            sync_directory(copy.parent)
        # The facts last: until then it is listed, and can be removed again.
        for suffix in _SUFFIXES:
            self._path(name, suffix).unlink(missing_ok=True)
        sync_directory(self._directory)
        return copy

    def of_certificate(self, certificate: x509.Certificate) -> str:
        """Return the name of the key that a request was made with and is certified; else nothing.

        A key in a file cannot be compared without its password, so its request is kept.
        """
        for key in self.all():
            data = self._read(self._path(key.name, "csr"), KEY_MAX)
            if data and x509.load_pem_x509_csr(data).public_key() == certificate.public_key():
                return key.name
        return ""

    def keep_request(self, name: str, request: bytes) -> None:
        """Keep the last request of a key, by which its certificate will be known."""
        self._write(self._path(name, "csr"), request)

    def _refuse_taken(self, name: str) -> None:
        if self._path(name, "json").exists():
            raise PublisherError("key", f"there is a publisher key `{name}` already")
        make_private(self._directory)

    def _path(self, name: str, suffix: str) -> Path:
        # INVARIANT: a name becomes that of a file.
        if not _NAME.fullmatch(name):
            raise PublisherError("key", f"expected a name of a-z, 0-9 and `-`, got {name[:80]!r}")
        return self._directory / f"{name}.{suffix}"

    def _read(self, path: Path, most: int) -> bytes | None:
        try:
            with os.fdopen(open_own(path, secret=True), "rb") as file:
                data = file.read(most + 1)
        except ExposedError as error:
            raise PublisherError("key", f"is not used: {error}") from error
        except FileNotFoundError:
            return None
        if len(data) > most:
            raise PublisherError("key", f"expected at most {most} bytes: `{path}`")
        return data

    def _write_facts(self, key: PublisherKey) -> None:
        self._write(self._path(key.name, "json"), json.dumps(asdict(key), indent=1).encode())
        sync_directory(self._directory)

    def _write(self, path: Path, data: bytes) -> None:
        with write_atomically(path, durable=True) as file:
            file.write(data)

"""Files of certificates are public where they hold nothing else."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import certifi
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skillhouse.floor import (
    is_public_certificate,
    is_secret,
    is_secret_file,
    may_end_secret,
)
from skillhouse.floor.secret_names import SECRET_NAMES, holds_only_certificates

_KEY = ec.generate_private_key(ec.SECP256R1())
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_PEM = serialization.Encoding.PEM
CERTIFICATE = (
    x509.CertificateBuilder(_NAME, _NAME, _KEY.public_key(), 1, _DAY, _DAY.replace(year=2027))
    .sign(_KEY, hashes.SHA256())
    .public_bytes(_PEM)
)


def key_in(form: serialization.PrivateFormat, encoding: serialization.Encoding = _PEM) -> bytes:
    return _KEY.private_bytes(encoding, form, serialization.NoEncryption())


def block(data: bytes) -> bytes:
    text = base64.encodebytes(data)
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"-----END CERTIFICATE-----\n"


_PKCS8 = serialization.PrivateFormat.PKCS8
PUBLIC = {
    "alone": CERTIFICATE,
    "two": CERTIFICATE * 2,
    "crlf": CERTIFICATE.replace(b"\n", b"\r\n"),
    "comments": b"# Issuer: CN=x\n# Label: y\n\n" + CERTIFICATE,
    "bundle": b"##\n## Bundle\n##\n\nSome Root CA\n============\n" + CERTIFICATE,
    "openssl": b"Certificate:\n    Data:\n        Version: 3\n" + CERTIFICATE,
    "bag": b"Bag Attributes\n    localKeyID: 01\nsubject=CN = x\nissuer=CN = x\n" + CERTIFICATE,
}
SECRET = {
    "nothing": b"",
    "no block": b"# a certificate\n",
    "key": key_in(_PKCS8),
    "both": CERTIFICATE + key_in(_PKCS8),
    "key first": key_in(serialization.PrivateFormat.TraditionalOpenSSL) + CERTIFICATE,
    "key as certificate": block(key_in(_PKCS8, serialization.Encoding.DER)),
    "old key as certificate": block(
        key_in(serialization.PrivateFormat.TraditionalOpenSSL, serialization.Encoding.DER)
    ),
    "text as certificate": block(b"hunter2 is the password"),
    "password": CERTIFICATE + b"password = hunter2\n",
    "indented": CERTIFICATE + b"    hunter2\n",
    "open block": CERTIFICATE + b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(b"hunter2"),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_certificates_are_public(name: str) -> None:
    assert holds_only_certificates(PUBLIC[name])


@pytest.mark.parametrize("name", SECRET)
def test_what_holds_anything_else_is_not(name: str) -> None:
    assert not holds_only_certificates(SECRET[name])


def test_the_name_decides_before_the_content(tmp_path: Path) -> None:
    for name in ("ca.pem", "ca.key", ".env", "dir.pem/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(CERTIFICATE)
    (tmp_path / "link.pem").symlink_to("ca.key")
    secret = {name for name in ("ca.pem", "ca.key", ".env") if _is_secret(tmp_path, name)}
    assert secret == {"ca.key", ".env"}
    assert is_secret_file(".ssh/ca.pem", str(tmp_path / "ca.pem"))
    assert not is_public_certificate(str(tmp_path / "link.pem"))
    assert not is_public_certificate(str(tmp_path / "dir.pem"))


def _is_secret(place: Path, name: str) -> bool:
    return is_secret_file(name, str(place / name))


def test_a_file_that_changes_is_looked_at_again(tmp_path: Path) -> None:
    file = tmp_path / "x.pem"
    file.write_bytes(CERTIFICATE)
    assert is_public_certificate(str(file))
    file.write_bytes(CERTIFICATE + key_in(_PKCS8))
    assert not is_public_certificate(str(file))


def test_the_bundle_of_certifi_is_public() -> None:
    assert is_public_certificate(certifi.where())


def test_the_cheap_look_at_a_name_passes_over_no_secret() -> None:
    for pattern in SECRET_NAMES:
        for filled in ("", "x", "a.b", "Z_9"):
            path = pattern.replace("*", filled).upper()
            assert not is_secret(path) or may_end_secret(path.rpartition("/")[2].casefold()), path
    assert not may_end_secret("main.py")

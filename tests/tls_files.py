"""Certificates for tests of TLS: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class CertificateAuthority:
    """One that signs for 127.0.0.1."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            self._begun(self._name)
            .public_key(self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.ca = directory / f"{name}.crt"
        self.ca.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, host: str = "127.0.0.1") -> tuple[Path, Path]:
        """Write a certificate and its key over those of that name; return their places."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            self._begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .public_key(key.public_key())
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        places = (self._directory / f"{name}.crt", self._directory / f"{name}.key")
        # As a Secret is renewed: each file by another one in its place.
        for place, data in zip(
            places,
            (
                made.public_bytes(serialization.Encoding.PEM),
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                ),
            ),
            strict=True,
        ):
            begun = place.with_suffix(".new")
            begun.write_bytes(data)
            begun.rename(place)
        return places

    def _begun(self, subject: x509.Name) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=1))
        )

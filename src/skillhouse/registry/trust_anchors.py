"""The roots, timestamp authorities and revocation lists that this user trusts, on the disk."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from skillhouse.floor import ExposedError, make_private, open_own, write_atomically
from skillhouse.registry.certificates import (
    PEM_MAX,
    check_root,
    fingerprint,
    is_issued_by,
    load_certificates,
    named_uri,
    pem_of,
)
from skillhouse.registry.revocations import IssuedList, read_list, refuse_older
from skillhouse.registry.signatures import TrustAnchors
from skillhouse.registry.trust import SIGNATURE_MAX, PublisherError

_ROOTS, _AUTHORITIES, _LISTS = "roots", "timestamps", "revocations"
_ANCHORS_MAX = 64
"""Roots, authorities and lists of one user, each."""


class AnchorStore:
    """The directory of what is trusted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._checked: dict[tuple[bytes, tuple[x509.Certificate, ...]], IssuedList] = {}
        """The lists of the last reading, by their bytes and the roots that they were held against:
        a server that loads skills checks each list once."""
        self._parsed: dict[bytes, x509.Certificate] = {}
        """The certificates of the last reading, by their bytes."""

    def read(self, now: datetime) -> TrustAnchors:
        """Return what is trusted; PublisherError `trust` where a file of it cannot be used."""
        known, self._parsed = self._parsed, {}
        roots = tuple(self._certificate(path, known) for path in self._files(_ROOTS, "crt"))
        checked = {}
        for path in self._files(_LISTS, "json"):
            data = self._bytes(path, SIGNATURE_MAX)
            key = (data, roots)
            try:
                checked[key] = self._checked.get(key) or read_list(data, roots, now)
            except PublisherError as error:
                if error.step == "chain":
                    # Of a root that is no longer trusted: it has no say about others.
                    continue
                raise PublisherError("trust", f"a revocation list, {error}: `{path}`") from error
        self._checked = checked
        return TrustAnchors(
            roots=roots,
            timestamp_roots=tuple(
                self._certificate(path, known) for path in self._files(_AUTHORITIES, "crt")
            ),
            revocations=tuple(checked.values()),
        )

    def add_root(self, certificate: x509.Certificate) -> str:
        """Trust a root certificate; return its registry. PublisherError where it is none."""
        registry = check_root(certificate).registry
        self._write(_ROOTS, f"{fingerprint(certificate)}.crt", pem_of([certificate]))
        return registry

    def add_authority(self, certificate: x509.Certificate) -> None:
        """Trust the root certificate of a timestamp authority; PublisherError where it is none."""
        check_authority(certificate)
        self._write(_AUTHORITIES, f"{fingerprint(certificate)}.crt", pem_of([certificate]))

    def add_list(self, data: bytes, now: datetime) -> IssuedList:
        """Take over a revocation list of a trusted root, unless there is a newer one.

        Raises:
            PublisherError: it is older than the one that is here, or its signature is refused.
        """
        anchors = self.read(now)
        given = read_list(data, anchors.roots, now)
        refuse_older(anchors.revocations, given)
        self._write(_LISTS, f"{given.issuer}.json", data)
        return given

    def forget(self, text: str) -> int:
        """Trust no root or authority any more whose fingerprint begins so; return how many."""
        if len(text) < 8:
            raise PublisherError("trust", "expected 8 or more digits of a fingerprint")
        found = [
            path
            for kind in (_ROOTS, _AUTHORITIES)
            for path in self._files(kind, "crt")
            if path.stem.startswith(text.lower())
        ]
        for path in found:
            path.unlink()
        return len(found)

    def _files(self, kind: str, suffix: str) -> Sequence[Path]:
        return sorted((self._directory / kind).glob(f"*.{suffix}"))[:_ANCHORS_MAX]

    def _certificate(self, path: Path, known: Mapping[bytes, x509.Certificate]) -> x509.Certificate:
        data = self._bytes(path, PEM_MAX)
        if data in known:
            self._parsed[data] = known[data]
            return known[data]
        try:
            (certificate,) = load_certificates(data)
        except ValueError as error:
            raise PublisherError("trust", f"expected one certificate: `{path}`") from error
        self._parsed[data] = certificate
        return certificate

    def _bytes(self, path: Path, most: int) -> bytes:
        try:
            with os.fdopen(open_own(path), "rb") as file:
                data = file.read(most + 1)
        except ExposedError as error:
            raise PublisherError("trust", f"is not used: {error}") from error
        if len(data) > most:
            raise PublisherError("trust", f"expected at most {most} bytes: `{path}`")
        return data

    def _write(self, kind: str, name: str, data: bytes) -> None:
        place = self._directory / kind
        make_private(place)
        with write_atomically(place / name, durable=True) as file:
            file.write(data)


def check_authority(certificate: x509.Certificate) -> None:
    """Refuse, with `certificate`, what can be no root certificate of a timestamp authority."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        is_issuer = basic.ca
    except x509.ExtensionNotFound:
        is_issuer = False
    uses: set[x509.ObjectIdentifier] = set()
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        uses = set(found.value)
    except x509.ExtensionNotFound:
        pass
    is_stamping = not uses or ExtendedKeyUsageOID.TIME_STAMPING in uses
    if named_uri(certificate).startswith("skill:"):
        raise PublisherError("certificate", "a root of publishers confirms no times")
    if not is_issuer or not is_stamping or not is_issued_by(certificate, certificate):
        message = "expected the root certificate of a timestamp authority, signed with its own key"
        raise PublisherError("certificate", message)

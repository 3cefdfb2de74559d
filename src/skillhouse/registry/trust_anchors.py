"""The roots, timestamp authorities and revocation lists that this user trusts, on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from skillhouse.floor import ExposedError, make_private, open_own, write_atomically
from skillhouse.floor.lock import locked_file
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
_VOUCHED = "vouched"
"""For each repository the fingerprints of roots that are trusted by its pinned root alone."""
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
        """Trust a root certificate because a person says so, whatever vouches for it besides.

        Returns:
            Its registry. PublisherError where it is none.
        """
        registry = check_root(certificate).registry
        own = fingerprint(certificate)
        with self._vouching():
            for repository, found in self._all_vouched().items():
                if own in found:
                    self._keep_vouched(repository, found - {own})
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

    def take_vouched(
        self, repository: str, certificates: Sequence[x509.Certificate]
    ) -> tuple[str, ...]:
        """Trust just the roots that a repository's pinned root vouches for, besides a person's.

        One that it vouched for before and no more is forgotten, unless a person trusts it by hand,
        or another repository vouches for it.

        Returns:
            The fingerprints of those that are forgotten.
        """
        given = {fingerprint(one): one for one in certificates}
        if set(given) == self._all_vouched().get(repository, frozenset()) and all(
            self._root(one).exists() for one in given
        ):
            return ()
        with self._vouching():
            every = self._all_vouched()
            before = every.pop(repository, frozenset())
            others = frozenset().union(*every.values())
            # What is here and vouched for by none is a person's.
            own = {one for one in given if one in before | others or not self._root(one).exists()}
            # INVARIANT: it is known who vouches for a root before that is trusted.
            self._keep_vouched(repository, before | own)
            for one in own:
                self._write(_ROOTS, f"{one}.crt", pem_of([given[one]]))
            gone = sorted(before - own - others)
            for one in gone:
                self._root(one).unlink(missing_ok=True)
            self._keep_vouched(repository, own)
        return tuple(gone)

    def _root(self, own: str) -> Path:
        return self._directory / _ROOTS / f"{own}.crt"

    @contextmanager
    def _vouching(self) -> Iterator[None]:
        place = self._directory / _VOUCHED
        make_private(place)
        with locked_file(place / "lock"):
            yield

    def _all_vouched(self) -> dict[str, frozenset[str]]:
        """Return the fingerprints by repository; PublisherError for a file that is not used."""
        return {
            path.stem: frozenset(self._bytes(path, PEM_MAX).decode("ascii", "replace").split())
            for path in self._files(_VOUCHED, "txt")
        }

    def _keep_vouched(self, repository: str, found: Set[str]) -> None:
        self._write(_VOUCHED, f"{repository}.txt", "\n".join(sorted(found)).encode())

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

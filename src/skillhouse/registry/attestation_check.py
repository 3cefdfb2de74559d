"""Verifies attestations without a network: by which workflow of which repository one was made.

Needs the extra `sigstore`. Its library wants an entry of a transparency log; roots without a log,
as GitHub's for private repositories, are checked here by their timestamps in its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)
from rfc3161_client import VerificationError as TimestampError
from rfc3161_client import VerifierBuilder
from sigstore.errors import Error as SigstoreError
from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier
from sigstore_models.common.v1 import TimeRange
from sigstore_models.trustroot import v1 as trust_models

from skillhouse.floor import DecodeError
from skillhouse.floor.documents import json_value
from skillhouse.registry.attestations import (
    BUILD_TYPES,
    PUBLIC_GOOD,
    Attestation,
    AttestationError,
    read_attestation,
)
from skillhouse.registry.lock import BuildOrigin
from skillhouse.registry.signature_bundle import PAYLOAD_TYPE, signed_bytes
from skillhouse.registry.signatures import read_timestamp
from skillhouse.registry.trust import PublisherError

ROOT_MAX = 1024 * 1024
"""Bytes of a file of roots."""
TIMESTAMPS_MAX = 8
TEXT_MAX = 500
"""Characters of what a certificate says."""
_STORE = "https://tuf-repo-cdn.sigstore.dev"
_IDS = "1.3.6.1.4.1.57264.1"
_ISSUER, _REPOSITORY, _COMMIT, _REF, _REPOSITORY_ID, _WORKFLOW = (
    x509.ObjectIdentifier(f"{_IDS}.{number}") for number in (8, 12, 13, 14, 15, 18)
)
"""Of Fulcio's certificates, each a UTF8String (fulcio, docs/oid-info.md)."""


_FAULTS = (
    *(SigstoreError, ValueError, LookupError, AttributeError, TypeError),
    *(x509.ExtensionNotFound, x509.DuplicateExtension, UnsupportedAlgorithm),
)
"""What a bundle that is not well-formed meets in the libraries; pydantic's is a ValueError."""


class AttestationVerifier:
    """Says where a package was built, by roots and issuers that are configured."""

    def __init__(self, roots: Sequence[str], issuers: Sequence[str]) -> None:
        """Read the roots.

        Args:
            roots: `PUBLIC_GOOD`, or file:/PATH of a file with a trusted root in JSON, or one on
                each line, as `gh attestation trusted-root` writes them.
            issuers: Identity providers whose word counts.

        Raises:
            AttestationError: "root", a file is none.
        """
        self._issuers = frozenset(issuers)
        self._roots = [root for one in roots for root in read_roots(one)]

    def verify(self, data: bytes, archive: str) -> BuildOrigin:
        """Return where an archive was built, by a bundle over it.

        Args:
            archive: `sha256:` digest of the archive.

        Raises:
            AttestationError: as of `read_attestation`; "root", no root that is trusted here vouches
                for it, or it was changed; "issuer", its issuer is not configured; "identity", the
                certificate names no workflow, or the statement says something else than a build.
        """
        found = read_attestation(data, archive)
        if found.predicate_type not in BUILD_TYPES:
            message = f"says {found.predicate_type[:120]}, and not where it was built"
            raise AttestationError("identity", message)
        problems: list[str] = []
        for root in self._roots:
            has_log = bool(root._inner.tlogs)  # noqa: SLF001 - nothing public says it.
            if has_log != found.is_logged:
                continue
            try:
                certificate = (_logged if has_log else _timestamped)(data, found, root)
            except _FAULTS as error:
                problems.append(" ".join(str(error).split())[:160])
                continue
            # INVARIANT: nothing that the certificate says is read before a root vouched for it.
            return self._origin(certificate)
        why = "; ".join(dict.fromkeys(problems)) or _no_root(is_logged=found.is_logged)
        raise AttestationError("root", f"is not verified: {why}")

    def _origin(self, certificate: x509.Certificate) -> BuildOrigin:
        issuer = _said(certificate, _ISSUER)
        if issuer not in self._issuers:
            listed = ", ".join(sorted(self._issuers)) or "none"
            message = f"its issuer {issuer!r} is not configured in `registry.attestation_issuers`"
            raise AttestationError("issuer", f"{message}: {listed}")
        repository = _said(certificate, _REPOSITORY)
        workflow = _said(certificate, _WORKFLOW).rpartition("@")[0]
        # INVARIANT: the workflow is one of the repository that is named, and no other's.
        if not repository.startswith("https://") or not workflow.startswith(f"{repository}/"):
            message = "its certificate names no workflow of a repository"
            raise AttestationError("identity", message)
        return BuildOrigin(
            issuer=issuer,
            repository=repository,
            # GitLab has two slashes before the path.
            workflow=workflow.removeprefix(repository).lstrip("/"),
            repository_id=_said(certificate, _REPOSITORY_ID),
            commit=_said(certificate, _COMMIT),
            ref=_said(certificate, _REF),
        )


def _no_root(*, is_logged: bool) -> str:
    kind = "with a transparency log" if is_logged else "without one, as GitHub's for private code,"
    return f"no root {kind} is in `registry.sigstore_roots`"


def read_roots(name: str) -> list[TrustedRoot]:
    """Return the roots of a file, or those that the library ships; AttestationError `root`."""
    try:
        if name == PUBLIC_GOOD:
            # Its way to this file copies it into the home first, and asks for a newer one.
            place = files("sigstore._store") / quote(_STORE, safe="") / "trusted_root.json"
            texts = [place.read_bytes()]
        else:
            with Path(name.removeprefix("file:")).expanduser().open("rb") as file:
                data = file.read(ROOT_MAX + 1)
            if len(data) > ROOT_MAX:
                raise ValueError(f"expected at most {ROOT_MAX} bytes")
            lines = [line.strip() for line in data.splitlines() if line.strip()]
            is_listed = all(line.startswith(b"{") and line.endswith(b"}") for line in lines)
            texts = lines if is_listed else [data]
        return [_root(text) for text in texts]
    except (OSError, ValueError, DecodeError, SigstoreError) as error:
        why = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())[:160]
        raise AttestationError("root", f"the roots in `{name}` cannot be used: {why}") from error


def _root(text: bytes) -> TrustedRoot:
    value = json_value(text)
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    # Lists that are empty are left out, as in any JSON of protobuf, and the library wants them.
    lists = ("tlogs", "ctlogs", "certificateAuthorities", "timestampAuthorities")
    whole = {**{key: [] for key in lists}, **value}
    return TrustedRoot(trust_models.TrustedRoot.from_json(json.dumps(whole)))


class _AnyIdentity:
    """Whose identity counts is judged afterwards, by what the certificate says."""

    def verify(self, cert: x509.Certificate) -> None:
        """Accept it: a root vouched for it."""


def _logged(data: bytes, found: Attestation, root: TrustedRoot) -> x509.Certificate:
    """Return who signed; what the library finds wrong with chain, log, times or signature."""
    bundle = Bundle.from_json(data)
    kind, payload = Verifier(trusted_root=root).verify_dsse(bundle, _AnyIdentity())
    if (kind, payload) != (PAYLOAD_TYPE, found.payload):
        raise ValueError("what was verified is another statement")
    # INVARIANT: the certificate that the library verified, whichever others the file has.
    return bundle.signing_certificate


def _timestamped(_: bytes, found: Attestation, root: TrustedRoot) -> x509.Certificate:
    """Return who signed, by an authority's time and a chain at that time; else ValueError."""
    certificate = x509.load_der_x509_certificate(found.certificate)
    moment = _confirmed(found, root)
    _check_chain(certificate, root, moment)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if not usage.digital_signature or ExtendedKeyUsageOID.CODE_SIGNING not in uses:
        raise ValueError("its certificate is not for signing code")
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("expected a key of an elliptic curve")
    try:
        signed = signed_bytes(PAYLOAD_TYPE, found.payload)
        key.verify(found.signature, signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise ValueError("its signature is wrong") from error
    return certificate


def _confirmed(found: Attestation, root: TrustedRoot) -> datetime:
    """Return when an authority of the root says that the signature was there; ValueError."""
    for stamp in found.timestamps[:TIMESTAMPS_MAX]:
        try:
            response = read_timestamp(stamp, found.signature)
        except PublisherError:
            # Another one may be right; without any it is refused below.
            continue
        moment = response.tst_info.gen_time
        for authority in root.get_timestamp_authorities():
            leaf, *above = authority.certificates(allow_expired=True)
            if not above or not _was_in_use(authority._inner.valid_for, moment):  # noqa: SLF001
                continue
            builder = VerifierBuilder().tsa_certificate(leaf).add_root_certificate(above[-1])
            for one in above[:-1]:
                builder = builder.add_intermediate_certificate(one)
            try:
                builder.build().verify_message(response, found.signature)
            except TimestampError:
                continue
            return moment
    raise ValueError("no timestamp authority of the root confirms when it was signed")


def _check_chain(certificate: x509.Certificate, root: TrustedRoot, moment: datetime) -> None:
    """Raise ValueError unless a certificate was issued below the root, and valid at a time."""

    def passing(policy: ExtensionPolicy) -> ExtensionPolicy:
        return policy.may_be_present(x509.ExtendedKeyUsage, Criticality.NON_CRITICAL, None)

    found = [
        x509.load_der_x509_certificate(one.raw_bytes)
        for authority in root._inner.certificate_authorities  # noqa: SLF001 - as above.
        if _was_in_use(authority.valid_for, moment)
        for one in authority.cert_chain.certificates
    ]
    # An empty store is a ValueError, too.
    builder = PolicyBuilder().store(Store(found)).time(moment)
    verifier = builder.extension_policies(
        ca_policy=passing(ExtensionPolicy.webpki_defaults_ca()),
        ee_policy=passing(ExtensionPolicy.webpki_defaults_ee()),
    ).build_client_verifier()
    try:
        verifier.verify(certificate, [])
    except (VerificationError, x509.UnsupportedGeneralNameType) as error:
        raise ValueError(f"its certificate is not of this root: {error}") from error


def _was_in_use(span: TimeRange, moment: datetime) -> bool:
    return span.start <= moment and (span.end is None or moment < span.end)


def _said(certificate: x509.Certificate, name: x509.ObjectIdentifier) -> str:
    """Return what a certificate says, empty for nothing; AttestationError `identity`."""
    try:
        found: Any = certificate.extensions.get_extension_for_oid(name).value
        text = asn1.decode_der(str, found.value)
    except x509.ExtensionNotFound:
        return ""
    except (ValueError, x509.DuplicateExtension) as error:
        raise AttestationError("identity", "its certificate cannot be read") from error
    if len(text) > TEXT_MAX or not text.isprintable():
        raise AttestationError("identity", "its certificate has a text that cannot be shown")
    return text

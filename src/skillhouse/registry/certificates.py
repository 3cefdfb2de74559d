"""What certificates of publishers say: the rules of each kind, and the chain to a trusted root."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, SignatureAlgorithmOID
from msgspec import Struct

from skillhouse.registry.trust import PublisherError

CERTIFICATE_MAX = 8_192
"""Bytes of one certificate: ours have about 700."""
PEM_MAX = 64 * 1_024
"""Bytes of a file of certificates."""
DEVELOPER_DAYS_MAX = 397
"""Days that a developer's certificate is valid at most (reference/registry.md, L1: 13 months)."""
SIGNING_USE = x509.ObjectIdentifier("2.25.119792704302352081832699392173995339121")
"""Our extended key usage "signs agent skills": an arc made of a UUID (ITU-T X.667)."""

CURVES = (ec.SECP256R1, ec.SECP384R1)
"""As the Model Signing format and path validation allow; P-521 adds nothing."""
_HASHES: dict[type[ec.EllipticCurve], type[hashes.SHA256 | hashes.SHA384]] = {
    ec.SECP256R1: hashes.SHA256,
    ec.SECP384R1: hashes.SHA384,
}
_ALGORITHMS = (SignatureAlgorithmOID.ECDSA_WITH_SHA256, SignatureAlgorithmOID.ECDSA_WITH_SHA384)
_REGISTRY = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_HANDLE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HANDLE_MAX = 64
_URI = re.compile(r"skill://(?P<registry>[^/]*)(?:/publisher/(?P<handle>[^/]*))?")

UNREADABLE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for a certificate or a request that is none."""

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
CHAIN_MAX = 2
"""Certificates of a signature: the developer's, and at most one intermediate."""

_OTHER_KIND = (
    "; it is none for skills either, as `keys issue` makes them: signatures of other programs in "
    "the Model Signing format are not accepted"
)


class Role(enum.StrEnum):
    """What a certificate is for."""

    ROOT = "root"
    INTERMEDIATE = "intermediate"
    DEVELOPER = "developer"


class PublisherName(Struct, frozen=True, kw_only=True):
    """Whom a certificate names: a registry, or one of its publishers."""

    registry: str
    handle: str = ""
    """Empty for a registry itself."""

    @property
    def uri(self) -> str:
        publisher = f"/publisher/{self.handle}" if self.handle else ""
        return f"skill://{self.registry}{publisher}"


def publisher_name(registry: str, handle: str = "") -> PublisherName:
    """Return a checked name.

    >>> publisher_name("skills.example.com", "acme").uri
    'skill://skills.example.com/publisher/acme'

    Raises:
        PublisherError: `name`, one of both is none.
    """
    if not _REGISTRY.fullmatch(registry) or "--" in registry or ".." in registry:
        message = f"expected a registry such as `skills.example.com`, got {registry[:80]!r}"
        raise PublisherError("name", message)
    if handle and (not _HANDLE.fullmatch(handle) or len(handle) > _HANDLE_MAX):
        message = f"expected a publisher such as `acme` (a-z, 0-9, -), got {handle[:80]!r}"
        raise PublisherError("name", message)
    return PublisherName(registry=registry, handle=handle)


def load_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM file; PublisherError `certificate` for anything else."""
    if len(pem) > PEM_MAX:
        raise PublisherError("certificate", f"expected at most {PEM_MAX} bytes of certificates")
    try:
        found = tuple(x509.load_pem_x509_certificates(pem))
        for one in found:
            _read_all(one)
    except UNREADABLE as error:
        raise PublisherError("certificate", "expected a certificate in PEM") from error
    return found


def _read_all(certificate: x509.Certificate) -> None:
    """Read what is otherwise read when it is asked for, so that damage shows here."""
    _ = (
        certificate.extensions,
        certificate.subject,
        certificate.issuer,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )


def load_certificate(der: bytes) -> x509.Certificate:
    """Return a certificate in DER; PublisherError `certificate` for anything else."""
    if len(der) > CERTIFICATE_MAX:
        message = f"expected a certificate of at most {CERTIFICATE_MAX} bytes, got {len(der)}"
        raise PublisherError("certificate", message)
    try:
        certificate = x509.load_der_x509_certificate(der)
        _read_all(certificate)
    except UNREADABLE as error:
        raise PublisherError("certificate", f"cannot be read: {error}") from error
    if certificate.public_bytes(Encoding.DER) != der:
        raise PublisherError("certificate", "is followed by other bytes")
    return certificate


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate, 64 hex digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def curve_hash(curve: ec.EllipticCurve) -> hashes.SHA256 | hashes.SHA384:
    """Return the hash that goes with a curve, as in the Model Signing format."""
    return _HASHES[type(curve)]()


def elliptic_key(
    certificate: x509.Certificate | x509.CertificateSigningRequest,
) -> ec.EllipticCurvePublicKey:
    """Return the public key of a certificate; PublisherError `algorithm` unless P-256 or P-384."""
    try:
        key = certificate.public_key()
    except UNREADABLE as error:
        raise PublisherError("algorithm", "expected a key on P-256 or P-384") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, CURVES):
        kind = type(key).__name__.removesuffix("PublicKey")
        raise PublisherError("algorithm", f"expected a key on P-256 or P-384, got {kind}")
    return key


def name_of(certificate: x509.Certificate, role: Role) -> PublisherName:
    """Return whom a certificate names in its one URI; PublisherError `purpose` otherwise."""
    found = extension(certificate, x509.SubjectAlternativeName, is_critical=False)
    names = list(found)
    if len(names) != 1 or not isinstance(names[0], x509.UniformResourceIdentifier):
        raise PublisherError("purpose", f"the {role} certificate must name one URI, and no more")
    match = _URI.fullmatch(names[0].value)
    if match is None or (match["handle"] is None) != (role is not Role.DEVELOPER):
        message = f"the {role} certificate names no publisher of skills: {names[0].value[:120]!r}"
        raise PublisherError("purpose", message)
    try:
        return publisher_name(match["registry"], match["handle"] or "")
    except PublisherError as error:
        raise PublisherError("purpose", f"the {role} certificate: {error}") from error


def extension(
    certificate: x509.Certificate, kind: type[_Extension], *, is_critical: bool
) -> _Extension:
    """Return an extension; PublisherError `purpose` where it is missing or not critical."""
    try:
        found = certificate.extensions.get_extension_for_class(kind)
    except x509.ExtensionNotFound as error:
        raise PublisherError("purpose", f"a certificate has no {kind.__name__}") from error
    if is_critical and not found.critical:
        raise PublisherError("purpose", f"{kind.__name__} of a certificate is not critical")
    return found.value


def check_role(certificate: x509.Certificate, role: Role) -> PublisherName:
    """Return whom a certificate names, if it is one of that kind.

    Raises:
        PublisherError: `algorithm` or `purpose`, it is of another kind.
    """
    elliptic_key(certificate)
    if certificate.signature_algorithm_oid not in _ALGORITHMS:
        raise PublisherError(
            "algorithm", f"the {role} certificate has a signature that is too weak"
        )
    basic = extension(certificate, x509.BasicConstraints, is_critical=True)
    usage = extension(certificate, x509.KeyUsage, is_critical=True)
    is_issuer = role is not Role.DEVELOPER
    if basic.ca != is_issuer or usage.key_cert_sign != is_issuer:
        word = "" if is_issuer else "not "
        raise PublisherError("purpose", f"the {role} certificate must {word}issue certificates")
    if role is Role.INTERMEDIATE and basic.path_length != 0:
        raise PublisherError("purpose", "the intermediate certificate must have path length 0")
    if role is Role.DEVELOPER:
        _check_developer(certificate, usage)
    return name_of(certificate, role)


def _check_developer(certificate: x509.Certificate, usage: x509.KeyUsage) -> None:
    if not usage.digital_signature or usage.crl_sign:
        raise PublisherError("purpose", "the developer certificate may sign, and nothing else")
    uses = set(extension(certificate, x509.ExtendedKeyUsage, is_critical=False))
    if uses != {ExtendedKeyUsageOID.CODE_SIGNING, SIGNING_USE}:
        message = "the developer certificate is not for signing skills (extended key usage)"
        raise PublisherError("purpose", message)
    if lifetime(certificate) > timedelta(days=DEVELOPER_DAYS_MAX):
        message = f"the developer certificate is valid for more than {DEVELOPER_DAYS_MAX} days"
        raise PublisherError("purpose", message)


def lifetime(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - certificate.not_valid_before_utc


def is_for_skills(certificate: x509.Certificate) -> bool:
    """Whether a certificate says at all that it is for signing skills; nothing is checked."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return False
    return SIGNING_USE in uses.value


def check_root(certificate: x509.Certificate) -> PublisherName:
    """Return which registry a root certificate names; PublisherError where it can be no root."""
    name = check_role(certificate, Role.ROOT)
    if not is_issued_by(certificate, certificate):
        raise PublisherError("certificate", "a root certificate must be signed with its own key")
    return name


def check_time(certificate: x509.Certificate, role: Role, moment: datetime) -> None:
    """Refuse, with `validity`, a certificate that is not valid at a moment."""
    if moment < certificate.not_valid_before_utc:
        start = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M}Z"
        raise PublisherError("validity", f"the {role} certificate is not valid before {start}")
    if moment > certificate.not_valid_after_utc:
        end = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M}Z"
        raise PublisherError("validity", f"the {role} certificate expired on {end}")


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def pem_of(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def named_uri(certificate: x509.Certificate) -> str:
    """Return the URI that a certificate names, for showing it only; empty without one."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ""
    return next(iter(found.value.get_values_for_type(x509.UniformResourceIdentifier)), "")


class CertificateChain(Struct, frozen=True, kw_only=True):
    """Certificates that lead to a root of ours, and whom the first one names."""

    certificates: tuple[x509.Certificate, ...]
    """The one that signs first, the root last."""
    name: PublisherName

    @property
    def leaf(self) -> x509.Certificate:
        return self.certificates[0]

    @property
    def fingerprints(self) -> tuple[str, ...]:
        return tuple(fingerprint(one) for one in self.certificates)


def parse_chain(chain: Sequence[bytes]) -> tuple[x509.Certificate, ...]:
    """Return certificates in DER as such; PublisherError `certificate` for too many or none."""
    if not 1 <= len(chain) <= CHAIN_MAX:
        message = f"expected 1 to {CHAIN_MAX} certificates without the root, got {len(chain)}"
        raise PublisherError("certificate", message)
    return tuple(load_certificate(one) for one in chain)


def check_chain(
    given: Sequence[x509.Certificate], roots: Iterable[x509.Certificate], *, moment: datetime
) -> CertificateChain:
    """Return the chain from a developer's certificate to one of `roots`.

    Args:
        given: The developer's certificate, and the intermediate that issued it, if any.
        roots: The only certificates that are trusted; never those of the web.
        moment: When all of them must be valid.

    Raises:
        PublisherError: `chain`, `validity`, `algorithm` or `purpose`.
    """
    root = _root_of(given, tuple(roots))
    chain = (*given, root)
    roles = (Role.DEVELOPER, *(Role.INTERMEDIATE for _ in given[1:]), Role.ROOT)
    for certificate, role in zip(reversed(chain), reversed(roles), strict=True):
        check_time(certificate, role, moment)
    registry = check_role(root, Role.ROOT).registry
    for certificate, role in zip(given[1:], roles[1:-1], strict=True):
        _check_registry(check_role(certificate, role), registry)
    name = check_role(given[0], Role.DEVELOPER)
    _check_registry(name, registry)
    _check_path(chain, moment)
    return CertificateChain(certificates=chain, name=name)


def _root_of(
    given: Sequence[x509.Certificate], roots: tuple[x509.Certificate, ...]
) -> x509.Certificate:
    """Return the root that is named as the issuer; whether it issued anything is not said yet."""
    other = "" if is_for_skills(given[0]) else _OTHER_KIND
    if not roots:
        message = "no root certificate is trusted here; see `keys trust`"
        raise PublisherError("chain", message + other)
    for lower, upper in itertools.pairwise(given):
        if lower.issuer != upper.subject:
            raise PublisherError("chain", "the intermediate did not issue the certificate")
    named = [root for root in roots if root.subject == given[-1].issuer]
    if len(named) > 1:
        # While a root is replaced, there are two of one name.
        named = [root for root in named if is_issued_by(given[-1], root)]
    if not named:
        issuer = given[-1].issuer.rfc4514_string()[:120]
        message = f"no trusted root issued the certificate: issuer {issuer!r}"
        raise PublisherError("chain", message + other)
    return named[0]


def _check_registry(name: PublisherName, registry: str) -> None:
    if name.registry != registry:
        message = f"the root is that of `{registry}`, the certificate is for `{name.registry}`"
        raise PublisherError("chain", message)


def _check_path(chain: Sequence[x509.Certificate], moment: datetime) -> None:
    """Validate the path (RFC 5280, section 6) with its signatures; what it knows, we may not."""
    agnostic = verification.Criticality.AGNOSTIC
    critical = verification.Criticality.CRITICAL
    leaf = (
        verification.ExtensionPolicy.webpki_defaults_ee()
        .require_present(x509.BasicConstraints, critical, None)
        .require_present(x509.KeyUsage, critical, None)
        # Which uses is for `check_role`: the default here is that of the web.
        .require_present(x509.ExtendedKeyUsage, agnostic, None)
        .require_present(x509.SubjectAlternativeName, agnostic, None)
    )
    issuer = (
        verification.ExtensionPolicy.webpki_defaults_ca()
        .require_present(x509.BasicConstraints, critical, None)
        .require_present(x509.KeyUsage, critical, None)
        .may_be_present(x509.ExtendedKeyUsage, agnostic, None)
    )
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store([chain[-1]]))
        .time(moment)
        .max_chain_depth(CHAIN_MAX)
        .extension_policies(ca_policy=issuer, ee_policy=leaf)
        .build_client_verifier()
    )
    try:
        verifier.verify(chain[0], list(chain[1:-1]))
    except verification.VerificationError as error:
        for lower, upper in itertools.pairwise(chain):
            if not is_issued_by(lower, upper):
                message = "a certificate was not signed by the issuer that it names"
                raise PublisherError("chain", message) from error
        reason = str(error).splitlines()[0][:200]
        raise PublisherError("purpose", f"the certificates are not accepted: {reason}") from error

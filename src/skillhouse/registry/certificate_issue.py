"""Makes the certificates of publishers: a root, requests, and what is issued for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skillhouse.registry.certificates import (
    CERTIFICATE_MAX,
    DEVELOPER_DAYS_MAX,
    SIGNING_USE,
    UNREADABLE,
    PublisherName,
    Role,
    check_role,
    curve_hash,
    elliptic_key,
    publisher_name,
)
from skillhouse.registry.trust import PublisherError

DAYS = {Role.ROOT: 3_650, Role.INTERMEDIATE: 1_095, Role.DEVELOPER: 365}
"""Days of validity unless others are asked for."""
_DAYS_MAX = {Role.ROOT: 7_300, Role.INTERMEDIATE: 3_650, Role.DEVELOPER: DEVELOPER_DAYS_MAX}
_SKEW = timedelta(minutes=5)
"""Clocks differ; a certificate holds a little before it was made."""


def new_root(
    key: ec.EllipticCurvePrivateKey, registry: str, now: datetime, *, days: int = 0
) -> x509.Certificate:
    """Return a root certificate of a registry, signed with its own key."""
    name = publisher_name(registry)
    return _made(name, key.public_key(), Role.ROOT, (key, None), now, days)


def new_request(
    key: ec.EllipticCurvePrivateKey, name: PublisherName
) -> x509.CertificateSigningRequest:
    """Return a request (PKCS #10) for a certificate of that name."""
    builder = x509.CertificateSigningRequestBuilder(
        subject_name=_subject(name, Role.DEVELOPER if name.handle else Role.INTERMEDIATE)
    ).add_extension(_alternative(name), critical=False)
    return builder.sign(key, curve_hash(key.curve))


def request_pem(request: x509.CertificateSigningRequest) -> bytes:
    return request.public_bytes(Encoding.PEM)


def read_request(pem: bytes) -> tuple[x509.CertificateSigningRequest, PublisherName]:
    """Return a request and the name that it asks for; PublisherError `request` otherwise."""
    if len(pem) > CERTIFICATE_MAX:
        raise PublisherError("request", f"expected at most {CERTIFICATE_MAX} bytes of a request")
    try:
        request = x509.load_pem_x509_csr(pem)
        asked = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = asked.get_values_for_type(x509.UniformResourceIdentifier)
    except (*UNREADABLE, x509.ExtensionNotFound) as error:
        raise PublisherError("request", "expected a request for a publisher's name") from error
    elliptic_key(request)
    if not request.is_signature_valid:
        # Otherwise one could have another's public key certified.
        raise PublisherError("request", "is not signed with the key that it names")
    registry, _, handle = uri.removeprefix("skill://").partition("/publisher/")
    return request, publisher_name(registry, handle)


def issuer_name(certificate: x509.Certificate) -> PublisherName:
    """Return the registry of a root or an intermediate; PublisherError for any other."""
    is_root = certificate.issuer == certificate.subject
    return check_role(certificate, Role.ROOT if is_root else Role.INTERMEDIATE)


def issue(
    request: x509.CertificateSigningRequest,
    name: PublisherName,
    *,
    issuer: Sequence[x509.Certificate],
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int = 0,
) -> tuple[x509.Certificate, ...]:
    """Return the certificate for a request, followed by those above it up to the root's.

    Nothing of the request counts but its key: the name is what the issuer says it is.

    Args:
        name: With a handle that of a developer, without one that of an intermediate.
        issuer: The issuer's certificate first; a root, or an intermediate and what is above it.

    Raises:
        PublisherError: `issuer`, it may not issue this one.
    """
    own = issuer[0]
    is_root = own.issuer == own.subject
    above = issuer_name(own)
    role = Role.DEVELOPER if name.handle else Role.INTERMEDIATE
    if role is Role.INTERMEDIATE and not is_root:
        raise PublisherError("issuer", "an intermediate issues certificates of developers only")
    if above.registry != name.registry:
        message = f"is of the registry `{above.registry}`, the name of `{name.registry}`"
        raise PublisherError("issuer", message)
    if own.public_key() != key.public_key():
        raise PublisherError("issuer", "the key does not belong to the certificate")
    made = _made(name, elliptic_key(request), role, (key, own), now, days)
    if made.not_valid_after_utc > own.not_valid_after_utc:
        end = f"{own.not_valid_after_utc:%Y-%m-%d}"
        raise PublisherError("issuer", f"expires on {end}, before the new one: ask for fewer days")
    return (made, *(() if is_root else issuer))


def checked_days(role: Role, days: int) -> int:
    """Return how many days a certificate is valid, 0 being the usual; PublisherError `validity`."""
    days = days or DAYS[role]
    if not 1 <= days <= _DAYS_MAX[role]:
        message = f"a {role} certificate is valid for 1 to {_DAYS_MAX[role]} days, not {days}"
        raise PublisherError("validity", message)
    return days


def _made(
    name: PublisherName,
    public: ec.EllipticCurvePublicKey,
    role: Role,
    issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate | None],
    now: datetime,
    days: int,
) -> x509.Certificate:
    days = checked_days(role, days)
    key, certificate = issuer
    subject = _subject(name, role)
    identifier = x509.SubjectKeyIdentifier.from_public_key
    start = now.replace(second=0, microsecond=0) - _SKEW
    is_developer = role is Role.DEVELOPER
    length = 0 if role is Role.INTERMEDIATE else 1
    builder = (
        x509.CertificateBuilder(
            issuer_name=subject if certificate is None else certificate.subject,
            subject_name=subject,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=start,
            not_valid_after=start + timedelta(days=days),
        )
        .add_extension(
            x509.BasicConstraints(
                ca=not is_developer, path_length=None if is_developer else length
            ),
            critical=True,
        )
        .add_extension(_usage(is_developer=is_developer), critical=True)
        .add_extension(_alternative(name), critical=False)
        .add_extension(identifier(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    if is_developer:
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING, SIGNING_USE])
        builder = builder.add_extension(uses, critical=True)
    return builder.sign(key, curve_hash(key.curve))


def _subject(name: PublisherName, role: Role) -> x509.Name:
    common = name.handle or f"{name.registry} {role}"
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, name.registry[:64]),
            x509.NameAttribute(NameOID.COMMON_NAME, common[:64]),
        ]
    )


def _alternative(name: PublisherName) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name.uri)])


def _usage(*, is_developer: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=is_developer,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not is_developer,
        crl_sign=not is_developer,
        encipher_only=False,
        decipher_only=False,
    )

"""Roots, developers and signed skills of tests, valid ones and any that an attacker could make."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skillhouse.floor import Tree, read_tree, structs
from skillhouse.registry import (
    SkillIdentity,
    TrustAnchors,
    issue,
    new_request,
    new_root,
    publisher_name,
    sign_tree,
    write_bundle,
)
from skillhouse.registry.certificates import SIGNING_USE
from skillhouse.registry.signature_bundle import SignatureBundle
from tests.registry.publisher_skill import REGISTRY, make_skill

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
IDENTITY = SkillIdentity(name="pdf", version="1.2.0", repository=REGISTRY)


@dataclass(frozen=True)
class Party:
    """Somebody with a key, and the certificates up to a root: their own first."""

    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]


def make_root(registry: str = REGISTRY, *, now: datetime = NOW, days: int = 0) -> Party:
    key = ec.generate_private_key(ec.SECP384R1())
    return Party(key, (new_root(key, registry, now, days=days),))


def issued(issuer: Party, handle: str = "acme", *, now: datetime = NOW, days: int = 0) -> Party:
    """Return a developer, or an intermediate without a handle."""
    key = ec.generate_private_key(ec.SECP256R1() if handle else ec.SECP384R1())
    name = publisher_name(REGISTRY, handle)
    chain = issue(
        new_request(key, name), name, issuer=issuer.chain, key=issuer.key, now=now, days=days
    )
    return Party(key, chain)


def signed(
    directory: Path, by: Party, *, identity: SkillIdentity = IDENTITY, now: datetime = NOW
) -> SignatureBundle:
    tree = read_tree(directory)
    return sign_tree(tree, identity, key=by.key, chain=by.chain, now=now)


@dataclass(frozen=True)
class Traits:
    """What a certificate says; without changes, that of a developer as it should be."""

    uris: Sequence[str] = (f"skill://{REGISTRY}/publisher/acme",)
    start: datetime = NOW - timedelta(days=1)
    days: int = 300
    is_ca: bool = False
    path_length: int | None = None
    is_critical: bool = True
    """Of the basic constraints and the key usage."""
    usage: Iterable[str] = ("digital_signature",)
    uses: Sequence[x509.ObjectIdentifier] = (ExtendedKeyUsageOID.CODE_SIGNING, SIGNING_USE)
    without: Sequence[type[x509.ExtensionType]] = ()
    extra: Sequence[tuple[x509.ExtensionType, bool]] = ()
    subject: str = "acme"
    hash_with: Any = field(default_factory=hashes.SHA256)


INTERMEDIATE = Traits(
    uris=(f"skill://{REGISTRY}",),
    is_ca=True,
    path_length=0,
    usage=("key_cert_sign", "crl_sign"),
    uses=(),
    subject="intermediate",
)


def forged(traits: Traits, issuer: Party, key: Any = None) -> Party:
    """Return a certificate of any kind, which an issuer really signed."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    flags = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
        "key_cert_sign crl_sign encipher_only decipher_only"
    ).split()
    usage = x509.KeyUsage(**{name: name in traits.usage for name in flags})
    basic = x509.BasicConstraints(ca=traits.is_ca, path_length=traits.path_length)
    names = [x509.UniformResourceIdentifier(uri) for uri in traits.uris]
    found: list[tuple[x509.ExtensionType, bool]] = [
        (basic, traits.is_critical),
        (usage, traits.is_critical),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), False),
        *([(x509.SubjectAlternativeName(names), False)] if names else []),
        *([(x509.ExtendedKeyUsage(traits.uses), True)] if traits.uses else []),
        *traits.extra,
    ]
    builder = x509.CertificateBuilder(
        issuer_name=issuer.certificate.subject,
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, traits.subject)]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=traits.start,
        not_valid_after=traits.start + timedelta(days=traits.days),
    )
    for value, is_critical in found:
        if type(value) not in traits.without:
            builder = builder.add_extension(value, critical=is_critical)
    made = builder.sign(issuer.key, traits.hash_with)
    above = issuer.chain if issuer.certificate.issuer != issuer.certificate.subject else ()
    return Party(key, (made, *above))


class TimestampAuthority:
    """A timestamp authority of tests: OpenSSL's, with keys of its own."""

    def __init__(self, place: Path, *, start: datetime = NOW - timedelta(days=400)) -> None:
        self._place = place
        place.mkdir()
        self.root = self._self_signed(start)
        stamping = Traits(
            uris=(),
            start=start,
            days=3_000,
            uses=(ExtendedKeyUsageOID.TIME_STAMPING,),
            subject="stamps",
        )
        own = forged(stamping, self.root)
        self.chain = (own.certificate, self.root.certificate)
        """Of what stamps, as a trusted root lists it."""
        self._write("root.pem", self.root.certificate.public_bytes(Encoding.PEM))
        self._write("own.pem", own.certificate.public_bytes(Encoding.PEM))
        plain = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._write("own.key", plain)
        self._write("serial", b"01\n")
        self._write(
            "ts.cnf",
            b"[tsa]\ndefault_tsa = one\n[one]\nserial = serial\ndigests = sha256\n"
            b"default_policy = 1.2.3.4\nsigner_digest = sha256\nordering = yes\n"
            b"ess_cert_id_alg = sha256\n",
        )

    def answer(self, request: bytes) -> bytes:
        """Return the response to a request, of the present time."""
        self._write("request.tsq", request)
        subprocess.run(
            "openssl ts -reply -config ts.cnf -section one -queryfile request.tsq "
            "-signer own.pem -inkey own.key -chain root.pem -out response.tsr".split(),
            cwd=self._place,
            check=True,
            capture_output=True,
        )
        return (self._place / "response.tsr").read_bytes()

    def _self_signed(self, start: datetime) -> Party:
        key = ec.generate_private_key(ec.SECP384R1())
        traits = Traits(
            uris=(), start=start, days=3_650, is_ca=True, usage=("key_cert_sign",), uses=(),
            subject="stamp root",
        )  # fmt: skip
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, traits.subject)])
        itself = x509.CertificateBuilder(
            issuer_name=name,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=1,
            not_valid_before=start,
            not_valid_after=start + timedelta(days=1),
        ).sign(key, hashes.SHA384())
        return forged(traits, Party(key, (itself,)), key)

    def _write(self, name: str, data: bytes) -> None:
        (self._place / name).write_bytes(data)


@dataclass(frozen=True)
class World:
    """A root, a developer below it, and a skill that the developer signed."""

    root: Party
    developer: Party
    directory: Path

    @property
    def anchors(self) -> TrustAnchors:
        return TrustAnchors(roots=(self.root.certificate,))

    @property
    def tree(self) -> Tree:
        return read_tree(self.directory)

    def bundle(self, by: Party | None = None, **changes: Any) -> SignatureBundle:
        """Return the developer's signature, or another's, over the skill as it is."""
        return signed(self.directory, by or self.developer, **changes)

    def signature(self, by: Party | None = None, **changes: Any) -> bytes:
        return write_bundle(self.bundle(by, **changes))


def make_world(place: Path) -> World:
    root = make_root()
    return World(root, issued(root), make_skill(place))


def with_payload(bundle: SignatureBundle, payload: bytes, key: Any) -> SignatureBundle:
    """Return a bundle over another payload, really signed."""
    changed = structs.replace(bundle, payload=payload)
    return structs.replace(changed, signature=key.sign(changed.signed, ec.ECDSA(hashes.SHA256())))

"""Attacks by certificates: whose they are, until when, for what, and how they are written."""

from __future__ import annotations

from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from skillhouse.floor import structs
from skillhouse.registry import TrustAnchors, write_bundle
from skillhouse.registry.certificates import SIGNING_USE
from tests.attacks.signed_case import (
    Case,
    attack,
    attacks,
    by,
    by_traits,
    with_chain,
    with_other_key,
)
from tests.registry.pki import INTERMEDIATE, NOW, Party, Traits, forged, issued, make_root
from tests.registry.publisher_skill import REGISTRY

# Whose certificate.


@attack("chain", naively=False)
def _wrong_root_of_the_same_name(case: Case) -> None:
    case.signature = case.world.signature(issued(make_root()))


@attack("purpose", naively=False)
def _root_brought_along(case: Case) -> None:
    root = make_root()
    party = issued(root)
    case.signature = case.world.signature(Party(party.key, (*party.chain, *root.chain)))


@attack("purpose", naively=False)
def _self_signed(case: Case) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    first = Party(key, case.world.developer.chain)
    by(case, Traits(), first, key)


@attack("chain", naively=True)
def _certificate_for_another_registry(case: Case) -> None:
    by(case, Traits(uris=("skill://other.example.com/publisher/acme",)))


@attack("chain", naively=False)
def _intermediate_that_did_not_issue(case: Case) -> None:
    other = issued(case.world.root, "")
    developer = case.world.developer
    party = Party(developer.key, (*developer.chain, *other.chain))
    case.signature = case.world.signature(party)


@attack("chain", naively=False)
def _nothing_is_trusted(case: Case) -> None:
    case.anchors = TrustAnchors(roots=(make_root("other.example.com").certificate,))


@attack("validity", naively=True)
def _expired_certificate(case: Case) -> None:
    case.now = NOW + timedelta(days=366)


@attack("validity", naively=True)
def _not_yet_valid_certificate(case: Case) -> None:
    by(case, Traits(start=NOW + timedelta(days=1)))


@attack("validity", naively=True)
def _expired_intermediate(case: Case) -> None:
    middle = forged(structs.replace(INTERMEDIATE, days=2), case.world.root)
    case.signature = case.world.signature(forged(Traits(), middle))
    case.now = NOW + timedelta(days=3)


@attack("validity", naively=True)
def _expired_root(case: Case) -> None:
    root = make_root(now=NOW - timedelta(days=3), days=2)
    case.anchors = TrustAnchors(roots=(root.certificate,))
    by(case, Traits(), root)


# What a certificate may be used for.


@attack("purpose", naively=True)
def _any_usage(case: Case) -> None:
    uses = (
        ExtendedKeyUsageOID.CODE_SIGNING,
        SIGNING_USE,
        ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    )
    by(case, Traits(uses=uses))


@attack("purpose", naively=True)
def _developer_as_issuer(case: Case) -> None:
    party = forged(Traits(), case.world.developer)
    case.signature = case.world.signature(Party(party.key, party.chain[:2]))


@attack("purpose", naively=True)
def _intermediate_without_ca(case: Case) -> None:
    middle = forged(structs.replace(INTERMEDIATE, is_ca=False, path_length=None), case.world.root)
    case.signature = case.world.signature(forged(Traits(), middle))


@attack("purpose", naively=True)
def _intermediate_without_path_length(case: Case) -> None:
    middle = forged(structs.replace(INTERMEDIATE, path_length=None), case.world.root)
    case.signature = case.world.signature(forged(Traits(), middle))


@attack("purpose", naively=True)
def _intermediate_that_may_not_issue(case: Case) -> None:
    middle = forged(structs.replace(INTERMEDIATE, usage=("crl_sign",)), case.world.root)
    case.signature = case.world.signature(forged(Traits(), middle))


@attack("certificate", naively=True)
def _path_too_long(case: Case) -> None:
    upper = forged(INTERMEDIATE, case.world.root)
    lower = forged(structs.replace(INTERMEDIATE, subject="second"), upper)
    leaf = forged(Traits(), lower)
    case.signature = case.world.signature(Party(leaf.key, leaf.chain[:1]))
    with_chain(case, [one.public_bytes(Encoding.DER) for one in leaf.chain])


@attack("purpose", naively=True)
def _unknown_critical_extension(case: Case) -> None:
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\0")
    by(case, Traits(extra=((unknown, True),)))


@attack("purpose", naively=True)
def _two_publishers_in_one(case: Case) -> None:
    names = tuple(f"skill://{REGISTRY}/publisher/{name}" for name in ("acme", "globex"))
    by(case, Traits(uris=names))


# Algorithms.


@attack("algorithm", naively=False)
def _rsa_key(case: Case) -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    with_other_key(case, key)


@attack("algorithm", naively=True)
def _unusual_hash_in_the_certificate(case: Case) -> None:
    by(case, Traits(hash_with=hashes.SHA224()))


@attack("signature", naively=False)
def _another_hash_in_the_signature(case: Case) -> None:
    bundle = case.world.bundle()
    key = case.world.developer.key
    signature = key.sign(bundle.signed, ec.ECDSA(hashes.SHA512()))
    case.signature = write_bundle(structs.replace(bundle, signature=signature))


# How a certificate is written.


@attack("certificate", naively=False)
def _huge_certificate(case: Case) -> None:
    comment = x509.UnrecognizedExtension(
        x509.ObjectIdentifier("1.3.6.1.4.1.55555.2"), b"\x04\x82\x40\x00" + b"x" * 16_384
    )
    party = forged(Traits(extra=((comment, False),)), case.world.root)
    with_chain(case, [party.certificate.public_bytes(Encoding.DER)])


@attack("certificate", naively=False)
def _trailing_bytes_in_the_certificate(case: Case) -> None:
    der = case.world.developer.certificate.public_bytes(Encoding.DER)
    with_chain(case, [der + b"\0"])


by_traits(
    "purpose",
    naively=True,
    web_server_certificate=Traits(uses=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    code_signing_alone=Traits(uses=(ExtendedKeyUsageOID.CODE_SIGNING,)),
    no_extended_usage=Traits(uses=()),
    key_usage_without_signatures=Traits(usage=("key_agreement",)),
    no_key_usage=Traits(without=(x509.KeyUsage,)),
    no_basic_constraints=Traits(without=(x509.BasicConstraints,)),
    constraints_that_are_not_critical=Traits(is_critical=False),
    issuer_that_signs_skills=Traits(is_ca=True, usage=("digital_signature", "key_cert_sign")),
    no_publisher=Traits(uris=()),
    publisher_with_an_odd_name=Traits(uris=(f"skill://{REGISTRY}/publisher/Acme--1",)),
    certificate_for_years=Traits(days=1_000),
)
attacks(
    "algorithm",
    naively=False,
    ed25519_key=lambda case: with_other_key(case, ed25519.Ed25519PrivateKey.generate()),
    small_curve=lambda case: with_other_key(case, ec.generate_private_key(ec.SECP224R1())),
)
attacks(
    "certificate",
    naively=False,
    no_certificates=lambda case: with_chain(case, []),
    a_hundred_certificates=lambda case: with_chain(
        case, [case.world.developer.certificate.public_bytes(Encoding.DER)] * 100
    ),
)

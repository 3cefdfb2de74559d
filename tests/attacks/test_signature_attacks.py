"""Attacks on signatures (reference on registries, "Attack test list"): each is refused by its step.

Beside ours a naive verifier tries each: it follows issuers, checks the signature and compares the
files that are listed, as `model_signing` 1.1.1 does by default. What it accepts is marked.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from skillhouse.registry import (
    PublisherError,
    SkillIdentity,
    TrustAnchors,
    read_signature,
    verify_signature,
    write_bundle,
)
from skillhouse.registry.certificates import SIGNING_USE
from skillhouse.registry.signatures import STEPS
from skillhouse.registry.trust import SIGNATURE_MAX
from tests.registry.pki import (
    IDENTITY,
    INTERMEDIATE,
    NOW,
    REGISTRY,
    Party,
    Traits,
    World,
    forged,
    issued,
    make_root,
    make_skill,
    make_world,
    signed,
    with_payload,
)

pytestmark = [pytest.mark.req("S002-112")]


@dataclass
class Case:
    """What an attacker hands over; without changes it is accepted."""

    world: World
    signature: bytes
    expected: SkillIdentity = IDENTITY
    anchors: TrustAnchors | None = None
    now: Any = NOW

    @property
    def directory(self) -> Path:
        return self.world.directory


def naive(case: Case) -> bool:
    """Accept as verifiers do that stop at the signature and the files that it lists."""
    try:
        value = json.loads(case.signature)
        material = value["verificationMaterial"]["x509CertificateChain"]["certificates"]
        chain = [
            x509.load_der_x509_certificate(base64.b64decode(one["rawBytes"])) for one in material
        ]
        roots = (case.anchors or case.world.anchors).roots
        for lower, upper in zip(chain, [*chain[1:], roots[0]], strict=True):
            lower.verify_directly_issued_by(upper)
        envelope = value["dsseEnvelope"]
        payload = base64.b64decode(envelope["payload"])
        kind = envelope["payloadType"].encode()
        pae = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        key = chain[0].public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        sig = base64.b64decode(envelope["signatures"][0]["sig"])
        key.verify(sig, pae, ec.ECDSA(hashes.SHA256()))
        return all(
            hashlib.sha256((case.directory / one["name"]).read_bytes()).hexdigest() == one["digest"]
            for one in json.loads(payload)["predicate"]["resources"]
        )
    except (InvalidSignature, ValueError, TypeError, OSError, AssertionError, LookupError):
        return False


Attack = Callable[[Case], None]
ATTACKS: dict[str, tuple[str, bool, Attack]] = {}
"""Name → the step that refuses, whether the naive verifier accepts, what the attacker does."""


def attack(step: str, *, naively: bool = False) -> Callable[[Attack], Attack]:
    def add(function: Attack) -> Attack:
        ATTACKS[function.__name__.strip("_")] = (step, naively, function)
        return function

    return add


def by(case: Case, traits: Traits, issuer: Party | None = None, key: Any = None) -> None:
    """Sign with a certificate of other traits."""
    party = forged(traits, issuer or case.world.root, key)
    case.signature = case.world.signature(party)


def edited(case: Case, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the file of the signature, which is not signed itself."""
    value = json.loads(case.signature)
    change(value)
    case.signature = json.dumps(value).encode()


def restated(case: Case, change: Callable[[dict[str, Any]], object]) -> None:
    """Sign another statement, with the developer's own key."""
    bundle = case.world.bundle()
    statement = json.loads(bundle.payload)
    change(statement)
    payload = json.dumps(statement).encode()
    case.signature = write_bundle(with_payload(bundle, payload, case.world.developer.key))


# The files.


@attack("files", naively=False)
def _changed_file(case: Case) -> None:
    (case.directory / "SKILL.md").write_text("other")


@attack("files", naively=True)
def _added_file(case: Case) -> None:
    (case.directory / "scripts" / "more.py").write_text("import os")


@attack("files", naively=True)
def _added_file_in_a_git_directory(case: Case) -> None:
    (case.directory / ".git").mkdir()
    (case.directory / ".git" / "config").write_text("[core]")


@attack("files", naively=False)
def _removed_file(case: Case) -> None:
    (case.directory / "scripts" / "run.py").unlink()


@attack("files", naively=False)
def _renamed_file(case: Case) -> None:
    (case.directory / "scripts" / "run.py").rename(case.directory / "scripts" / "walk.py")


@attack("files", naively=True)
def _executable_flag_set(case: Case) -> None:
    (case.directory / "SKILL.md").chmod(0o755)


@attack("files", naively=True)
def _executable_flag_cleared(case: Case) -> None:
    (case.directory / "scripts" / "run.py").chmod(0o644)


@attack("files", naively=True)
def _a_second_signature_file_deeper(case: Case) -> None:
    (case.directory / "scripts" / "skill.sig").write_text("{}")


# Which skill.


@attack("identity", naively=False)
def _signature_of_another_skill(case: Case) -> None:
    other = make_skill(case.directory.parent / "other", "csv")
    identity = dataclasses.replace(IDENTITY, name="csv")
    case.signature = write_bundle(signed(other, case.world.developer, identity=identity))


@attack("identity", naively=True)
def _signature_of_another_version(case: Case) -> None:
    identity = dataclasses.replace(IDENTITY, version="1.1.0")
    case.signature = case.world.signature(identity=identity)


@attack("identity", naively=True)
def _signature_for_another_repository(case: Case) -> None:
    case.expected = dataclasses.replace(IDENTITY, repository="other.example.com")


@attack("identity", naively=True)
def _signed_for_a_repository_that_the_key_is_not_of(case: Case) -> None:
    identity = dataclasses.replace(IDENTITY, repository="other.example.com")
    case.signature = case.world.signature(identity=identity)
    case.expected = dataclasses.replace(IDENTITY, repository="")


@attack("identity", naively=True)
def _renamed_skill(case: Case) -> None:
    case.expected = dataclasses.replace(IDENTITY, name="pdf-2")


@attack("identity", naively=True)
def _signed_in_the_future(case: Case) -> None:
    case.signature = case.world.signature(now=NOW + timedelta(hours=1))


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
    middle = forged(dataclasses.replace(INTERMEDIATE, days=2), case.world.root)
    case.signature = case.world.signature(forged(Traits(), middle))
    case.now = NOW + timedelta(days=3)


@attack("validity", naively=True)
def _expired_root(case: Case) -> None:
    root = make_root(now=NOW - timedelta(days=3), days=2)
    case.anchors = TrustAnchors(roots=(root.certificate,))
    by(case, Traits(), root)


# What a certificate may be used for.


@attack("purpose", naively=True)
def _web_server_certificate(case: Case) -> None:
    by(case, Traits(uses=(ExtendedKeyUsageOID.SERVER_AUTH,)))


@attack("purpose", naively=True)
def _code_signing_alone(case: Case) -> None:
    by(case, Traits(uses=(ExtendedKeyUsageOID.CODE_SIGNING,)))


@attack("purpose", naively=True)
def _any_usage(case: Case) -> None:
    uses = (
        ExtendedKeyUsageOID.CODE_SIGNING,
        SIGNING_USE,
        ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    )
    by(case, Traits(uses=uses))


@attack("purpose", naively=True)
def _no_extended_usage(case: Case) -> None:
    by(case, Traits(uses=()))


@attack("purpose", naively=True)
def _key_usage_without_signatures(case: Case) -> None:
    by(case, Traits(usage=("key_agreement",)))


@attack("purpose", naively=True)
def _no_key_usage(case: Case) -> None:
    by(case, Traits(without=(x509.KeyUsage,)))


@attack("purpose", naively=True)
def _no_basic_constraints(case: Case) -> None:
    by(case, Traits(without=(x509.BasicConstraints,)))


@attack("purpose", naively=True)
def _constraints_that_are_not_critical(case: Case) -> None:
    by(case, Traits(is_critical=False))


@attack("purpose", naively=True)
def _issuer_that_signs_skills(case: Case) -> None:
    by(case, Traits(is_ca=True, usage=("digital_signature", "key_cert_sign")))


@attack("purpose", naively=True)
def _developer_as_issuer(case: Case) -> None:
    party = forged(Traits(), case.world.developer)
    case.signature = case.world.signature(Party(party.key, party.chain[:2]))


@attack("purpose", naively=True)
def _intermediate_without_ca(case: Case) -> None:
    middle = forged(
        dataclasses.replace(INTERMEDIATE, is_ca=False, path_length=None), case.world.root
    )
    case.signature = case.world.signature(forged(Traits(), middle))


@attack("purpose", naively=True)
def _intermediate_without_path_length(case: Case) -> None:
    middle = forged(dataclasses.replace(INTERMEDIATE, path_length=None), case.world.root)
    case.signature = case.world.signature(forged(Traits(), middle))


@attack("purpose", naively=True)
def _intermediate_that_may_not_issue(case: Case) -> None:
    middle = forged(dataclasses.replace(INTERMEDIATE, usage=("crl_sign",)), case.world.root)
    case.signature = case.world.signature(forged(Traits(), middle))


@attack("certificate", naively=True)
def _path_too_long(case: Case) -> None:
    upper = forged(INTERMEDIATE, case.world.root)
    lower = forged(dataclasses.replace(INTERMEDIATE, subject="second"), upper)
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


@attack("purpose", naively=True)
def _no_publisher(case: Case) -> None:
    by(case, Traits(uris=()))


@attack("purpose", naively=True)
def _publisher_with_an_odd_name(case: Case) -> None:
    by(case, Traits(uris=(f"skill://{REGISTRY}/publisher/Acme--1",)))


@attack("purpose", naively=True)
def _certificate_for_years(case: Case) -> None:
    by(case, Traits(days=1_000))


# Algorithms.


@attack("algorithm", naively=False)
def _rsa_key(case: Case) -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    with_other_key(case, key)


@attack("algorithm", naively=False)
def _ed25519_key(case: Case) -> None:
    with_other_key(case, ed25519.Ed25519PrivateKey.generate())


@attack("algorithm", naively=False)
def _small_curve(case: Case) -> None:
    with_other_key(case, ec.generate_private_key(ec.SECP224R1()))


@attack("algorithm", naively=True)
def _unusual_hash_in_the_certificate(case: Case) -> None:
    by(case, Traits(hash_with=hashes.SHA224()))


@attack("signature", naively=False)
def _another_hash_in_the_signature(case: Case) -> None:
    bundle = case.world.bundle()
    key = case.world.developer.key
    signature = key.sign(bundle.signed, ec.ECDSA(hashes.SHA512()))
    case.signature = write_bundle(dataclasses.replace(bundle, signature=signature))


def with_other_key(case: Case, key: Any) -> None:
    """Put a certificate for another kind of key in place of the developer's."""
    party = forged(Traits(), case.world.root, key)
    der = base64.b64encode(party.certificate.public_bytes(Encoding.DER)).decode()
    edited(
        case,
        lambda value: value["verificationMaterial"]["x509CertificateChain"].update(
            certificates=[{"rawBytes": der}]
        ),
    )


# The signature and its file.


@attack("signature", naively=False)
def _payload_changed_after_signing(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        payload = base64.b64decode(value["dsseEnvelope"]["payload"])
        payload = payload.replace(b"acme", b"evil").replace(b"1.2.0", b"1.3.0")
        value["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()

    edited(case, change)


@attack("signature", naively=False)
def _certificate_of_another_developer(case: Case) -> None:
    with_other_key(case, ec.generate_private_key(ec.SECP256R1()))


@attack("signature", naively=False)
def _empty_signature(case: Case) -> None:
    edited(case, lambda value: value["dsseEnvelope"]["signatures"][0].update(sig=""))


@attack("bundle", naively=True)
def _two_signatures(case: Case) -> None:
    edited(case, lambda v: v["dsseEnvelope"]["signatures"].append({"sig": "", "keyid": ""}))


@attack("bundle", naively=False)
def _no_signatures(case: Case) -> None:
    edited(case, lambda value: value["dsseEnvelope"]["signatures"].clear())


@attack("bundle", naively=True)
def _duplicate_keys(case: Case) -> None:
    case.signature = case.signature.replace(b'{"mediaType"', b'{"mediaType":"x","mediaType"', 1)


@attack("bundle", naively=False)
def _trailing_data(case: Case) -> None:
    case.signature += b'{"mediaType":1}'


@attack("bundle", naively=True)
def _unknown_key(case: Case) -> None:
    edited(case, lambda value: value.update(more=1))


@attack("bundle", naively=True)
def _algorithm_in_the_envelope(case: Case) -> None:
    edited(case, lambda value: value["dsseEnvelope"]["signatures"][0].update(alg="none"))


@attack("bundle", naively=True)
def _log_entry_that_cannot_be_checked(case: Case) -> None:
    edited(case, lambda v: v["verificationMaterial"].update(tlogEntries=[{"logIndex": "1"}]))


@attack("bundle", naively=False)
def _public_key_instead_of_a_certificate(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        value["verificationMaterial"] = {"publicKey": {"hint": ""}}

    edited(case, change)


@attack("bundle", naively=False)
def _another_payload_type(case: Case) -> None:
    edited(case, lambda value: value["dsseEnvelope"].update(payloadType="text/plain"))


@attack("bundle", naively=True)
def _another_media_type(case: Case) -> None:
    edited(case, lambda value: value.update(mediaType="application/json"))


@attack("bundle", naively=True)
def _base64_in_two_spellings(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        # Two bits of the last digit but one say nothing.
        sig = value["dsseEnvelope"]["signatures"][0]["sig"]
        digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        kept = sig.rstrip("=")
        padding = sig[len(kept) :]
        if padding:
            last = digits[digits.index(kept[-1]) + 1]
            value["dsseEnvelope"]["signatures"][0]["sig"] = kept[:-1] + last + padding

    while not json.loads(case.signature)["dsseEnvelope"]["signatures"][0]["sig"].endswith("="):
        case.signature = case.world.signature()
    edited(case, change)


@attack("size", naively=True)
def _oversize_file(case: Case) -> None:
    case.signature += b" " * SIGNATURE_MAX


@attack("bundle", naively=False)
def _deep_nesting(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        deep: Any = []
        for _ in range(100):
            deep = [deep]
        value["verificationMaterial"]["x509CertificateChain"] = deep

    edited(case, change)


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


@attack("certificate", naively=False)
def _no_certificates(case: Case) -> None:
    with_chain(case, [])


@attack("certificate", naively=False)
def _a_hundred_certificates(case: Case) -> None:
    with_chain(case, [case.world.developer.certificate.public_bytes(Encoding.DER)] * 100)


def with_chain(case: Case, chain: list[bytes]) -> None:
    found = [{"rawBytes": base64.b64encode(one).decode()} for one in chain]
    edited(
        case,
        lambda value: value["verificationMaterial"]["x509CertificateChain"].update(
            certificates=found
        ),
    )


# What is signed, by a developer who cheats.


@attack("statement", naively=True)
def _more_paths_left_out(case: Case) -> None:
    def change(value: dict[str, Any]) -> None:
        value["predicate"]["serialization"]["ignore_paths"].append("scripts")
        value["predicate"]["resources"].pop()

    restated(case, change)


@attack("statement", naively=True)
def _file_without_mode(case: Case) -> None:
    restated(case, lambda value: value["predicate"]["skill"]["modes"].popitem())


@attack("statement", naively=True)
def _without_identity(case: Case) -> None:
    restated(case, lambda value: value["predicate"].pop("skill"))


@attack("statement", naively=True)
def _subject_of_another_name(case: Case) -> None:
    restated(case, lambda value: value["subject"][0].update(name="csv"))


@attack("statement", naively=True)
def _digest_that_is_not_of_the_files(case: Case) -> None:
    restated(case, lambda v: v["predicate"]["skill"].update(tree_digest="skilltree1:" + "0" * 64))


@attack("statement", naively=True)
def _file_listed_twice(case: Case) -> None:
    restated(
        case,
        lambda value: value["predicate"]["resources"].append(value["predicate"]["resources"][0]),
    )


@attack("statement", naively=True)
def _duplicate_keys_in_the_statement(case: Case) -> None:
    bundle = case.world.bundle()
    payload = bundle.payload.replace(b'"subject":', b'"subject":[],"subject":', 1)
    case.signature = write_bundle(with_payload(bundle, payload, case.world.developer.key))


@attack("statement", naively=True)
def _another_kind_of_statement(case: Case) -> None:
    restated(case, lambda value: value.update(predicateType="https://slsa.dev/provenance/v1"))


@attack("statement", naively=True)
def _weaker_hash_of_files(case: Case) -> None:
    restated(case, lambda v: v["predicate"]["serialization"].update(hash_type="sha1"))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    world = make_world(tmp_path)
    return Case(world, world.signature())


def verified(case: Case) -> str:
    anchors = case.anchors or case.world.anchors
    found = verify_signature(
        case.world.tree, case.signature, case.expected, anchors=anchors, now=case.now
    )
    return found.handle


def test_without_an_attack_both_accept(case: Case) -> None:
    assert verified(case) == "acme"
    assert naive(case)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_by_its_step(case: Case, name: str) -> None:
    step, naively, change = ATTACKS[name]
    change(case)
    assert naive(case) is naively
    with pytest.raises(PublisherError) as caught:
        verified(case)
    assert (caught.value.step, str(caught.value).partition(":")[0]) == (step, step), caught.value


def test_each_step_of_the_published_order_refuses_something() -> None:
    used = {step for step, _, _ in ATTACKS.values()}
    # Those two are tried in tests/registry/test_timestamps.py and test_revocations.py.
    assert {*STEPS} ^ used == {"timestamp", "revocation"}


@pytest.mark.slow
def test_any_byte_of_the_signature_file_counts(case: Case) -> None:
    data = case.signature
    for position in range(0, len(data), 7):
        for flip in (0x01, 0x20):
            case.signature = data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]
            if same(case.signature, data):
                continue
            with pytest.raises(PublisherError):
                verified(case)


def same(one: bytes, other: bytes) -> bool:
    """Whether two files say the same: white space, and the key id, which nothing reads."""
    try:
        values = [json.loads(text) for text in (one, other)]
    except ValueError:
        return False
    for value in values:
        for signature in value.get("dsseEnvelope", {}).get("signatures", []):
            if isinstance(signature, dict):
                signature.pop("keyid", None)
    return bool(values[0] == values[1])


def test_a_linked_signature_is_no_signature(case: Case, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(case.signature)
    os.symlink(elsewhere, case.directory / "skill.sig")
    with pytest.raises(PublisherError, match=r"^bundle: `skill\.sig` is not read"):
        read_signature(case.directory)

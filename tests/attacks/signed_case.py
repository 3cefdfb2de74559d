"""A signed skill that an attacker hands over, a naive verifier, and the list of attacks.

The naive one follows issuers, checks the signature and compares the files that are listed, as
`model_signing` 1.1.1 does by default. What it accepts is marked.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from skillhouse.registry import SkillIdentity, TrustAnchors, verify_signature, write_bundle
from tests.registry.pki import IDENTITY, NOW, Party, Traits, World, forged, with_payload


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


Attack = Callable[[Case], object]
ATTACKS: dict[str, tuple[str, bool, Attack]] = {}
"""Name → the step that refuses, whether the naive verifier accepts, what the attacker does."""


def attack(step: str, *, naively: bool = False) -> Callable[[Attack], Attack]:
    def add(function: Attack) -> Attack:
        ATTACKS[function.__name__.strip("_")] = (step, naively, function)
        return function

    return add


def attacks(step: str, *, naively: bool, **rows: Attack) -> None:
    """Add attacks of one statement each, by their names."""
    ATTACKS.update({name: (step, naively, change) for name, change in rows.items()})


def by_traits(step: str, *, naively: bool, **rows: Traits) -> None:
    """Add attacks with a certificate of other traits, by their names."""
    attacks(step, naively=naively, **{n: partial(by, traits=t) for n, t in rows.items()})


def by_edited(step: str, *, naively: bool, **rows: Callable[[dict[str, Any]], object]) -> None:
    """Add attacks that change the file of the signature, by their names."""
    attacks(step, naively=naively, **{n: partial(edited, change=c) for n, c in rows.items()})


def by_restated(step: str, *, naively: bool, **rows: Callable[[dict[str, Any]], object]) -> None:
    """Add attacks that sign another statement, by their names."""
    attacks(step, naively=naively, **{n: partial(restated, change=c) for n, c in rows.items()})


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


def with_chain(case: Case, chain: list[bytes]) -> None:
    found = [{"rawBytes": base64.b64encode(one).decode()} for one in chain]
    edited(
        case,
        lambda value: value["verificationMaterial"]["x509CertificateChain"].update(
            certificates=found
        ),
    )


def verified(case: Case) -> str:
    anchors = case.anchors or case.world.anchors
    found = verify_signature(
        case.world.tree, case.signature, case.expected, anchors=anchors, now=case.now
    )
    return found.handle

"""Attacks on signatures (reference on registries, "Attack test list"): each is refused by its step.

A naive verifier tries each beside ours (`signed_case`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skillhouse.registry import PublisherError, read_signature
from skillhouse.registry.signatures import STEPS
from tests.attacks import certificate_attacks, signature_file_attacks, signed_statement_attacks
from tests.attacks.signed_case import ATTACKS, Case, naive, verified
from tests.registry.pki import make_world

WRITTEN_IN = (certificate_attacks, signature_file_attacks, signed_statement_attacks)
"""What puts its attacks into `ATTACKS`."""

pytestmark = [pytest.mark.req("S002-112")]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    world = make_world(tmp_path)
    return Case(world, world.signature())


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
    # Those two are tried in tests/registry/test_signatures.py and test_revocations.py.
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

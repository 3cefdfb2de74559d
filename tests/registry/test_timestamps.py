"""Tests of timestamps, with an authority of our own that OpenSSL is."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skillhouse.floor import structs
from skillhouse.registry import (
    PublisherError,
    TrustAnchors,
    next_list,
    revoked_certificate,
    sign_list,
    timestamp_request,
    verify_signature,
    write_bundle,
)
from skillhouse.registry.revocations import read_list
from skillhouse.registry.signatures import TIMESTAMP_MAX, check_timestamp, confirmed_time
from tests.registry.pki import IDENTITY, TimestampAuthority, World, issued, make_root
from tests.registry.publisher_skill import make_skill

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not here")

PRESENT = datetime.now(UTC)
"""The authority's clock is that of the machine."""


@pytest.fixture
def authority(tmp_path: Path) -> TimestampAuthority:
    return TimestampAuthority(tmp_path / "authority")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A developer whose certificate is valid for two days from now."""
    root = make_root(now=PRESENT)
    return World(root, issued(root, now=PRESENT, days=2), make_skill(tmp_path))


def stamped(world: World, authority: TimestampAuthority) -> bytes:
    bundle = world.bundle(now=PRESENT)
    answer = authority.answer(timestamp_request(bundle.signature))
    return write_bundle(structs.replace(bundle, timestamps=(answer,)))


def trusting(world: World, authority: TimestampAuthority | None) -> TrustAnchors:
    roots = () if authority is None else (authority.root.certificate,)
    return TrustAnchors(roots=world.anchors.roots, timestamp_roots=roots)


def step_of(world: World, signature: bytes, anchors: TrustAnchors, days: int) -> str:
    with pytest.raises(PublisherError) as caught:
        verify_signature(
            world.tree,
            signature,
            IDENTITY,
            anchors=anchors,
            # Of this moment: the authority's is, and all tests were read long before.
            now=datetime.now(UTC) + timedelta(days=days),
        )
    return str(caught.value)


def test_a_release_outlives_its_certificate_with_a_timestamp(
    world: World, authority: TimestampAuthority
) -> None:
    signature = stamped(world, authority)
    found = verify_signature(
        world.tree,
        signature,
        IDENTITY,
        anchors=trusting(world, authority),
        now=PRESENT + timedelta(days=300),
    )
    assert found.is_time_trusted
    assert abs(datetime.fromisoformat(found.signed_at) - PRESENT) < timedelta(hours=1)


def test_without_a_timestamp_it_does_not(world: World, authority: TimestampAuthority) -> None:
    signature = world.signature(now=PRESENT)
    message = step_of(world, signature, trusting(world, authority), 300)
    assert message.startswith("validity: the developer certificate expired on ")


def test_an_authority_that_is_not_trusted_confirms_nothing(
    world: World, authority: TimestampAuthority, tmp_path: Path
) -> None:
    signature = stamped(world, authority)
    message = step_of(world, signature, trusting(world, None), 300)
    assert message.startswith("validity: ")
    assert "no timestamp authority is trusted here" in message
    other = TimestampAuthority(tmp_path / "other")
    message = step_of(world, signature, trusting(world, other), 300)
    assert message.startswith("validity: ")
    assert "timestamp: is not accepted" in message


def test_a_timestamp_of_another_signature_confirms_nothing(
    world: World, authority: TimestampAuthority
) -> None:
    answer = authority.answer(timestamp_request(world.bundle(now=PRESENT).signature))
    bundle = structs.replace(world.bundle(now=PRESENT), timestamps=(answer,))
    message = step_of(world, write_bundle(bundle), trusting(world, authority), 300)
    assert message.startswith("validity: ")
    assert "is about another signature" in message


def test_a_key_stolen_after_its_certificate_expired_signs_nothing_new(
    tmp_path: Path, authority: TimestampAuthority
) -> None:
    root = make_root(now=PRESENT - timedelta(days=100))
    developer = issued(root, now=PRESENT - timedelta(days=100), days=50)
    world = World(root, developer, make_skill(tmp_path))
    # The thief backdates the statement; the authority does not.
    bundle = world.bundle(now=PRESENT - timedelta(days=90))
    answer = authority.answer(timestamp_request(bundle.signature))
    signature = write_bundle(structs.replace(bundle, timestamps=(answer,)))
    message = step_of(world, signature, trusting(world, authority), 0)
    assert message.startswith("validity: the developer certificate expired on ")


def test_what_was_signed_before_the_key_was_lost_stays_valid(
    world: World, authority: TimestampAuthority
) -> None:
    root = world.root
    signature = stamped(world, authority)
    for since, is_accepted in ((timedelta(days=1), True), (-timedelta(days=1), False)):
        entry = revoked_certificate(
            world.developer.certificate, root.certificate, since=PRESENT + since
        )
        content = next_list(None, [entry], PRESENT)
        data = sign_list(content, key=root.key, issuer=root.chain)
        lists = (read_list(data, root.chain, PRESENT),)
        trusted = structs.replace(trusting(world, authority), revocations=lists)
        if is_accepted:
            now = PRESENT + timedelta(days=2)
            verify_signature(world.tree, signature, IDENTITY, anchors=trusted, now=now)
            # The signer's own word for the time is worth nothing.
            unstamped = world.signature(now=PRESENT)
            assert step_of(world, unstamped, trusted, 0).startswith("revocation: ")
        else:
            assert step_of(world, signature, trusted, 0).startswith("revocation: ")


def test_a_time_to_come_is_refused(world: World, authority: TimestampAuthority) -> None:
    message = step_of(world, stamped(world, authority), trusting(world, authority), -1)
    assert message.startswith("timestamp: confirms a time to come")


@pytest.mark.parametrize("data", [b"", b"0", b"0\x82\xff\xff", b"x" * (TIMESTAMP_MAX + 1)])
def test_what_is_no_timestamp_is_refused(authority: TimestampAuthority, data: bytes) -> None:
    with pytest.raises(PublisherError, match=r"^timestamp: "):
        check_timestamp(data, b"signature", [authority.root.certificate])


def test_any_byte_of_a_timestamp_counts(world: World, authority: TimestampAuthority) -> None:
    bundle = world.bundle(now=PRESENT)
    answer = authority.answer(timestamp_request(bundle.signature))
    roots = [authority.root.certificate]
    moment = check_timestamp(answer, bundle.signature, roots)
    for position in range(0, len(answer), 31):
        changed = answer[:position] + bytes([answer[position] ^ 1]) + answer[position + 1 :]
        # Certificates that nothing needs are not signed; whatever is accepted says the same.
        assert confirmed_time([changed], bundle.signature, roots).moment in (None, moment)

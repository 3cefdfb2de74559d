"""Tests of revocation lists."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from skillhouse.floor import structs
from skillhouse.registry import (
    AnchorStore,
    PublisherError,
    Revocation,
    TrustAnchors,
    crl_of,
    next_list,
    revoked_certificate,
    sign_list,
    verify_signature,
    write_bundle,
)
from skillhouse.registry.revocations import LIST_TYPE, RevocationList, read_list
from skillhouse.registry.signature_bundle import read_bundle
from tests.registry.pki import (
    IDENTITY,
    NOW,
    Party,
    World,
    issued,
    make_root,
    make_world,
)

pytestmark = pytest.mark.req("S002-112")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def listed(
    *entries: Revocation, by: Party, before: RevocationList | None = None, now: Any = NOW
) -> bytes:
    return sign_list(next_list(before, entries, now), key=by.key, issuer=by.chain)


def anchors(world: World, *lists: bytes, now: Any = NOW) -> TrustAnchors:
    roots = world.anchors.roots
    found = tuple(read_list(data, roots, now) for data in lists)
    return TrustAnchors(roots=roots, revocations=found)


def outcome(world: World, trusted: TrustAnchors, *, days: float = 0) -> tuple[str, ...] | str:
    """Return the warnings, or the refusal."""
    now = NOW + timedelta(days=days)
    try:
        return verify_signature(
            world.tree, world.signature(), IDENTITY, anchors=trusted, now=now
        ).warnings
    except PublisherError as error:
        return str(error)


def test_what_is_not_listed_is_accepted(world: World) -> None:
    other = issued(world.root, "globex")
    entry = revoked_certificate(other.certificate, world.root.certificate)
    assert outcome(world, anchors(world, listed(entry, by=world.root))) == ()


@pytest.mark.parametrize("kind", ["certificate", "digest", "release"])
def test_what_is_listed_is_refused(world: World, kind: str) -> None:
    entry = {
        "certificate": revoked_certificate(
            world.developer.certificate, world.root.certificate, reason="key lost"
        ),
        "digest": Revocation(tree_digest=world.tree.digest, reason="key lost"),
        "release": Revocation(release="pdf@1.2.0", reason="key lost"),
    }[kind]
    what = "certificate" if kind == "certificate" else "release"
    found = outcome(world, anchors(world, listed(entry, by=world.root)))
    assert found == f"revocation: the {what} was revoked (key lost)"


def test_without_a_list_a_warning_says_so(world: World) -> None:
    assert outcome(world, anchors(world)) == (
        "the registry has no revocation list here, so none was asked",
    )


def test_an_old_list_is_warned_of_and_then_refused(world: World) -> None:
    trusted = anchors(world, listed(by=world.root))
    assert outcome(world, trusted, days=6.9) == ()
    warning = "the revocation list is of 2026-11-23: get a newer one"
    assert outcome(world, trusted, days=8) == (warning,)
    assert str(outcome(world, trusted, days=31)).startswith("revocation: the list ended on ")


def test_a_revoked_intermediate_takes_its_developers_along(world: World) -> None:
    middle = issued(world.root, "")
    below = structs.replace(world, developer=issued(middle))
    assert outcome(below, anchors(world, listed(by=world.root))) == ()
    entry = revoked_certificate(middle.certificate, world.root.certificate)
    found = outcome(below, anchors(world, listed(entry, by=world.root)))
    assert found == "revocation: the certificate was revoked"


def test_an_intermediate_revokes_its_own_and_no_others(world: World) -> None:
    middle = issued(world.root, "")
    below = structs.replace(world, developer=issued(middle))
    roots = listed(by=world.root)
    own = revoked_certificate(below.developer.certificate, middle.certificate)
    found = outcome(below, anchors(world, roots, listed(own, by=middle)))
    assert found == "revocation: the certificate was revoked"
    foreign = revoked_certificate(world.developer.certificate, middle.certificate)
    assert outcome(world, anchors(world, roots, listed(foreign, by=middle))) == ()


def test_a_list_of_another_root_is_none(world: World) -> None:
    entry = revoked_certificate(world.developer.certificate, world.root.certificate)
    with pytest.raises(PublisherError, match=r"^chain: no trusted root vouches"):
        anchors(world, listed(entry, by=make_root()))


def test_a_developer_publishes_no_list(world: World) -> None:
    entry = Revocation(release="csv@1.0.0")
    with pytest.raises(PublisherError, match=r"^purpose: "):
        anchors(world, listed(entry, by=world.developer))


def test_a_list_that_was_changed_is_none(world: World) -> None:
    data = listed(Revocation(release="pdf@1.2.0"), by=world.root)
    bundle = read_bundle(data, LIST_TYPE)
    payload = bundle.payload.replace(b"pdf@1.2.0", b"pdf@1.1.0")
    with pytest.raises(PublisherError, match=r"^signature: "):
        anchors(world, write_bundle(structs.replace(bundle, payload=payload)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value.update(version=2), "expected version 1, got 2"),
        (lambda value: value["entries"][0].update(scope="all"), "an entry has an unknown key"),
        (lambda value: value["entries"].append({}), "expected one certificate, digest or release"),
        (lambda value: value.update(issued_at="yesterday"), "is no list"),
        (lambda value: value.pop("entries"), "is no list"),
        (lambda value: value.update(number=0), "expected a number from 1"),
        (lambda value: value.update(issued_at="2026-12-24T00:00:00Z"), "of a time to come"),
    ],
)
def test_a_list_that_is_not_understood_is_refused(world: World, change: Any, message: str) -> None:
    bundle = read_bundle(listed(Revocation(release="pdf@1.2.0"), by=world.root), LIST_TYPE)
    value = json.loads(bundle.payload)
    change(value)
    key = world.root.key
    changed = structs.replace(bundle, payload=json.dumps(value).encode())
    signature = key.sign(changed.signed, ec.ECDSA(hashes.SHA384()))
    with pytest.raises(PublisherError, match=rf"^revocation: .*{message}"):
        anchors(world, write_bundle(structs.replace(changed, signature=signature)))


def test_an_older_list_never_takes_the_place_of_a_newer(world: World, tmp_path: Path) -> None:
    store = AnchorStore(tmp_path / "trusted")
    store.add_root(world.root.certificate)
    first = next_list(None, [], NOW)
    second = next_list(first, [Revocation(release="pdf@1.2.0")], NOW)
    data = [sign_list(one, key=world.root.key, issuer=world.root.chain) for one in (first, second)]
    store.add_list(data[1], NOW)
    with pytest.raises(PublisherError, match=r"^revocation: expected a list from number 2, got 1"):
        store.add_list(data[0], NOW)
    other = sign_list(next_list(first, [], NOW), key=world.root.key, issuer=world.root.chain)
    with pytest.raises(PublisherError, match=r"^revocation: two lists of one number differ"):
        store.add_list(other, NOW)
    assert [one.content for one in store.read(NOW).revocations] == [second]


def test_a_list_in_the_store_that_is_damaged_stops_everything(world: World, tmp_path: Path) -> None:
    store = AnchorStore(tmp_path / "trusted")
    store.add_root(world.root.certificate)
    given = store.add_list(listed(by=world.root), NOW)
    path = tmp_path / "trusted" / "revocations" / f"{given.issuer}.json"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(PublisherError, match=r"^trust: a revocation list, bundle: is no JSON"):
        store.read(NOW)


def test_a_root_that_is_trusted_no_more_has_no_say(world: World, tmp_path: Path) -> None:
    store = AnchorStore(tmp_path / "trusted")
    other = make_root("other.example.com")
    for root in (world.root, other):
        store.add_root(root.certificate)
    given = store.add_list(listed(by=other), NOW)
    assert store.forget(given.issuer[:16]) == 1
    found = store.read(NOW)
    assert (found.roots, found.revocations) == ((world.root.certificate,), ())


def test_other_tools_get_a_crl(world: World) -> None:
    root = world.root
    middle = issued(root, "")
    entries = [
        revoked_certificate(world.developer.certificate, root.certificate, since=NOW),
        # Its serial is the intermediate's: in a CRL of the root it would name another.
        revoked_certificate(issued(middle).certificate, root.certificate),
    ]
    content = next_list(None, entries, NOW)
    crl = x509.load_pem_x509_crl(crl_of(content, key=root.key, issuer=root.certificate))
    assert crl.is_signature_valid(root.key.public_key())
    assert [one.serial_number for one in crl] == [world.developer.certificate.serial_number]

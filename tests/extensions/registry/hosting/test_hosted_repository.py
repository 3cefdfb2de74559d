"""Tests of hosted_repository.py: what is refused before it becomes a version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.registry.pki import INTERMEDIATE, NOW, Party, forged, issued, make_root, make_world
from tests.registry.publisher_skill import REGISTRY
from tests.registry.sources import make_skill

from skillhouse.extensions.registry.hosting import (
    HostedRepository,
    HostingError,
    TokenAccess,
    access_of,
    checked_address,
    checked_scope,
    new_token,
    open_repository,
)
from skillhouse.floor import ConfigError
from skillhouse.registry import Revocation, next_list, pack, pem_of, revoked_certificate, sign_list
from skillhouse.registry.releases import Release, blob_path, split_name

ADMIN = TokenAccess("a", ("admin",))
ANYONE = TokenAccess("b", ("publish:default/*",))


class World:
    """A registry in a directory, at a fixed time."""

    def __init__(self, place: Path, **settings: Any) -> None:
        self.place = place
        made = open_repository(place / "state", name=REGISTRY)
        self.repository = HostedRepository(
            place / "state", made.store, name=REGISTRY, clock=lambda: NOW, **settings
        )

    def publish(
        self,
        archive: bytes,
        name: str = "pdf",
        version: str = "1.2.0",
        access: TokenAccess = ANYONE,
        beside: str = "",
    ) -> Release:
        upload = self.repository.blobs.new_upload()
        file = upload / "archive.part"
        file.write_bytes(archive)
        try:
            address = checked_address(name, version)
            return self.repository.publish(address, file, access=access, beside=beside)
        finally:
            self.repository.blobs.end_upload(upload)

    def publish_skill(
        self, name: str, version: str = "1.0", access: TokenAccess = ANYONE, beside: str = ""
    ) -> Release:
        folder = name.rpartition("--")[2]
        made = pack(make_skill(self.place / "skills" / name / folder, version=version))
        return self.publish(made.archive, name, version, access, beside)

    def refusal(self, *arguments: Any, **named: Any) -> str:
        with pytest.raises(HostingError) as caught:
            self.publish(*arguments, **named)
        assert str(self.place) not in str(caught.value)
        return caught.value.code


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.repository.store.close()


def test_a_signed_skill_is_published_with_its_publisher(world: World, tmp_path: Path):
    pki = make_world(tmp_path / "pki")
    (pki.directory / "skill.sig").write_bytes(pki.signature())
    world.repository.trust_root(pem_of([pki.root.certificate]))
    release = world.publish(pack(pki.directory).archive)
    assert release.signature is not None
    assert release.signature.who == f"acme of {REGISTRY}"


def test_a_signature_is_refused_while_no_root_is_trusted(world: World, tmp_path: Path):
    pki = make_world(tmp_path / "pki")
    (pki.directory / "skill.sig").write_bytes(pki.signature())
    with pytest.raises(HostingError, match="registry trust FILE") as caught:
        world.publish(pack(pki.directory).archive)
    assert caught.value.code == "signature"


def test_a_signature_of_another_skill_is_refused(world: World, tmp_path: Path):
    pki = make_world(tmp_path / "pki")
    world.repository.trust_root(pem_of([pki.root.certificate]))
    (pki.directory / "skill.sig").write_bytes(pki.signature())
    (pki.directory / "SKILL.md").write_text((pki.directory / "SKILL.md").read_text() + "\nMore.\n")
    assert world.refusal(pack(pki.directory).archive) == "signature"


def test_the_root_of_another_registry_is_refused(world: World):
    root = make_root("elsewhere.example.com")
    with pytest.raises(HostingError, match=r"elsewhere\.example\.com"):
        world.repository.trust_root(pem_of([root.certificate]))
    with pytest.raises(HostingError):
        world.repository.trust_root(b"nothing")


def test_a_registry_may_take_signed_skills_only(tmp_path: Path):
    world = World(tmp_path, requires_signature=True)
    archive = pack(make_skill(tmp_path / "pdf", version="1.2.0")).archive
    assert world.refusal(archive) == "signature"
    world.repository.store.close()


def revocations(issuer: Party, number: int = 1, *entries: Revocation) -> bytes:
    content = next_list(None, entries, NOW)
    for _ in range(number - 1):
        content = next_list(content, (), NOW)
    return sign_list(content, key=issuer.key, issuer=issuer.chain)


def test_a_list_of_revocations_is_that_of_a_trusted_root_and_never_an_older_one(world: World):
    root, other = make_root(), make_root()
    world.repository.trust_root(pem_of([root.certificate]))
    assert world.repository.revocations() is None
    second = revocations(root, 2)
    world.repository.put_revocations(second)
    for bad in (revocations(root, 1), revocations(other, 3), b"{}", second[:-5]):
        with pytest.raises(HostingError) as caught:
            world.repository.put_revocations(bad)
        assert caught.value.code == "signature"
    assert world.repository.revocations() == second
    third = revocations(root, 3)
    world.repository.put_revocations(third)
    assert world.repository.revocations() == third
    assert [one.kind for one in world.repository.store.changes(0, 9)] == ["revocations"] * 2


def test_the_list_of_an_intermediate_does_not_replace_the_roots(world: World):
    root = make_root()
    intermediate = forged(INTERMEDIATE, root)
    world.repository.trust_root(pem_of([root.certificate]))
    world.repository.put_revocations(revocations(intermediate))
    world.repository.put_revocations(revocations(root))
    with pytest.raises(HostingError, match="another issuer"):
        world.repository.put_revocations(revocations(intermediate, 9))


def test_what_a_list_revokes_is_not_published(world: World, tmp_path: Path):
    root = make_root()
    world.repository.trust_root(pem_of([root.certificate]))
    made = pack(make_skill(tmp_path / "pdf", version="1.2.0"))
    entries = (
        Revocation(tree_digest=made.tree.digest),
        Revocation(release="other-skill@1.0"),
    )
    world.repository.put_revocations(revocations(root, 1, *entries))
    assert world.refusal(made.archive) == "digest"
    with pytest.raises(HostingError):
        world.publish_skill("other-skill")


def test_a_developer_who_was_revoked_publishes_nothing(world: World, tmp_path: Path):
    pki = make_world(tmp_path / "pki")
    (pki.directory / "skill.sig").write_bytes(pki.signature())
    world.repository.trust_root(pem_of([pki.root.certificate]))
    archive = pack(pki.directory).archive
    others = revoked_certificate(issued(pki.root, "mallory").certificate, pki.root.certificate)
    world.repository.put_revocations(revocations(pki.root, 1, others))
    own = revoked_certificate(pki.developer.certificate, pki.root.certificate)
    world.repository.put_revocations(revocations(pki.root, 2, others, own))
    with pytest.raises(HostingError, match="the certificate was revoked") as caught:
        world.publish(archive)
    assert caught.value.code == "signature"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("pdf-tools", "name"),
        ("pdftool", "name"),
        ("pdftools1", "name"),
        ("pdft00ls", "name"),
        ("pdftoosl", "name"),
        ("pdf", "name"),
        ("pdf-helper", "name"),
        ("my-pdf", "name"),
        ("acme--pdftool", ""),
        ("word-tools", ""),
    ],
)
def test_a_name_that_is_near_another_needs_the_whole_namespace(world: World, name: str, code: str):
    world.publish_skill("pdftools")
    named = TokenAccess("c", ("publish:{}/{}".format(*split_name(name)),))
    if code:
        with pytest.raises(HostingError, match="could be taken for `pdftools`"):
            world.publish_skill(name, access=named, beside="pdftools")
        # A token of every name says that it is meant.
        for beside in ("", name, "word"):
            with pytest.raises(HostingError, match="--beside pdftools"):
                world.publish_skill(name, access=ADMIN, beside=beside)
    else:
        world.publish_skill(name, access=named)
    world.publish_skill(name, "1.1", ADMIN, beside="pdftools")
    # Once it is there, it is a name like any other.
    world.publish_skill(name, "1.2", named)


def test_near_names_of_ones_own_namespace_are_ones_own(world: World):
    for number in range(3):
        world.publish_skill(f"page-{number}")


def test_a_damaged_blob_is_replaced_by_the_next_upload(world: World, tmp_path: Path):
    made = pack(make_skill(tmp_path / "pdf", version="1.2.0"))
    blob = tmp_path / "state" / blob_path(made.digest)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"cut")
    world.publish(made.archive)
    assert blob.read_bytes() == made.archive


def test_the_name_of_a_registry_stays(tmp_path: Path):
    first = open_repository(tmp_path / "state", name="one.example")
    first.store.close()
    renamed = open_repository(tmp_path / "state", name="two.example")
    renamed.store.close()
    world = World(tmp_path / "other")
    world.publish_skill("notes")
    world.repository.store.close()
    with pytest.raises(ConfigError, match=REGISTRY):
        open_repository(tmp_path / "other/state", name="two.example")
    again = open_repository(tmp_path / "other/state")
    assert again.name == REGISTRY
    again.store.close()


@pytest.mark.parametrize("name", ["Skills", "a--b", "a..b", "a/b", "-a", "a b", "x" * 300])
def test_no_name_of_a_registry(tmp_path: Path, name: str):
    with pytest.raises(ConfigError):
        open_repository(tmp_path / "state", name=name)


def test_a_token_is_good_until_its_end(world: World):
    store, now = world.repository.store, datetime(2026, 11, 23, tzinfo=UTC)
    secret, token = new_token(store, ("publish:pdf",), now, days=2, note="ci")
    assert secret not in json.dumps([str(one) for one in store.tokens()])
    assert access_of(store, secret, now) == TokenAccess(token.id, ("publish:default/pdf",))
    assert access_of(store, secret, now + timedelta(days=2)) is None
    for guess in ("", secret[:-1], secret + "A", secret.swapcase(), f"skr_{token.id}_{'A' * 43}"):
        assert access_of(store, guess, now) is None, guess
    store.revoke_token(token.id, "2026-11-23T00:00:00Z")
    assert access_of(store, secret, now) is None


@pytest.mark.parametrize(
    "scope",
    ["", "write", "publish", "publish:", "publish:a/b/c", "publish:*/*", "publish:*/pdf",
     "delete:a/b", "publish:A/b", "publish:a/**", "read:a/b", "admin:a", "publish:a--b/c"],
)  # fmt: skip
def test_no_scope(scope: str):
    with pytest.raises(HostingError):
        checked_scope(scope)

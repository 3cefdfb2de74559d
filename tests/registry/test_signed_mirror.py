"""Tests of signed_mirror.py: a mirror is the same signed files, and never an older state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from skillhouse.extensions.registry.hosting.hosted_repository import Address
from skillhouse.floor.structs import asdict
from skillhouse.registry import (
    AttestationError,
    DirectoryAccess,
    MirrorDirectory,
    MirrorReport,
    Repository,
    RepositoryAnswer,
    RepositoryError,
    attestation_path,
    encode_document,
    read_attestation,
    update_mirror,
)
from skillhouse.registry.releases import index_path
from skillhouse.registry.signed_targets import SignedTargets
from tests.registry.build_root import BuildRoot
from tests.registry.repositories import encode_value
from tests.registry.rooted import RootedRegistry

ADDRESS = "https://skills.example.com"
PDF = index_path("default", "pdf")


class Server:
    """A registry as its server answers, and what it was asked."""

    def __init__(self, registry: RootedRegistry) -> None:
        self.registry = registry
        self.files = DirectoryAccess(registry.directory)
        self.asked: list[str] = []

    def __call__(
        self,
        path: str,
        max_bytes: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RepositoryAnswer:
        self.asked.append(path)
        kind, _, query = path.partition("?")
        store = self.registry.hosted.store
        if kind == "changes":
            since = int(parse_qs(query)["since"][0])
            found = [asdict(one) for one in store.changes(since, 1_000)]
            value = {"changes": found, "next": found[-1]["seq"] if found else since}
            return RepositoryAnswer(status=200, body=encode_value(value))
        if kind == "registry.json":
            return RepositoryAnswer(status=200, body=self.registry.hosted.roles().document)
        if kind.startswith("index/"):
            skill = kind.rpartition("/")[2].removesuffix(".json")
            document = encode_document(self.registry.hosted.releases(skill))
            return RepositoryAnswer(status=200, body=document)
        if kind == "skills":
            listed = [{"name": name} for name in ("csv", "pdf")]
            return RepositoryAnswer(status=200, body=encode_value({"skills": listed}))
        return self.files(path, max_bytes)

    def update(self, place: Path, *skills: str) -> MirrorReport:
        self.asked.clear()
        with MirrorDirectory(place) as mirror:
            return update_mirror(mirror, lambda: Repository(ADDRESS, self), skills=skills)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    registry = RootedRegistry(tmp_path)
    registry.publish("pdf", "1.0.0", "acme")
    registry.publish("csv", "1.0.0")
    yield Server(registry)
    registry.close()


def read(server: Server, mirror: Path, path: str, state: str = "client") -> bytes | None:
    registry = server.registry
    return SignedTargets(
        DirectoryAccess(mirror),
        address=mirror.as_uri(),
        root=registry.root,
        state=registry.place / state,
        stale_days=0,
    ).read(path)


def signed_files(place: Path) -> dict[str, bytes]:
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for part in ("metadata", "targets")
        for path in (place / part).rglob("*.*")
        if path.is_file()
    }


def current(server: Server, mirror: Path) -> None:
    """Hold that a mirror has files of the server alone, and leads where that leads."""
    theirs, ours = signed_files(server.registry.directory), signed_files(mirror)
    assert ours.items() <= theirs.items()
    for path in (PDF, "registry.json", "owners.json", "publishers.pem"):
        assert read(server, mirror, path) == read(server, server.registry.directory, path, "other")


def test_a_mirror_is_the_same_files_byte_for_byte(server: Server, tmp_path: Path):
    mirror = tmp_path / "mirror"
    assert server.update(mirror).problems == ()
    current(server, mirror)
    assert not any(path.startswith("targets/index") for path in server.asked)
    server.registry.publish("pdf", "1.1.0", "acme")
    server.registry.give({"pdf": ("acme",)})
    assert server.update(mirror).changed == 1
    current(server, mirror)


def test_a_mirror_has_the_attestations_and_cannot_take_them_away(server: Server, tmp_path: Path):
    mirror = tmp_path / "mirror"
    release = server.registry.publish("pdf", "1.1.0", "acme", built=BuildRoot())
    (name,) = release.attestations
    assert server.update(mirror).problems == ()
    path = mirror / attestation_path(name)
    whole = path.read_bytes()
    assert whole == (server.registry.directory / attestation_path(name)).read_bytes()
    read_attestation(whole, release.digest)
    # A mirror that leaves it out of the document says something that no key signed.
    document = read(server, mirror, PDF) or b""
    assert name.encode() in document
    for file in (mirror / "targets/index").rglob("*.pdf.json"):
        file.write_bytes(file.read_bytes().replace(f'"{name}"'.encode(), b""))
    with pytest.raises(RepositoryError):
        read(server, mirror, PDF, "another")
    repository = Repository(mirror.as_uri(), DirectoryAccess(mirror))
    for data in (b"{}", None):
        path.unlink() if data is None else path.write_bytes(data)
        with pytest.raises(AttestationError) as caught:
            repository.attestation(name)
        assert caught.value.code == "bundle"
    # It is brought again, and goes with a version that is revoked.
    with MirrorDirectory(mirror) as found:
        update_mirror(found, lambda: Repository(ADDRESS, server), check=True)
    assert path.read_bytes() == whole
    address = Address(namespace="default", skill="pdf", version="1.1.0")
    server.registry.hosted.set_state(address, "revoked", "stolen")
    server.update(mirror)
    assert not path.exists()


def test_a_run_without_changes_asks_twice(server: Server, tmp_path: Path):
    mirror = tmp_path / "mirror"
    server.update(mirror)
    server.update(mirror)
    assert server.asked == ["metadata/2.root.json", "metadata/timestamp.json"]
    server.registry.age = -timedelta(hours=2)
    server.registry.hosted.sign_changes()
    server.update(mirror)
    assert server.asked == ["metadata/2.root.json", "metadata/timestamp.json"]
    current(server, mirror)


def test_a_mirror_of_some_skills_has_their_documents(server: Server, tmp_path: Path):
    mirror = tmp_path / "mirror"
    server.update(mirror, "pdf")
    assert read(server, mirror, PDF)
    assert not list((mirror / "targets").rglob("*.csv.json"))


def test_what_two_updates_ago_was_current_goes(server: Server, tmp_path: Path):
    mirror = tmp_path / "mirror"
    for version in ("1.1.0", "1.2.0", "1.3.0", "1.4.0"):
        server.registry.publish("pdf", version, "acme")
        server.update(mirror)
    assert len(list((mirror / "metadata").glob("*.snapshot.json"))) == 2
    assert len(list((mirror / "targets").rglob("*.pdf.json"))) == 2
    current(server, mirror)


@pytest.mark.parametrize("kind", ["older", "stripped", "another root", "half"])
def test_a_source_that_lost_something_costs_a_mirror_nothing(
    server: Server, tmp_path: Path, kind: str
):
    mirror = tmp_path / "mirror"
    old = server.registry.copied("old")
    server.registry.publish("pdf", "1.1.0", "acme")
    server.update(mirror)
    before = signed_files(mirror)
    if kind == "older":
        server.files = DirectoryAccess(old)
    elif kind == "stripped":
        shutil.rmtree(old / "metadata")
        server.files = DirectoryAccess(old)
    elif kind == "another root":
        (tmp_path / "elsewhere").mkdir()
        other = RootedRegistry(tmp_path / "elsewhere")
        server.files = DirectoryAccess(other.directory)
        other.close()
    else:
        server.registry.publish("pdf", "1.2.0", "acme")
        newest = max(
            (server.registry.directory / "metadata").glob("*.bin-*.json"),
            key=lambda path: path.stat().st_mtime_ns,
        )
        newest.unlink()
    with pytest.raises(RepositoryError, match="signed is not taken"):
        server.update(mirror)
    assert signed_files(mirror) == before
    assert read(server, mirror, PDF)

"""Tests of extensions/registry/clawhub_routes.py: what the program `clawhub` asks for."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.extensions.registry.hosting.servers import Server, package, serving
from tests.registry.sources import make_skill

from skillhouse.registry import pack
from skillhouse.registry.other_locks import clawhub_fingerprint
from skillhouse.skill import read_archive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    with serving(place / "state", "--name", "skills.example.com") as started:
        admin = started.token("admin")
        for name, version in (("notes", "1.0.0"), ("notes", "1.1.0"), ("acme--maps", "2.0.0")):
            archive = package(place, name.rpartition("--")[2], version)
            assert started.publish(archive, name, version, admin).status == 201
        yield started


def files_of(archive: bytes) -> Mapping[str, bytes]:
    return {one.path: b"".join(one.read()) for one in read_archive(archive) if not one.is_directory}


def test_a_search_names_slugs_and_owners(server: Server) -> None:
    found = server.ask("/api/v1/search?q=maps&limit=25").json["results"]
    (one,) = found
    assert (one["slug"], one["ownerHandle"], one["version"]) == ("acme--maps", "acme", "2.0.0")
    assert 0 < one["score"] < 1
    exact = server.ask("/api/v1/search?q=note&mode=exact").json["results"]
    assert exact == []
    exact = server.ask("/api/v1/search?q=notes&mode=exact").json["results"]
    assert [one["slug"] for one in exact] == ["notes"]
    assert "ownerHandle" not in exact[0]


def test_a_skill_has_its_newest_version_and_its_owner(server: Server) -> None:
    found = server.ask("/api/v1/skills/notes").json
    assert (found["latestVersion"]["version"], found["owner"]) == ("1.1.0", None)
    assert found["skill"]["tags"] == {"latest": "1.1.0"}
    assert found["skill"]["updatedAt"] > 1_600_000_000_000
    for path in ("/api/v1/skills/acme--maps", "/api/v1/skills/maps?ownerHandle=acme"):
        found = server.ask(path).json
        assert (found["skill"]["slug"], found["owner"]) == ("acme--maps", {"handle": "acme"})
    for path in (
        "/api/v1/skills/maps",
        "/api/v1/skills/nothing",
        "/api/v1/skills/notes?ownerHandle=acme",
        "/api/v1/skills/acme--maps?ownerHandle=other",
        "/api/v1/skills/..",
        "/api/v1/skills/%2e%2e%2fregistry.sqlite3",
        "/api/v1/download?slug=../registry.sqlite3",
        "/api/v1/download?slug=",
        "/api/v1/download?slug=notes&version=9.9.9",
        "/api/v1/download?slug=notes&version=../../x",
        "/api/v1/resolve?slug=nothing&hash=x",
    ):
        assert server.ask(path).status in (404, 422), path
    assert server.ask("/api/v1/download?slug=notes&slug=maps").status == 400
    assert server.ask("/api/v1/search?q=notes&limit=-1").status == 400


def test_a_version_is_named_before_it_is_installed(server: Server) -> None:
    found = server.ask("/api/v1/skills/notes/versions/1.0.0").json
    assert found["version"]["version"] == "1.0.0"
    assert found["skill"] == {"slug": "notes", "displayName": "notes"}
    assert server.ask("/api/v1/skills/notes/versions/9.9.9").status == 404


def test_a_download_is_a_zip_of_the_same_files(server: Server) -> None:
    published = server.ask("/skills/notes/1.1.0").body
    got = server.ask("/api/v1/download?slug=notes")
    assert got.headers["content-type"] == "application/zip"
    assert 'filename="notes-1.1.0.zip"' in got.headers["content-disposition"]
    assert files_of(got.body) == files_of(published)
    with zipfile.ZipFile(io.BytesIO(got.body)) as archive:
        assert archive.getinfo("scripts/run.sh").external_attr >> 16 == 0o100755
    again = server.ask("/api/v1/download?slug=notes&version=1.1.0")
    assert (again.body, again.headers["etag"]) == (got.body, got.headers["etag"])
    older = server.ask("/api/v1/download?slug=notes&version=1.0.0").body
    assert files_of(older) != files_of(got.body)


def test_the_version_of_files_is_found_by_their_fingerprint(server: Server) -> None:
    for version in ("1.0.0", "1.1.0"):
        files = files_of(server.ask(f"/skills/notes/{version}").body)
        found = server.ask(f"/api/v1/resolve?slug=notes&hash={clawhub_fingerprint(files)}").json
        assert found == {"match": {"version": version}, "latestVersion": {"version": "1.1.0"}}
    for wrong in ("", hashlib.sha256(b"x").hexdigest()):
        found = server.ask(f"/api/v1/resolve?slug=notes&hash={wrong}").json
        assert found["match"] is None


def test_what_was_revoked_is_given_by_no_route(server: Server, place: Path) -> None:
    admin = server.token("admin")
    archive = pack(make_skill(place / "taken/taken", version="1.0.0")).archive
    assert server.publish(archive, "taken", "1.0.0", admin).status == 201
    assert server.ask("/api/v1/download?slug=taken&version=1.0.0").status == 200
    assert server.change("revoke", "taken", "1.0.0", admin, "malware").status == 200
    assert server.ask("/api/v1/download?slug=taken&version=1.0.0").status == 410
    assert server.ask("/api/v1/download?slug=taken").status == 404
    assert server.ask("/api/v1/skills/taken").json["latestVersion"] is None
    assert server.ask(f"/api/v1/resolve?slug=taken&hash={'0' * 64}").json["match"] is None


def test_a_private_registry_asks_for_a_token_here_too(place: Path) -> None:
    with serving(place / "private", "--private") as private:
        for path in ("search?q=x", "skills/x", "resolve?slug=x&hash=x", "download?slug=x"):
            assert private.ask(f"/api/v1/{path}").status == 401

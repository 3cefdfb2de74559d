"""Tests of reading a repository: from a directory, a file server, and the published routes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError, structs
from skillhouse.house import load_config
from skillhouse.house.network import Network
from skillhouse.install import repository_at
from skillhouse.net import NetError
from skillhouse.registry import Repository, RepositoryAnswer, RepositoryError
from skillhouse.registry.repository import check_answer
from skillhouse.skill import ArchiveError
from tests.house.places import make_places
from tests.loopback_http import QuietHandler, served
from tests.registry.repositories import StaticRepository, published_routes, static_server

TOKEN = "0123456789abcdef"


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(load_config(make_places(tmp_path)))


@pytest.fixture
def repository(tmp_path: Path) -> StaticRepository:
    made = StaticRepository(tmp_path / "repository")
    made.make("1.0.0")
    made.make("1.1.0")
    made.make("2.0.0", namespace="acme")
    return made


def check(found: Repository, made: StaticRepository) -> None:
    """A client gets the same whatever serves it."""
    skill = found.skill("default", "notes")
    assert skill == structs.replace(made.skills["notes"])
    assert skill is not None
    for release in skill.versions:
        assert found.archive(skill, release) == made.archives[release.digest]
    assert found.skill("acme", "notes") == made.skills["acme--notes"]
    assert found.skill("default", "other") is None
    assert found.revocations() is None


def test_a_directory_gives_what_is_published(network, repository):
    for address in (repository.address, str(repository.place)):
        found = repository_at(network, address)
        check(found, repository)
        document = found.document()
        assert document is not None
        assert document.name == "skills.example.com"


def test_a_file_server_gives_what_is_published(network, repository):
    with served(static_server(repository.place)) as address:
        found = repository_at(network, f"{address}/")
        check(found, repository)
        skill = repository.skills["acme--notes"]
        assert found.resolved(skill, skill.versions[0]) == f"{address}/skills/acme--notes/2.0.0"


@pytest.mark.req("S002-104")
def test_a_server_of_the_published_routes_alone_is_read(network, repository):
    with served(published_routes(repository)) as address:
        found = repository_at(network, address)
        check(found, repository)
        assert found.document() is None
        assert [one.typed for one in found.listed()] == ["notes", "@acme/notes"]


def test_other_bytes_than_those_of_the_digest_are_refused(network, repository):
    found = repository_at(network, repository.address)
    skill = found.skill("default", "notes")
    assert skill is not None
    new, old = skill.versions
    swapped = structs.replace(new, digest=old.digest)
    assert found.archive(skill, swapped) == repository.archives[old.digest]
    path = repository.place / "blobs/sha256" / new.digest[7:9] / new.digest[7:]
    path.write_bytes(repository.archives[old.digest])
    with pytest.raises(ArchiveError, match="expected sha256:"):
        found.archive(skill, new)
    path.unlink()
    with pytest.raises(RepositoryError, match="has no archive"):
        found.archive(skill, new)


def test_a_mirror_is_searched_by_what_it_lists(network, repository):
    found = repository_at(network, repository.address)
    with pytest.raises(RepositoryError, match="lists no skills"):
        list(found.listed())
    entries = [
        {"name": "notes", "description": "Keeps notes."},
        {"name": "../x", "description": "bad"},
        {"name": "acme--pdf", "description": "Reads PDF files."},
    ]
    listing = json.dumps({"skills": entries}).encode()
    repository.write(".well-known/agent-skills/index.json", listing)
    assert [one.name for one in found.listed()] == ["notes", "acme--pdf"]
    assert [one.typed for one in found.listed("pdf reads")] == ["@acme/pdf"]
    assert [one.typed for one in found.listed(limit=1)] == ["notes"]


def test_a_download_goes_on_where_it_was_cut_off(network, repository):
    release = repository.skills["notes"].versions[0]
    archive = repository.archives[release.digest]
    ranges: list[str | None] = []

    def cut_once(handler: QuietHandler) -> bool:
        if "blobs" not in handler.path:
            return False
        ranges.append(handler.headers["Range"])
        if len(ranges) > 1:
            headers = {"Content-Range": f"bytes 2000-{len(archive) - 1}/{len(archive)}"}
            handler.answer(206, archive[2_000:], headers)
            return True
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(archive)))
        handler.end_headers()
        handler.wfile.write(archive[:2_000])
        handler.close_connection = True
        return True

    seen: list[tuple[int, int]] = []
    with served(static_server(repository.place, cut_once)) as address:
        found = repository_at(network, address, progress=lambda *at: seen.append(at))
        skill = found.skill("default", "notes")
        assert skill is not None
        assert found.archive(skill, release) == archive
    assert ranges == [None, "bytes=2000-"]
    assert seen[-1] == (len(archive), len(archive))


def test_a_directory_takes_nothing(network, repository):
    found = repository_at(network, repository.address)
    with pytest.raises(RepositoryError) as caught:
        found.send("PUT", "skills/notes/1.0", b"x", headers={})
    assert caught.value.code == "mirror"
    with pytest.raises(RepositoryError, match="no directory"):
        repository_at(network, "/nowhere/at/all").document()


def test_a_token_goes_to_the_repository_and_never_in_clear_to_others(network, repository):
    handler = static_server(repository.place)
    with served(handler) as address:
        repository_at(network, address, token=TOKEN).document()
    assert handler.credentials == [f"Bearer {TOKEN}"]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="use https"):
        repository_at(network, "http://skills.example.com", token=TOKEN)
    for address in ("ftp://x.example", "https://x.example/?a=b", "https://me@x.example", "notes"):
        with pytest.raises((ConfigError, NetError)):
            repository_at(network, address)


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (401, b"", "unauthorized", "status 401"),
        (404, b"{", "not-found", "status 404"),
        (409, b'{"code":"version-exists","detail":"is\\nthere"}', "version-exists", ": is there"),
        (429, b'{"code":"rate-limited"}', "rate-limited", "try again in 7 s"),
        (500, b'["x"]', "unreachable", "status 500"),
        (418, b'{"code":5,"title":"\\u001b[2Jtea"}', "bad-request", ": [2Jtea"),
    ],
)
def test_a_refusal_says_what_the_server_says(status, body, code, said):
    headers = {"content-type": "application/problem+json", "retry-after": "7" * (status == 429)}
    with pytest.raises(RepositoryError) as caught:
        check_answer(RepositoryAnswer(status=status, body=body, headers=headers), "`x`")
    assert (caught.value.code, caught.value.status) == (code, status)
    assert said in str(caught.value)

"""Tests of extensions/registry: a real server, asked over HTTP as any client asks."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import signal
import socket
import urllib.parse
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.registry.hosting.servers import Server, package, serving, token_for
from tests.registry.sources import make_skill

from skillhouse.extensions.registry.hosting import open_repository
from skillhouse.floor import read_tree
from skillhouse.registry import pack
from skillhouse.registry.releases import blob_path, decode_skill, index_path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def admin(server: Server) -> str:
    return server.token("admin")


def published(server: Server, place: Path, admin: str, name: str, version: str = "1.0.0") -> Any:
    """Publish a small skill under a name of its own and return its release."""
    answer = server.publish(package(place, name.rpartition("--")[2], version), name, version, admin)
    assert answer.status == 201, answer.body
    return answer.json


def test_words_of_another_language_find_skills(server: Server, place: Path, admin: str):
    published(server, place, admin, "weather-maps")
    found = server.ask(f"/skills?q={urllib.parse.quote('天气')}").json["skills"]
    assert [one["name"] for one in found] == ["weather-maps"]
    assert found[0]["matches"] == {"name": ["天气"], "description": ["天气"]}


def test_a_found_skill_says_which_words_of_a_search_it_has(server: Server, place: Path, admin: str):
    published(server, place, admin, "said-words")
    (found,) = server.ask("/skills?q=said+WORD+nonsense").json["skills"]
    assert found["matches"] == {"name": ["said", "word"], "description": ["said", "word"]}
    (listed,) = [
        one for one in server.ask("/skills?limit=200").json["skills"] if one["name"] == "said-words"
    ]
    assert listed["matches"] == {}


@pytest.mark.req("S002-104")
def test_the_four_published_routes(server: Server, place: Path, admin: str):
    archive = package(place, "four-routes")
    release = published(server, place, admin, "four-routes")
    digest = f"sha256:{hashlib.sha256(archive).hexdigest()}"
    assert (release["digest"], release["size"], release["files"]) == (digest, len(archive), 2)
    assert release["tree_digest"] == read_tree(place / "packed/four-routes").digest
    listed = server.ask("/skills?q=four+routes").json["skills"]
    assert [one["name"] for one in listed] == ["four-routes"]
    assert server.ask("/skills/four-routes").json["versions"] == [release]
    versions = server.ask("/skills/four-routes/versions").json
    assert versions == {"name": "four-routes", "versions": [release]}
    got = server.ask("/skills/four-routes/1.0.0")
    assert (got.status, got.body) == (200, archive)
    raw = base64.b64encode(hashlib.sha256(archive).digest()).decode()
    assert got.headers["content-digest"] == f"sha-256=:{raw}:"
    assert got.headers["etag"] == f'"{digest}"'


def test_the_static_read_path(server: Server, place: Path, admin: str):
    archive = package(place, "read-path")
    release = published(server, place, admin, "acme--read-path")
    assert server.ask("/registry.json").json == {"api": 1, "name": "skills.example.com"}
    index = server.ask(f"/{index_path('acme', 'read-path')}")
    found = decode_skill(index.body, namespace="acme", skill="read-path")
    assert (found.latest, found.versions[0].digest) == ("1.0.0", release["digest"])
    assert "max-age=60" in index.headers["cache-control"]
    blob = server.ask(f"/{blob_path(release['digest'])}")
    assert (blob.body, "immutable" in blob.headers["cache-control"]) == (archive, True)


def test_what_a_client_has_is_not_sent_again(server: Server, place: Path, admin: str):
    release = published(server, place, admin, "not-again")
    for path in (
        f"/{index_path('default', 'not-again')}",
        "/skills/not-again",
        "/skills/not-again/1.0.0",
        f"/{blob_path(release['digest'])}",
        "/registry.json",
        "/.well-known/agent-skills/index.json",
    ):
        etag = server.ask(path).headers["etag"]
        for given in (etag, f'"other", {etag}', f"W/{etag}"):
            again = server.ask(path, headers={"If-None-Match": given})
            assert (again.status, again.body) == (304, b""), path
        assert server.ask(path, headers={"If-None-Match": '"other"'}).status == 200


def test_a_download_is_resumed_by_its_range(server: Server, place: Path, admin: str):
    archive = package(place, "ranges")
    release = published(server, place, admin, "ranges")
    for path in ("/skills/ranges/1.0.0", f"/{blob_path(release['digest'])}"):
        rest = server.ask(path, headers={"Range": "bytes=100-"})
        assert (rest.status, rest.body) == (206, archive[100:])
        assert rest.headers["content-range"] == f"bytes 100-{len(archive) - 1}/{len(archive)}"
        assert "content-digest" not in rest.headers
        beyond = server.ask(path, headers={"Range": f"bytes={len(archive)}-"})
        assert beyond.status == 416
        head = server.ask(path, "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(archive))


@pytest.mark.parametrize("query", ["", "?dry_run=1"])
def test_a_version_never_changes(server: Server, place: Path, admin: str, query: str):
    name = f"never-changes{len(query)}"
    first = published(server, place, admin, name)
    for body in ("Body.", "Another body."):
        archive = package(place, name, body=body)
        answer = server.publish(archive, name, "1.0.0", admin, query=query)
        assert (answer.status, answer.code) == (409, "version-exists")
        assert answer.json["digest"] == first["digest"]


def test_a_dry_run_checks_and_keeps_nothing(server: Server, place: Path, admin: str):
    archive = package(place, "dry-run")
    answer = server.publish(archive, "dry-run", "1.0.0", admin, query="?dry_run=1")
    assert (answer.status, answer.json["version"]) == (200, "1.0.0")
    assert server.ask("/skills/dry-run").code == "unknown-skill"
    assert server.ask(f"/{blob_path(answer.json['digest'])}").status == 404
    assert not list((server.directory / "uploads").iterdir())


def test_a_zip_is_taken_and_served_as_it_was_sent(server: Server, place: Path, admin: str):
    directory = make_skill(place / "zips/zipped", version="1.0.0")
    file = place / "zipped.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(directory / "SKILL.md", "SKILL.md")
    answer = server.publish(file.read_bytes(), "zipped", "1.0.0", admin)
    assert (answer.status, answer.json["media_type"]) == (201, "application/zip")
    got = server.ask("/skills/zipped/1.0.0")
    assert (got.body, got.headers["content-type"]) == (file.read_bytes(), "application/zip")
    assert 'filename="zipped-1.0.0.zip"' in got.headers["content-disposition"]


def test_a_content_digest_is_checked(server: Server, place: Path, admin: str):
    archive = package(place, "content-digest")

    def sent(field: str) -> tuple[int, str]:
        answer = server.publish(
            archive, "content-digest", "1.0.0", admin, query="?dry_run=1", Content_Digest=field
        )
        return answer.status, answer.code

    def field(data: bytes) -> str:
        return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"

    assert sent(field(archive)) == (200, "")
    assert sent(f"sha-512=:AAAA:, {field(archive)}") == (200, "")
    for bad in (field(b"other"), "sha-256=:AAAA:", "sha-256=nothing", "sha-256=", "sha-256=::"):
        assert sent(bad) == (422, "digest"), bad
    assert sent(f"{field(b'other')}, {field(archive)}") == (422, "digest")


def test_yank_hides_and_revoke_blocks(server: Server, place: Path, admin: str):
    for version in ("1.0.0", "1.1.0"):
        published(server, place, admin, "taken-back", version)

    def latest() -> str:
        return str(server.ask("/skills/taken-back").json["latest"])

    yanked = server.change("yank", "taken-back", "1.1.0", admin, "does not work")
    assert (yanked.json["state"], yanked.json["reason"]) == ("yanked", "does not work")
    # Whoever has it in a lock still gets it.
    assert (latest(), server.ask("/skills/taken-back/1.1.0").status) == ("1.0.0", 200)
    assert server.change("unyank", "taken-back", "1.1.0", admin).json["state"] == "published"
    assert latest() == "1.1.0"
    revoked = server.change("revoke", "taken-back", "1.1.0", admin, "steals")
    assert revoked.json["state"] == "revoked"
    gone = server.ask("/skills/taken-back/1.1.0")
    assert (gone.status, gone.code, "steals" in gone.json["detail"]) == (
        410,
        "unknown-version",
        True,
    )
    blob = server.ask(f"/{blob_path(revoked.json['digest'])}")
    assert (blob.status, latest()) == (410, "1.0.0")
    assert server.change("unyank", "taken-back", "1.1.0", admin).code == "bad-request"
    answer = server.publish(package(place, "taken-back", "1.1.0"), "taken-back", "1.1.0", admin)
    assert answer.code == "version-exists"


def test_files_that_were_revoked_come_back_under_no_name(server: Server, place: Path, admin: str):
    published(server, place, admin, "revoked-files")
    server.change("revoke", "revoked-files", "1.0.0", admin)
    archive = package(place, "revoked-files")
    again = server.publish(archive, "acme--revoked-files", "1.0.0", admin)
    assert (again.status, again.code) == (422, "digest")


def test_a_channel_leads_to_a_version(server: Server, place: Path, admin: str):
    for version in ("1.0.0", "2.0.0-rc.1"):
        published(server, place, admin, "channels", version)
    body = json.dumps({"version": "2.0.0-rc.1"}).encode()
    answer = server.ask("/skills/channels/channels/beta", "PUT", body, token=admin)
    assert (answer.status, answer.json["channels"]) == (200, {"beta": "2.0.0-rc.1"})
    for channel, version in (("beta", "2.0.0-rc.1"), ("latest", "1.0.0")):
        moved = server.ask(f"/skills/channels/{channel}")
        assert (moved.status, moved.headers["location"]) == (302, f"/skills/channels/{version}")
    assert server.ask("/skills/channels/alpha").code == "unknown-version"
    for name in ("latest", "versions", "1.0", "A", "-", "a" * 40, "%2e%2e"):
        refused = server.ask(f"/skills/channels/channels/{name}", "PUT", body, token=admin)
        assert refused.status == 400, name


def test_changes_can_be_followed(server: Server, place: Path, admin: str):
    start = server.ask("/changes?limit=1000").json["next"]
    published(server, place, admin, "followed")
    server.change("yank", "followed", "1.0.0", admin)
    found = server.ask(f"/changes?since={start}").json
    assert [(one["kind"], one["name"], one["version"]) for one in found["changes"]] == [
        ("publish", "followed", "1.0.0"),
        ("yank", "followed", "1.0.0"),
    ]
    first = server.ask(f"/changes?since={start}&limit=1").json
    assert first["changes"] == found["changes"][:1]
    assert server.ask(f"/changes?since={found['next']}").json == {
        "changes": [],
        "next": found["next"],
    }
    assert server.ask("/changes?since=-1").code == "bad-request"


def test_the_well_known_list_has_the_newest_version_of_each(
    server: Server, place: Path, admin: str
):
    for version in ("1.0.0", "1.1.0"):
        published(server, place, admin, "well-known", version)
    scoped = published(server, place, admin, "acme--well-known")
    value = server.ask("/.well-known/agent-skills/index.json").json
    assert value["$schema"] == "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
    (found,) = [one for one in value["skills"] if one["name"] == "well-known"]
    newest = server.ask("/skills/well-known").json["versions"][0]
    assert found == {
        "name": "well-known",
        "type": "archive",
        "description": "About well-known. Use it in tests.",
        "url": "../../skills/well-known/1.1.0",
        "digest": newest["digest"],
    }
    acme = server.ask("/acme/.well-known/agent-skills/index.json").json["skills"]
    assert {"well-known": scoped["digest"]}.items() <= {
        one["name"]: one["digest"] for one in acme
    }.items()
    (url,) = [one["url"] for one in acme if one["name"] == "well-known"]
    assert url == "../../../skills/acme--well-known/1.0.0"
    none = server.ask("/none/.well-known/agent-skills/index.json")
    assert (none.status, none.code) == (404, "unknown-skill")


def test_a_person_reads_a_page(server: Server):
    page = server.ask("/")
    text = page.body.decode()
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "skills.example.com" in text
    assert f'url = "{server.url}"'.replace('"', "&quot;") in text or server.url in text
    assert "script" not in text


@pytest.fixture(scope="module")
def once_made(server: Server, place: Path, admin: str) -> None:
    """A skill that is there, whichever tests ran before."""
    published(server, place, admin, "once-made")


@pytest.mark.req("S002-105")
@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/skills/absent", "GET", 404, "unknown-skill"),
        ("/skills/absent/1.0.0", "GET", 404, "unknown-skill"),
        ("/skills/absent/latest", "GET", 404, "unknown-skill"),
        ("/skills/absent/versions", "GET", 404, "unknown-skill"),
        ("/skills/once-made/9.9.9", "GET", 404, "unknown-version"),
        ("/skills/once-made/nightly", "GET", 404, "unknown-version"),
        ("/skills/NOT-A-NAME", "GET", 422, "name"),
        ("/revocations.json", "GET", 404, "unknown-version"),
        ("/nothing/here", "GET", 404, "bad-request"),
        ("/skills?limit=x", "GET", 400, "bad-request"),
        ("/skills?sort=x", "GET", 400, "bad-request"),
        ("/skills?cursor=x", "GET", 400, "bad-request"),
        ("/skills?q=a&q=b", "GET", 400, "bad-request"),
        ("/skills/absent", "DELETE", 405, "bad-request"),
        ("/skills/absent/1.0.0", "PUT", 401, "unauthorized"),
        ("/skills/absent/1.0.0/yank", "POST", 401, "unauthorized"),
    ],
)
@pytest.mark.usefixtures("once_made")
def test_each_refusal_is_a_problem(server: Server, path: str, method: str, status: int, code: str):
    answer = server.ask(path, method)
    assert (answer.status, answer.code) == (status, code)
    assert set(answer.json) >= {"type", "title", "status", "detail", "code"}


def test_a_list_is_read_in_pages(server: Server, place: Path, admin: str):
    for number in range(5):
        published(server, place, admin, f"page-{'abcde'[number] * 4}")
    seen, cursor = [], ""
    while True:
        page = server.ask(f"/skills?limit=2&cursor={cursor}").json
        seen += [one["name"] for one in page["skills"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen))
    assert {f"page-{letter * 4}" for letter in "abcde"} <= set(seen)


def test_a_private_registry_is_read_with_a_token_only(tmp_path: Path):
    with serving(tmp_path / "state", "--private") as server:
        admin, reader, publisher = (
            server.token("admin"),
            server.token("read"),
            server.token("publish:pdf"),
        )
        archive = package(tmp_path)
        assert server.publish(archive, "pdf", "1.0.0", publisher).status == 201
        paths = ("/registry.json", "/skills", "/skills/pdf", "/skills/pdf/1.0.0", "/changes", "/")
        for path in paths:
            answer = server.ask(path)
            assert (answer.code, answer.headers["www-authenticate"]) == ("unauthorized", "Bearer")
            assert server.ask(path, token=publisher).code == "forbidden"
            for token in (reader, admin):
                allowed = server.ask(path, token=token)
                assert allowed.status == 200
                assert "public" not in allowed.headers["cache-control"]
        assert server.ask("/healthz").json == {"status": "ok"}


def test_too_many_requests_are_refused_for_who_sends_them(tmp_path: Path):
    with serving(tmp_path / "state", "--reads-per-minute", "3") as server:
        token = server.token("read")
        answers = [server.ask("/registry.json") for _ in range(4)]
        assert [one.status for one in answers] == [200, 200, 200, 429]
        assert answers[-1].code == "rate-limited"
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert answers[0].headers["ratelimit"] == '"read";r=2;t=60'
        # A token has a bucket of its own.
        assert server.ask("/registry.json", token=token).status == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_and_all_is_there_again(tmp_path: Path, number: signal.Signals):
    with serving(tmp_path / "state", "--name", "skills.example.com") as server:
        assert (
            server.publish(package(tmp_path), "pdf", "1.0.0", server.token("admin")).status == 201
        )
        server.process.send_signal(number)
        out, err = server.process.communicate(timeout=20)
        assert (server.process.returncode, out, err) == (0, "", "")
    with serving(tmp_path / "state") as server:
        assert server.name == "skills.example.com"
        assert server.ask("/skills/pdf/1.0.0").status == 200


def test_a_token_that_was_revoked_is_none(tmp_path: Path):
    with serving(tmp_path / "state") as server:
        token = server.token("admin")
        archive = package(tmp_path)
        assert server.publish(archive, "pdf", "1.0.0", token, query="?dry_run=1").status == 200
        _revoke(server.directory, token)
        assert server.publish(archive, "pdf", "1.0.0", token).code == "unauthorized"


def _revoke(directory: Path, token: str) -> None:
    repository = open_repository(directory)
    with contextlib.closing(repository.store):
        assert repository.store.revoke_token(token.split("_")[1], "2026-11-23T12:00:00Z")


def test_an_upload_that_ends_early_leaves_nothing(tmp_path: Path):
    with serving(tmp_path / "state") as server:
        token = token_for(server.directory, "admin")
        archive = package(tmp_path)
        with socket.create_connection(server.place) as client:
            head = (
                f"PUT /skills/pdf/1.0.0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Length: {len(archive)}\r\n\r\n"
            )
            client.sendall(head.encode() + archive[:500])
            client.shutdown(socket.SHUT_WR)
            client.recv(4096)
        assert server.ask("/skills/pdf").code == "unknown-skill"
        assert server.publish(archive, "pdf", "1.0.0", token).status == 201
        assert not list((server.directory / "uploads").iterdir())


def test_what_pack_makes_of_a_directory_comes_back_byte_for_byte(
    server: Server, place: Path, admin: str
):
    made = pack(make_skill(place / "bytes/same-bytes", version="3.0.0"))
    assert server.publish(made.archive, "same-bytes", "3.0.0", admin).status == 201
    assert server.ask("/skills/same-bytes/latest").status == 302
    assert server.ask("/skills/same-bytes/3.0.0").body == made.archive

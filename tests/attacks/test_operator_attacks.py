"""Attacks on who operates a registry, and by names on who installs from one.

Each is first let loose on a naive form, where it works.
"""

from __future__ import annotations

import json
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from skillhouse.approval.webhook import checked_url
from skillhouse.extensions.registry.hosting import (
    access_of,
    checked_address,
    new_token,
    open_repository,
    utc_text,
)
from skillhouse.extensions.registry.hosting.backup import BackupError, back_up, restore
from skillhouse.extensions.registry.operations import log_line
from skillhouse.floor import SkillhouseError
from skillhouse.house import Network, load_config
from skillhouse.house.config.allowed_sources import fits
from skillhouse.net import Route
from tests.extensions.registry.hosting.servers import Server, package, serving
from tests.extensions.registry.hosting.test_backup import publish
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import configure, lock_of
from tests.harness import until
from tests.house.places import make_places
from tests.loopback_http import QuietHandler, served
from tests.net.servers import fixed
from tests.registry.repositories import StaticRepository
from tests.registry.sources import make_skill

pytestmark = pytest.mark.slow

__all__ = ["place", "run"]

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
FORGED = '{"method":"PUT","path":"/skills/pdf/9.9.9","status":201,"token":"ffffffffffff"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("registry") / "state") as started:
        yield started


def raw(server: Server, request: bytes) -> None:
    """Send bytes as no client library would."""
    with socket.create_connection(server.place, timeout=10) as connection:
        connection.sendall(request)
        connection.recv(65_536)


def logged(server: Server, mark: str) -> list[str]:
    def found() -> list[str]:
        file = server.directory / "requests.jsonl"
        # Made with its first line, which is written after the answer.
        text = file.read_bytes().decode("ascii") if file.exists() else ""
        return [line for line in text.split("\n") if mark in line]

    return until(found)


def test_a_request_that_writes_a_line_of_its_own_into_the_log(server: Server):
    path = f"/skills/forger\n{FORGED}"
    naive = f"GET {path} 404\n".splitlines()
    assert naive[1].startswith('{"method":"PUT"')
    quoted = urllib.request.pathname2url(path)
    agent = "a\x1b]0;owned\x07\x7f\x9b31m"
    raw(
        server, f"GET {quoted} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n".encode("latin-1")
    )
    lines = logged(server, "forger")
    assert len(lines) == 1
    assert not logged(server, '"token": "ffffffffffff"')
    assert lines[0].isprintable()
    assert json.loads(lines[0])["path"] == path


def test_a_secret_in_an_address_is_not_logged(server: Server):
    secret = server.token("read")
    head = secret[:16]
    raw(server, f"GET /skills?token={secret}&q={secret} HTTP/1.1\r\nHost: x\r\n"
                f"User-Agent: curl {secret}\r\n\r\n".encode())  # fmt: skip
    (line,) = logged(server, "token=skr_")
    assert head in line
    assert secret not in (server.directory / "requests.jsonl").read_text()


def test_a_request_of_any_size_is_a_short_line():
    scope = {
        "type": "http",
        "method": "M" * 10_000,
        "path": "/" + "\N{PILE OF POO}" * 100_000,
        "query_string": b"q" * 100_000,
        "headers": [(b"user-agent", b"\xff" * 100_000)],
        "client": ("192.0.2.7", 1),
    }
    line = log_line(scope, status=404, sent=0, seconds=0.1)
    assert len(line) < 8_000
    assert json.loads(line)["method"] == "M" * 16


def test_names_that_fill_the_memory_of_who_collects_metrics(server: Server):
    token = server.token("metrics")

    def series() -> int:
        return len(server.ask("/metrics", token=token).body.splitlines())

    naive: dict[tuple[str, str], int] = {}
    server.ask("/skills/first-name")
    server.ask("/no/such/place")
    raw(server, b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n")
    series()
    before = series()
    for number in range(50):
        for path in (f"/skills/name-{number}", f"/no/such-{number}/place"):
            naive[path, "GET"] = server.ask(path).status
        raw(server, f"BREW{number} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert len(naive) == 100
    assert series() == before
    assert b"name-1" not in server.ask("/metrics", token=token).body


class Metadata(QuietHandler):
    """What a machine of a cloud has at its own address."""

    asked = 0

    def do_POST(self) -> None:
        type(self).asked += 1
        self.answer(200, b"credentials")

    do_GET = do_POST


def test_a_webhook_that_leads_to_metadata_of_the_machine(tmp_path: Path):
    with served(Metadata) as inside:

        class Leading(QuietHandler):
            def do_POST(self) -> None:
                self.answer(307, headers={"Location": inside})

        request = urllib.request.Request(inside, data=b"{}", method="POST")
        with urllib.request.urlopen(request) as answer:
            assert answer.read() == b"credentials"
        Metadata.asked = 0
        config = load_config(make_places(tmp_path))
        for route, url in (
            (None, "https://169.254.169.254/latest/meta-data/"),
            (None, "https://[fd00:ec2::254]/latest/"),
            (None, "https://10.0.0.1/"),
            (Route(resolve=fixed(["169.254.169.254"])), "https://hooks.example.com/"),
            (Route(resolve=fixed(["127.0.0.1"])), "https://hooks.example.com/"),
        ):
            network = Network(config, route=route)
            with pytest.raises(SkillhouseError, match=r"not public|refused|no rule"):
                anyio.run(network.post, checked_url(url), {}, b"{}")
        with served(Leading) as leading, pytest.raises(SkillhouseError, match="redirects"):
            anyio.run(Network(config).post, leading, {}, b"{}")
        assert Metadata.asked == 0


def test_an_old_backup_that_brings_back_a_leaked_token_and_a_revoked_version(tmp_path: Path):
    directory = tmp_path / "registry"
    publish(directory, "bad")
    repository = open_repository(directory)
    with closing(repository.store):
        secret, token = new_token(repository.store, ("admin",), NOW)
        back_up(directory, tmp_path / "backup", NOW)
        repository.store.revoke_token(token.id, utc_text(NOW))
        repository.set_state(checked_address("bad", "1.0.0"), "revoked", "steals keys")
    naive = tmp_path / "naive"
    shutil.copytree(tmp_path / "backup", naive)
    (naive / "registry.sqlite3").chmod(0o600)
    naive.chmod(0o700)
    copied = open_repository(naive)
    with closing(copied.store):
        assert access_of(copied.store, secret, NOW) is not None
        assert copied.release("bad", "1.0.0").state == "published"
    with pytest.raises(BackupError) as caught:
        restore(tmp_path / "backup", directory, NOW)
    assert caught.value.code == "behind"
    restore(tmp_path / "backup", directory, NOW, go_back=True)
    restored = open_repository(directory)
    with closing(restored.store):
        assert access_of(restored.store, secret, NOW) is None
        assert restored.release("bad", "1.0.0").state == "revoked"


NEAR = "pdf pfd-tools p-d-f-tools pdf-t00ls pdft00l5 pdf-helper my-pdf pdff-tools pdf-tool".split()


@pytest.mark.parametrize("name", NEAR)
def test_a_name_for_which_a_known_one_is_taken_with_a_leaked_token(
    server: Server, tmp_path: Path, name: str
):
    """A token of the whole namespace took every near name unseen."""
    owner = server.token("publish:default/*")
    known = server.publish(package(tmp_path, "pdf-tools"), "pdf-tools", "1.0.0", owner)
    assert known.status in (201, 409)
    leaked = server.token("publish:default/*")
    answer = server.publish(package(tmp_path, name), name, "1.0.0", leaked)
    assert answer.code == "name", answer.body
    assert server.ask(f"/skills/{name}").status == 404


@pytest.mark.parametrize("name", ["pfd", "pdf-tools", "pdf-he1per", "p-df", "the-pdf"])
def test_a_name_near_an_installed_one_of_someone_else(run: Run, place: Path, name: str):
    known = make_skill(place / "known/pdf")
    assert run("install", str(known), "--yes", "--allow-unsigned")[0] == 0
    other = make_skill(place / f"other/{name}")
    code, out, err = run("install", str(other), "--yes", "--allow-unsigned")
    assert (code, "near" in err) == (2, True), err
    assert f"`{name}` may be taken for `pdf`" in " ".join(out.split())
    assert name not in lock_of(place)
    assert run("install", str(other), "--yes", "--allow-unsigned", "--accept-near")[0] == 0
    # Once it is there it is a name like any other.
    assert run("install", str(other), "--yes", "--allow-unsigned")[0] == 0


def test_a_name_near_an_older_one_of_the_same_repository(run: Run, place: Path):
    official = StaticRepository(place / "official")
    official.make("1.0.0", "pdf", published_at="2026-01-01T00:00:00Z")
    official.make("1.0.0", "pdf-helper", published_at="2026-11-01T00:00:00Z")
    listed = [{"name": name, "description": "Reads."} for name in ("pdf", "pdf-helper")]
    official.write("index/list/1.json", json.dumps({"skills": listed}).encode())
    configure(place, ("official", official.address, True))
    flags = ("--yes", "--allow-unsigned")
    code, out, _ = run("install", "pdf-helper", *flags)
    assert (code, lock_of(place)) == (2, {})
    assert "which `official` had before" in " ".join(out.split())
    # The older one is what it is.
    assert run("install", "pdf", *flags)[0] == 0
    assert run("install", "pdf-helper", *flags, "--accept-near")[0] == 0


ALLOWED = "https://github.com/acme/*"


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/acme/../mallory/skills",
        "https://github.com/acme/%2e%2e/mallory/skills",
        "https://github.com/acme/./x",
        "https://github.com/acme//mallory",
        "https://github.com/acme%2fskills",
        "https://github.com/acme-evil/skills",
        "https://github.com/Acme/skills",
        "https://github.com.evil.example/acme/skills",
        "https://github.com:444/acme/skills",
        "https://github.com@evil.example/acme/skills",
        "https://acme@github.com/acme/skills",
        "http://github.com/acme/skills",
        "ssh://github.com/acme/skills",
        "https://evil.example/https://github.com/acme/skills",
    ],
)
def test_a_source_that_looks_like_an_allowed_one(text: str):
    naive = "github.com" in text and "acme" in text.lower()
    assert naive
    assert fits(ALLOWED, "https://github.com/acme/skills")
    assert not fits(ALLOWED, text)


def test_an_update_that_says_it_is_old(run: Run, place: Path):
    """The date that a repository says which is not trusted makes nothing old."""
    community = StaticRepository(place / "community")
    community.make("1.0.0")
    more = '[registry]\nmin_release_age = "24h"\n'
    configure(place, ("community", community.address, False), more=more)
    flags = ("--yes", "--allow-unsigned", "--accept-untrusted")
    assert run("install", "notes", *flags)[0] == 0
    release = community.make("1.1.0", published_at="1999-01-01T00:00:00Z")
    naive = datetime.now(UTC) - datetime.fromisoformat(release.published_at)
    assert naive.days > 1
    for _ in range(2):
        assert "held back" in run("update", *flags)[2]
    assert lock_of(place)["notes"]["version"] == "1.0.0"

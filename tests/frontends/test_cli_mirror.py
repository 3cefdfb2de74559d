"""`registry mirror` from the command line, of a real server; and installs from what it makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.extensions.registry.hosting.servers import Server, package, serving
from tests.frontends.conftest import Run
from tests.frontends.test_cli_repositories import AGREED, configure, installed, lock_of
from tests.loopback_http import served
from tests.registry.repositories import static_server

pytestmark = pytest.mark.slow


def publish(server: Server, place: Path, version: str, name: str = "notes") -> None:
    token = server.token("admin")
    skill = name.rpartition("--")[2]
    body = f"Version {version}."
    archive = package(place, skill, version, body)
    assert server.publish(archive, name, version, token).status == 201


def test_a_mirror_of_a_server_installs_from_anywhere_and_follows(run: Run, place: Path) -> None:
    mirror = place / "mirror"
    with serving(place / "server", "--name", "skills.example.com") as server:
        publish(server, place, "1.0.0")
        publish(server, place, "1.1.0")
        publish(server, place, "3.0.0", "acme--notes")
        code, out, err = run("registry", "mirror", server.url, str(mirror))
        assert (code, out) == (0, "2 skills read, 2 with something new: 3 archives, 9285 bytes\n")
        assert "notes: 2 new of 2 versions" in err
        publish(server, place, "1.2.0")
        code, out, _ = run("registry", "mirror", server.url, str(mirror), "--json")
        done = json.loads(out)
        assert (code, done["skills"], done["archives"], done["problems"]) == (0, 1, 1, [])
        token = server.token("admin")
        assert server.change("yank", "notes", "1.2.0", token, "slow").status == 200
        assert run("registry", "mirror", server.url, str(mirror))[0] == 0
        # A mirror of the mirror, which has no server.
        assert run("registry", "mirror", str(mirror), str(place / "second"))[0] == 0
    with served(static_server(mirror)) as address:
        for url in (address, mirror.as_uri(), str(mirror), (place / "second").as_uri()):
            configure(place, ("official", url, True))
            code, _, err = run("install", "notes", *AGREED)
            assert code == 0, err
            assert "Version 1.1.0" in installed(place)
            entry = lock_of(place)["notes"]
            assert (entry["version"], entry["repository"]) == ("1.1.0", "official")
            assert run("verify")[:2] == (0, "user:notes  as installed\n")
            assert run("outdated")[0] == 0
            assert run("uninstall", "notes")[0] == 0
            code, _, err = run("install", "@acme/notes", *AGREED)
            assert code == 0, err
            assert run("uninstall", "notes")[0] == 0
            assert "notes" in run("install", "--search", "acme")[1]


def test_a_configured_repository_is_mirrored_by_its_name_with_its_token(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = str(place / "mirror")
    with serving(place / "server", "--private") as server:
        publish(server, place, "1.0.0")
        more = 'token = "env:SKILLS_TOKEN"\n'
        configure(place, ("private", server.url, True), more=more)
        monkeypatch.setenv("SKILLS_TOKEN", server.token("read"))
        code, _, err = run("registry", "mirror", server.url, mirror)
        assert code == 1
        assert "status 401" in err
        assert run("registry", "mirror", "private", mirror, "--skill", "notes")[0] == 0
        # The token is in no file of it.
        found = [path.read_bytes() for path in Path(mirror).rglob("*") if path.is_file()]
        secret = server.token("read").encode()
        assert found
        assert not any(secret in data for data in found)
        code, _, err = run("registry", "mirror", "other", mirror)
        assert code == 1
        assert "no repository `other` is configured" in err


def test_what_cannot_be_mirrored_is_said(run: Run, place: Path) -> None:
    (place / "full").mkdir()
    (place / "full/letter").write_text("mine")
    with serving(place / "server") as server:
        publish(server, place, "1.0.0")
        code, _, err = run("registry", "mirror", server.url, str(place / "full"))
        assert code == 1
        assert "name an empty directory" in err
        code, _, err = run("registry", "mirror", server.url, str(place / "m"), "--skill", "gone")
        assert code == 1
        assert "gone: it is not at the source" in err
    code, _, err = run("registry", "mirror", server.url, str(place / "m"))
    assert code == 1
    assert "no connection" in err
    code, _, err = run("registry", "mirror", str(place / "nowhere"), str(place / "n"))
    assert code == 1
    assert "no directory" in err

"""Tests of `skillhouse registry root`, up to a client that installs from the server."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import threading
from pathlib import Path

import pytest
from tests.extensions.registry.hosting.servers import package, serving
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import AGREED, configure, lock_of
from tests.registry.publisher_skill import LOCKED, PASSWORD
from tests.registry.rooted import RootedRegistry

from skillhouse.extensions.registry.hosting import checked_address, open_repository
from skillhouse.registry import DirectoryAccess
from skillhouse.registry.releases import index_path
from skillhouse.registry.signed_targets import SignedTargets

__all__ = ["place", "run"]
KEYS = ("--key", "a.pem", "--key", "b.pem", "--key", "c.pem")
TWO = ("--key", "a.pem", "--key", "c.pem")
HERE = ("--directory", "registry")


@pytest.fixture
def rooted(run: Run) -> str:
    """Make a registry with a root in `registry`; return what a person pins."""
    assert run("registry", "root", "init", *KEYS, *HERE)[0] == 0
    assert run("registry", "root", "sign", *TWO, *HERE)[0] == 0
    return str(status(run)["root"])


def status(run: Run) -> dict[str, object]:
    _, out, _ = run("registry", "root", "status", *HERE, "--json")
    found: dict[str, object] = json.loads(out)
    return found


def test_a_root_is_in_force_once_more_than_half_of_its_keys_signed(run: Run):
    code, out, err = run("registry", "root", "init", *KEYS, *HERE)
    assert (code, err.count("made the key")) == (0, 3)
    assert out.startswith("no root is in force yet\nroot     version 1, until ")
    assert "waits, 0 of 2 keys" in out
    assert Path("a.pem").stat().st_mode & 0o777 == 0o600
    assert run("registry", "root", "sign", "--key", "a.pem", *HERE)[0] == 0
    assert status(run)["root"] == ""
    code, out, err = run("registry", "root", "sign", "--key", "b.pem", *HERE)
    assert re.match(r"root sha256:[0-9a-f]{64}\n", out), out
    assert "signed root, targets, index, owners with the key" in err
    assert run("registry", "root", "init", *KEYS, *HERE)[0] == 2


def test_it_is_signed_on_a_machine_without_the_registry(run: Run, rooted: str):
    assert run("registry", "root", "owners", "pdf=acme", "@ops=ops-team,acme", *HERE)[0] == 0
    shutil.copytree("registry/pending", "carried/pending")
    for key in ("a.pem", "b.pem"):
        code, _, err = run("registry", "root", "sign", "--key", key, "--pending", "carried/pending")
        assert (code, "owner of @ops: acme, ops-team" in err) == (0, True), err
    shutil.copytree("carried/pending", "registry/pending", dirs_exist_ok=True)
    assert run("registry", "root", "sign", *HERE)[0] == 0
    assert status(run)["owners"] == {"@ops": ["acme", "ops-team"], "pdf": ["acme"]}
    assert status(run)["root"] == rooted


@pytest.mark.usefixtures("rooted")
def test_names_are_unclaimed_claimed_and_given_up(run: Run, place: Path):
    with serving(Path("registry").absolute()) as server:
        token = server.token("publish:default/*")
        assert server.publish(package(place), "pdf", "1.0.0", token).status == 201
    assert status(run)["unclaimed"] == ["pdf"]
    assert run("registry", "root", "owners", "--claim", *HERE)[0] == 2
    run("registry", "root", "owners", "pdf=acme", *HERE)
    run("registry", "root", "sign", *TWO, *HERE)
    assert status(run)["unclaimed"] == []
    run("registry", "root", "owners", "pdf=", *HERE)
    run("registry", "root", "sign", *TWO, *HERE)
    assert status(run)["unclaimed"] == ["pdf"]


def test_a_claim_gives_each_name_to_who_signed_it(run: Run, place: Path):
    registry = RootedRegistry(place)
    registry.publish("pdf", "1.0.0", "acme")
    registry.publish("csv", "1.0.0")
    registry.publish("old", "1.0.0", "ops")
    registry.hosted.set_state(checked_address("old", "1.0.0"), "revoked", "")
    registry.close()
    where = ("--directory", str(registry.directory))
    assert run("registry", "root", "owners", "--claim", *where)[0] == 0
    keys = ("--key", str(place / "a.pem"), "--key", str(place / "b.pem"))
    code, out, _ = run("registry", "root", "sign", *keys, *where, "--json")
    found = json.loads(out)
    assert (code, found["owners"]) == (0, {"old": ["ops"], "pdf": ["acme"]})
    assert found["unclaimed"] == ["csv"]


@pytest.mark.usefixtures("rooted")
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("owners", "pdf"), 2, "expected NAME=PUBLISHER"),
        (("owners", "PDF=acme"), 1, "no name of a skill"),
        (("owners", "@Ops=acme"), 1, "no namespace"),
        (("owners", "pdf=ACME"), 1, "publishers of `pdf`"),
        (("owners",), 2, "nothing changes"),
        (("rotate", "--remove", "00000000"), 2, "no key of the root begins with"),
        (("rotate", "--threshold", "4"), 2, "of which 4 sign; got 3"),
        (("sign", "--key", "a.pem"), 1, "nothing waits for a signature"),
        (("sign", "--key", "no.pem"), 3, "no.pem"),
        (("sign", "--pending", "elsewhere"), 2, "expected a copy of the directory `pending`"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, words: tuple[str, ...], code: int, text: str):
    where = () if "--pending" in words else HERE
    found, _, err = run("registry", "root", *words, *where)
    assert (found, text in err) == (code, True), err
    assert not Path("registry/pending").exists()


@pytest.mark.usefixtures("rooted")
def test_a_key_that_others_can_read_does_not_sign(run: Run):
    run("registry", "root", "owners", "pdf=acme", *HERE)
    Path("a.pem").chmod(0o644)
    code, _, err = run("registry", "root", "sign", "--key", "a.pem", *HERE)
    assert (code, "the key is not used" in err) == (1, True), err


@pytest.mark.slow
def test_what_was_acknowledged_is_signed_after_kills(run: Run, place: Path, rooted: str):
    directory = Path("registry").absolute()
    # None of them may be taken for another.
    shown = (hashlib.sha256(bytes([one])).hexdigest()[:12] for one in range(60))
    names = ["".join(chr(97 + int(digit, 16)) for digit in one) for one in shown]
    archives = {name: package(place, name) for name in names}
    done: list[str] = []
    for _ in range(3):
        with serving(directory) as server:
            token = server.token("publish:default/*")
            killer = threading.Timer(0.4, server.process.kill)
            try:
                for name in [one for one in archives if one not in done]:
                    answer = server.publish(archives[name], name, "1.0.0", token)
                    # The same again after an answer that was lost.
                    assert answer.status in (201, 409), answer.body
                    done.append(name)
                    if killer.ident is None:
                        killer.start()
            except (OSError, http.client.HTTPException):
                # It was killed.
                continue
            finally:
                killer.cancel()
    with serving(directory) as server:
        answers = [server.ask(f"/metadata/{number}.root.json").status for number in (1, 2)]
        assert answers == [200, 404]
        hosted = open_repository(directory)
        hosted.sign_changes()
        hosted.store.close()
    signed = SignedTargets(
        DirectoryAccess(directory), address="x", root=rooted, state=place / "seen", stale_days=0
    )
    assert done
    assert all(signed.read(index_path("default", name)) for name in done)


def test_keys_behind_a_password_sign_by_their_names(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PUBLISHER_TEST", PASSWORD)
    for name, use in (("alice", "skills"), ("bob", "root")):
        assert run("keys", "new", name, "--for", use, *LOCKED)[0] == 0
    keys = ("--key", "alice", "--key", "bob", "--key", "c.pem")
    assert run("registry", "root", "init", *keys, *LOCKED, *HERE)[0] == 0
    wrong = ("--password", "env:HOME")
    code, _, err = run("registry", "root", "sign", "--key", "alice", *wrong, *HERE)
    assert (code, status(run)["root"]) == (1, ""), err
    code, out, err = run(
        "registry", "root", "sign", "--key", "alice", "--key", "bob", *LOCKED, *HERE
    )
    assert (code, out.startswith("root sha256:")) == (0, True), err
    assert run("registry", "root", "sign", "--key", "carol", *LOCKED, *HERE)[0] == 1


def test_a_coding_agent_signs_nothing(run: Run, rooted: str, monkeypatch: pytest.MonkeyPatch):
    run("registry", "root", "owners", "pdf=acme", *HERE)
    monkeypatch.setenv("CLAUDECODE", "1")
    for words in (("sign", *TWO), ("owners", "pdf=evil"), ("rotate",)):
        code, _, err = run("registry", "root", *words, *HERE)
        assert (code, "is for a person" in err) == (1, True), err
    assert rooted


def test_a_client_installs_by_the_root_from_a_server_that_needs_a_token(
    run: Run, place: Path, rooted: str
):
    with serving(Path("registry").absolute(), "--private") as server:
        token = server.token("publish:default/*", "read")
        Path("token").write_text(token)
        Path("token").chmod(0o600)
        assert server.publish(package(place), "pdf", "1.0.0", token).status == 201
        more = f'root = "{rooted}"\nregistry = "local"\ntoken = "file:{Path("token").absolute()}"\n'
        configure(place, ("ours", server.url, True), more=more)
        code, out, err = run("install", "pdf", *AGREED)
        assert code == 0, out + err
        assert "owner" in out
        assert "the name is unclaimed" in " ".join(out.split())
        assert server.ask("/metadata/timestamp.json").status == 401
        assert server.ask("/targets/../registry.sqlite3", token=token).status == 404
        assert server.ask("/metadata/..%2fregistry.sqlite3", token=token).status == 404
        page = server.ask("/", token=token).body.decode()
        assert f'root = "{rooted}"' in page
    assert lock_of(place)["pdf"]["version"] == "1.0.0"

"""Tests of `skillhouse registry` at the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.extensions.registry.hosting.servers import package, serving
from tests.frontends.conftest import Run, place, run
from tests.registry.pki import make_root, make_world
from tests.registry.publisher_skill import REGISTRY

from skillhouse.extensions.registry.hosting import open_repository
from skillhouse.registry import pem_of

__all__ = ["place", "run"]


def tokens(run: Run) -> list[dict[str, object]]:
    _, out, _ = run("registry", "token", "list", "--json")
    found: list[dict[str, object]] = json.loads(out)["tokens"]
    return found


def test_a_token_is_shown_once(run: Run) -> None:
    scopes = ("--scope", "publish:pdf", "--scope", "yank:acme/*")
    code, out, err = run("registry", "token", "new", *scopes, "--days", "3", "--note", "ci")
    assert (code, bool(re.fullmatch(r"skr_[0-9a-f]{12}_[\w-]{43}\n", out))) == (0, True)
    assert "may publish:default/pdf, yank:acme/*; it is not shown again" in err
    secret = out.strip().rpartition("_")[2]
    for arguments in (("--json",), ()):
        code, out, _ = run("registry", "token", "list", *arguments)
        assert (code, secret in out, "ci" in out) == (0, False, True)
    (token,) = tokens(run)
    assert "digest" not in token
    assert token["scopes"] == ["publish:default/pdf", "yank:acme/*"]


def test_a_token_is_revoked_once(run: Run) -> None:
    run("registry", "token", "new", "--scope", "read")
    (token,) = tokens(run)
    assert run("registry", "token", "revoke", str(token["id"]))[:2] == (0, "revoked\n")
    assert run("registry", "token", "revoke", str(token["id"]))[0] == 1
    assert tokens(run)[0]["revoked_at"]


def test_without_tokens_the_list_says_how_to_make_one(run: Run) -> None:
    assert run("registry", "token", "list") == (
        0,
        "",
        "no tokens yet; make one with `skillhouse registry token new --scope …`\n",
    )


@pytest.mark.parametrize("scope", ["write", "publish:*/pdf", "publish:PDF", "read "])
def test_a_scope_that_is_none_is_refused(run: Run, scope: str) -> None:
    code, out, err = run("registry", "token", "new", "--scope", scope)
    assert (code, out) == (2, "")
    assert "expected read, metrics, admin, publish:NAMESPACE/NAME" in err
    assert tokens(run) == []


def test_a_coding_agent_makes_no_token(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    code, out, err = run("registry", "token", "new", "--scope", "admin")
    assert (code, out, "is for a person" in err) == (1, "", True)


def test_a_signed_skill_is_published_where_its_root_is_trusted(
    run: Run, place: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    open_repository(state, name=REGISTRY).store.close()
    world = make_world(tmp_path / "pki")
    Path("root.crt").write_bytes(pem_of([world.root.certificate]))
    Path("other.crt").write_bytes(pem_of([make_root("other.example.com").certificate]))
    where = ("--directory", str(state))
    assert run("registry", "trust", "other.crt", *where)[0] == 1
    assert run("registry", "trust", "no-such-file", *where)[0] == 3
    code, out, _ = run("registry", "trust", "root.crt", *where)
    assert (code, out) == (0, f"packages of publishers of `{REGISTRY}` are taken now\n")


def test_serve_prints_its_address_as_json(tmp_path: Path) -> None:
    state = tmp_path / "state"
    # As `mkdir` makes it.
    state.mkdir()
    state.chmod(0o755)
    command = [sys.executable, "-m", "skillhouse", "registry", "serve", str(state), "--port", "0"]
    kept = {name: value for name, value in os.environ.items() if name != "HOME"}
    with subprocess.Popen(
        [*command, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**kept, "HOME": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        value = json.loads("".join(lines))
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert value["name"] == "local"
    assert value["address"].startswith("http://127.0.0.1:")


def test_where_signatures_are_required_an_unsigned_skill_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "state", "--require-signatures") as server:
        answer = server.publish(package(tmp_path), "pdf", "1.0.0", server.token("admin"))
        assert (answer.status, answer.code) == (422, "signature")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--name", "NO NAME"), 2, "expected a name such as `skills.example.com`"),
        (("--host", "example.com"), 2, "expected an IP address"),
        (("--proxy", "x"), 2, "expected an IP address"),
        (("--host", "203.0.113.1"), 3, "no address of this machine, choose another with --host"),
    ],
)
def test_what_cannot_be_served_is_said(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    found, out, err = run("registry", "serve", str(tmp_path / "state"), "--port", "0", *arguments)
    assert (found, out) == (code, "")
    assert text in err


def test_a_registry_is_backed_up_and_brought_back(run: Run, place: Path) -> None:
    assert run("registry", "backup", "out.tar")[0] == 2
    run("registry", "token", "new", "--scope", "read")
    (token,) = tokens(run)
    code, out, _ = run("registry", "backup", "out.tar")
    assert (code, out) == (0, "`local` is in the backup: 0 archives, up to change 0\n")
    file = Path("out.tar")
    assert file.stat().st_mode & 0o077 == 0
    run("registry", "token", "revoke", str(token["id"]))
    code, out, err = run("registry", "restore", "out.tar")
    assert (code, out) == (0, "`local` is restored: 0 archives, up to change 0\n")
    assert "the rows of before are in " in err
    # What was revoked since stays so.
    assert tokens(run)[0]["revoked_at"]
    code, _, err = run("registry", "restore", "out.tar", "--seen", "5")
    assert (code, "use --go-back if you mean that" in err) == (1, True)
    value = json.loads(
        run("registry", "restore", "out.tar", "--seen", "5", "--go-back", "--json")[1]
    )
    assert (value["registry"], value["last_change"]) == ("local", 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--webhook", "https://hooks.example.com/"), "expected --webhook-secret"),
        (
            ("--webhook", "https://hooks.example.com/", "--webhook-secret", "env:SHORT"),
            "24 bytes",
        ),
        (("--webhook", "http://hooks.example.com/", "--webhook-secret", "env:LONG"), "https"),
        (("--oidc", "none.toml"), "cannot read it"),
    ],
)
def test_what_a_server_cannot_begin_with_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("SHORT", "c2hvcnQ=")
    monkeypatch.setenv("LONG", "s" * 44)
    code, out, err = run("registry", "serve", "--port", "0", *options)
    assert (code in (1, 2), out) == (True, "")
    assert said in err

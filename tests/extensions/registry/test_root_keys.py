"""Tests of root keys that are in no file: in a hardware token, and behind the system's keyring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest
from tests.extensions.registry.hosting.servers import package, serving
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_publishers import MemoryKeyring
from tests.frontends.test_cli_repositories import AGREED, configure, lock_of
from tests.signer.test_token_keys import MODULE, with_token

__all__ = ["place", "run"]
HERE = ("--directory", "registry")
PIN = "1234"
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(place: Path) -> Command:
    """Run a command in a process of its own: the module of a token reads its configuration once.

    The token `acme` is there, with the PIN in the variable `TOKEN_PIN`.
    """
    tokens = place / "tokens"
    tokens.mkdir()
    file = place / "softhsm.conf"
    file.write_text(f"directories.tokendir = {tokens}\n")
    environment = {**os.environ, "SOFTHSM2_CONF": str(file), "TOKEN_PIN": PIN}
    made = "softhsm2-util --init-token --free --label acme --so-pin 5678 --pin"
    subprocess.run([*made.split(), PIN], check=True, capture_output=True, env=environment)

    def call(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "skillhouse", *words],
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def in_token(command: Command, name: str, use: str) -> None:
    uri = f"pkcs11:token=acme;object={name}?module-path={MODULE}"
    words = ("keys", "new", name, "--for", use, "--token", uri, "--password", "env:TOKEN_PIN")
    done = command(*words, "--output", f"{name}.crt") if use == "root" else command(*words)
    assert done.returncode == 0, done.stderr


def installs(run: Run, place: Path, root: str) -> None:
    """A client that pinned the root installs from the server."""
    with serving(Path("registry").absolute()) as server:
        token = server.token("publish:default/*")
        assert server.publish(package(place), "pdf", "1.0.0", token).status == 201
        configure(place, ("ours", server.url, True), more=f'root = "{root}"\n')
        code, out, err = run("install", "pdf", *AGREED)
        assert code == 0, out + err
    assert lock_of(place)["pdf"]["version"] == "1.0.0"


@pytest.mark.slow
@with_token
def test_keys_in_a_token_sign_the_root(run: Run, place: Path, command: Command) -> None:
    """On both curves, and together with a key in a file."""
    in_token(command, "alice", "skills")
    in_token(command, "bob", "root")
    keys = ("--key", "alice", "--key", "bob", "--key", "c.pem")
    pin = ("--password", "env:TOKEN_PIN")
    done = command("registry", "root", "init", *keys, *pin, *HERE)
    assert done.returncode == 0, done.stderr
    wrong = command("registry", "root", "sign", "--key", "alice", *pin, *HERE, TOKEN_PIN="98765")
    assert (wrong.returncode, "98765" in wrong.stdout + wrong.stderr) == (1, False)
    assert "token: `acme` answers " in wrong.stderr
    signed = command("registry", "root", "sign", "--key", "alice", "--key", "bob", *pin, *HERE)
    assert signed.returncode == 0, signed.stderr
    root = signed.stdout.partition("\n")[0].removeprefix("root ")
    assert root.startswith("sha256:")
    assert not list(place.rglob("alice*.pem"))
    installs(run, place, root)
    # The next root is signed by one in the token and the one in the file.
    done = command("registry", "root", "rotate", "--add", "d.pem", *pin, *HERE)
    assert done.returncode == 0, done.stderr
    mixed = ("--key", "alice", "--key", "c.pem", "--key", "d.pem")
    done = command("registry", "root", "sign", *mixed, *pin, *HERE, "--json")
    assert done.returncode == 0, done.stderr
    roles = {one["role"]: one for one in json.loads(done.stdout)["roles"]}
    assert (roles["root"]["version"], roles["root"]["is_pending"]) == (2, False)


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    before, made = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


@pytest.mark.slow
def test_a_key_in_the_keyring_signs_the_root_without_a_question(
    run: Run, place: Path, ring: MemoryKeyring
) -> None:
    assert run("keys", "new", "alice", "--for", "root", "--password", "keyring")[0] == 0
    keys = ("--key", "alice", "--key", "b.pem")
    assert run("registry", "root", "init", *keys, *HERE)[0] == 0
    code, out, err = run("registry", "root", "sign", *keys, *HERE)
    assert code == 0, err
    installs(run, place, out.partition("\n")[0].removeprefix("root "))
    run("registry", "root", "owners", "pdf=acme", *HERE)
    ring.kept.clear()
    code, _, err = run("registry", "root", "sign", *keys, *HERE)
    assert (code, "the OS keyring has no secret" in err) == (1, True), err

"""Tests of `skillhouse worker` where it does not start, and of the options of `up` beside it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from skillhouse.extensions.server.up_verb import host_name
from skillhouse.frontends.cli.options import address
from tests.frontends.conftest import Run

SECRET = "a-token-that-is-never-shown"


@pytest.fixture
def words(place: Path) -> list[str]:
    (place / "skills").mkdir()
    (place / "token").write_text(SECRET + "\n")
    return ["worker", "--skills", str(place / "skills"), "--core", "http://core:1/rpc"]


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ([], "one of the arguments --token-file --token-env --tokens is required"),
        (["--token-file", "{}/missing"], "cannot read the token: no such file or directory"),
        (["--token-file", "{}/skills"], "expected a file with the token"),
        (["--token-file", "{}/short"], "expected a token of at least 16"),
        (["--token-env", "NOT_THERE"], "expected the token in the variable `NOT_THERE`"),
        (["--token-file", "{}/token", "--token-env", "A"], "not allowed with argument"),
        (["--token", SECRET], "ambiguous option: --token could match"),
    ],
)
def test_without_a_token_it_does_not_start(
    run: Run, words: list[str], place: Path, token: list[str], said: str
) -> None:
    (place / "short").write_text("short")
    code, out, err = run(*words, *(word.replace("{}", str(place)) for word in token))
    assert (code, out) == (2, "")
    assert said in err
    assert SECRET not in err


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--core", "ftp://core/rpc", "expected an address as http://HOST:PORT/rpc"),
        ("--core", "http://co re/rpc", "expected an address as http://HOST:PORT/rpc"),
        ("--tls-key", "/not/there", "expected --tls-certificate and --tls-key together"),
        ("--tls-ca", "/not/there", "expected --tls-certificate and --tls-key with --tls-ca"),
        ("--calls", "0", "expected a number from 1, got `0`"),
        ("--name", "a b", "expected letters, digits, dots and dashes after --name"),
        ("--core", "http://user:word@core/rpc", "expected an address as http://HOST:PORT/rpc"),
        ("--core", "core:8701", "expected an address as http://HOST:PORT/rpc"),
        ("--skills", "/not/there", "expected a directory after --skills"),
        ("--node-packages", "/not/there", "expected a directory after --node-packages"),
        ("--port", "70000", "expected a port"),
        ("--boundary", "none", "invalid choice"),
    ],
)
def test_words_that_are_off_are_named(
    run: Run, words: list[str], place: Path, option: str, value: str, said: str
) -> None:
    code, out, err = run(*words, "--token-file", str(place / "token"), option, value)
    assert (code, out) == (2, "")
    assert said in err
    assert "word" not in err


def test_up_takes_addresses_and_names_apart() -> None:
    assert [address(text) for text in ("localhost", "0.0.0.0", "::1")] == [
        *("127.0.0.1", "0.0.0.0", "::1"),
    ]
    assert host_name("House.Example.com:8600") == "house.example.com:8600"
    for text in ("house.example.com", "256.0.0.1", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            address(text)
    for text in ("*", "*.example.com", "a b", "http://a", "a:", "a/b", "", "a:123456", "a@b"):
        with pytest.raises(argparse.ArgumentTypeError):
            host_name(text)


@pytest.mark.parametrize("more", [["--host", "0.0.0.0"], ["--allow-host", "house.test"]])
def test_up_without_a_token_is_for_this_machine_only(run: Run, more: list[str]) -> None:
    code, out, err = run("up", "--no-auth", *more)
    assert (code, out) == (2, "")
    assert "--no-auth is for this machine only" in err

"""Tests of the keys of publishers at the command line: what ends soon, and how one is removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from skillhouse_signer import KEYSTORE_FILE
from tests.frontends.conftest import Run
from tests.registry.publisher_skill import LOCKED, REGISTRY

Typing = Run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("publisher")]


def publishers() -> Path:
    return Path.home() / ".local/state/skillhouse/publishers"


def names(run: Run) -> list[str]:
    return [one["name"] for one in json.loads(run("keys", "list", "--json")[1])["keys"]]


def test_a_key_is_removed_by_its_name_and_its_encrypted_copy_is_a_key_again(
    run: Run, typing: Typing
) -> None:
    code, _, said = typing("yes", "keys", "remove", "acme")
    assert code == 1
    assert "`acme` signs nothing more; what it signed stays valid" in said
    assert "nothing was removed: expected the name of the key, `acme`" in said
    assert names(run) == ["acme", "root"]

    code, out, _ = typing("acme", "keys", "remove", "acme")
    assert (code, out.startswith("removed acme; an encrypted copy is in `")) == (0, True)
    assert names(run) == ["root"]
    assert not list((publishers() / "keys").glob("acme*"))
    assert "no publisher key `acme`" in run("keys", "request", "acme", *LOCKED)[2]

    (copy,) = (publishers() / "removed").iterdir()
    assert b"ENCRYPTED PRIVATE KEY" in (copy / "acme.key").read_bytes()
    assert (copy.stat().st_mode & 0o777, (copy / "acme.key").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    for file in copy.iterdir():
        shutil.copy(file, publishers() / "keys")
    assert names(run) == ["acme", "root"]
    assert run("sign", "pdf", *LOCKED)[0] == 0


def test_a_key_is_removed_for_good_where_that_is_said(run: Run) -> None:
    code, out, err = run("keys", "remove", "root", "--final", "--yes", "--json")
    assert code == 0
    assert json.loads(out) == {"name": "root", "for": "root", "copy": ""}
    assert "a list of revocations that it signed ends within 30 days" in err
    assert "it cannot be had back" in err
    assert names(run) == ["acme"]
    assert not (publishers() / "removed").exists()


def test_who_cannot_be_asked_removes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("keys", "remove", "acme")
    assert (code, "cannot ask without a terminal; use --yes" in err) == (2, True)
    code, _, err = run("keys", "remove", "acme", "--for", "root", "--yes")
    assert (code, "is one for skills, not for root" in err) == (2, True)
    code, _, err = run("keys", "remove", "none", "--for", "skills", "--yes")
    assert (code, "no publisher key `none`" in err) == (1, True)
    monkeypatch.setenv("CLAUDECODE", "1")
    code, _, err = run("keys", "remove", "acme", "--yes")
    assert (code, "`keys remove` is for a person" in err) == (1, True)
    assert names(run) == ["acme", "root"]


def test_of_two_keys_of_one_name_the_one_that_is_named_goes(run: Run) -> None:
    assert run("keys", "new", "acme", *LOCKED)[0] == 0
    assert (publishers().parent / KEYSTORE_FILE).is_file()
    code, _, err = run("keys", "remove", "acme", "--yes", *LOCKED)
    assert (code, "there are two keys `acme`" in err) == (2, True)
    assert run("keys", "remove", "acme", "--for", "skills", "--yes")[0] == 0
    assert names(run) == ["acme", "root"]
    assert run("keys", "remove", "acme", "--yes", *LOCKED)[0] == 0
    assert names(run) == ["root"]


def test_a_certificate_that_ends_within_30_days_is_warned_of(run: Run) -> None:
    assert run("keys", "list")[2] == ""
    for days, warned in (("29", True), ("31", False)):
        issue = ("keys", "issue", "acme.csr", "--by", "root", "--days", days, *LOCKED)
        assert run(*issue)[0] == 0
        code, _, err = run("keys", "list")
        found = json.loads(run("keys", "list", "--json")[1])["keys"]
        assert (code, [bool(one["warning"]) for one in found]) == (0, [warned, False])
        assert ("acme: its certificate ends in 28 days" in err) is warned
        assert ("`skillhouse keys request acme` asks for the next one" in err) is warned


def test_an_intermediate_that_ends_soon_is_warned_of_with_what_is_below_it(run: Run) -> None:
    assert run("keys", "new", "ca", "--for", "intermediate", *LOCKED)[0] == 0
    assert run("keys", "request", "ca", *LOCKED)[0] == 0
    ca = ("keys", "issue", "ca.csr", "--by", "root", "--intermediate", "--days", "20")
    assert run(*ca, *LOCKED)[0] == 0
    acme = ("keys", "issue", "acme.csr", "--by", "ca", "--days", "10")
    assert run(*acme, *LOCKED)[0] == 0
    root = ("keys", "new", "short", "--for", "root", "--registry", REGISTRY, "--days", "9")
    assert run(*root, "--output", "short.crt", *LOCKED)[0] == 0
    _, _, err = run("keys", "list")
    assert "acme: its certificate ends in 9 days" in err
    assert "ca: its certificate ends in 19 days" in err
    assert "short: its certificate ends in 8 days" in err
    assert "make a root with another name" in err

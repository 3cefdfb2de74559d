"""Tests of sandbox/git_mounts.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.sandbox.git_mounts import opened_config
from tests.repositories import git, plain

pytestmark = pytest.mark.usefixtures("git")


def config_of(place: Path) -> dict[str, str]:
    listed = git(place, "config", "--file", ".git/config", "--list")
    return dict(line.split("=", 1) for line in listed.splitlines())


def branch(place: Path) -> None:
    git(place, "remote", "add", "origin", "../up.git")
    git(place, "config", "branch.main.remote", "origin")
    git(place, "config", "branch.main.merge", "refs/heads/main")


def renamed(place: Path) -> None:
    git(place, "config", "branch.main.vscode-merge-base", "origin/main")
    git(place, "branch", "-q", "-m", "main", "trunk")


@pytest.mark.parametrize("change", [branch, renamed])
def test_branches_and_remotes_stay(tmp_path: Path, change: Callable[[Path], None]) -> None:
    place = plain(tmp_path)
    git(place, "config", "branch.main.vscode-merge-base", "origin/main")
    opened = opened_config(f"{place}/.git/config")
    assert opened is not None
    change(place)
    after = (place / ".git/config").read_bytes()
    assert opened.check() == ()
    assert (place / ".git/config").read_bytes() == after


def test_anything_else_is_taken_out_key_by_key(tmp_path: Path) -> None:
    place = plain(tmp_path)
    git(place, "config", "core.pager", "less")
    git(place, "config", "--add", "alias.x", "status")
    before = config_of(place)
    opened = opened_config(f"{place}/.git/config")
    assert opened is not None
    branch(place)
    for key, value in (
        ("core.fsmonitor", "sh -c evil"),
        ("core.pager", "sh -c evil"),
        ("remote.origin.uploadpack", "evil"),
        ("remote.evil.url", "ext::sh -c evil"),
        ("branch.main.remote", "-evil"),
        ("include.path", "evil"),
        ("includeIf.gitdir:/.path", "evil"),
        ("url.evil.insteadOf", "https://"),
        ("filter.x.clean", "evil"),
    ):
        git(place, "config", key, value)
    git(place, "config", "--unset", "alias.x")
    (note,) = opened.check()
    assert "`core.fsmonitor`" in note
    assert config_of(place) == before | {
        "remote.origin.url": "../up.git",
        "remote.origin.fetch": "+refs/heads/*:refs/remotes/origin/*",
        "branch.main.merge": "refs/heads/main",
    }
    assert sorted(path.name for path in (place / ".git").glob("config*")) == ["config"]


def test_what_git_cannot_read_is_put_back(tmp_path: Path) -> None:
    place = plain(tmp_path)
    file = place / ".git/config"
    before = file.read_bytes()
    opened = opened_config(str(file))
    assert opened is not None
    file.write_bytes(before + b"[broken\n")
    assert "put back" in opened.check()[0]
    assert file.read_bytes() == before

"""Tests of sandbox/git_remotes.py: which repositories a command of git talks to by a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.sandbox.git_remotes import added_remote, path_of, remote_paths
from tests import repositories
from tests.repositories import git

pytestmark = pytest.mark.usefixtures("bwrap", "git")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = repositories.plain(tmp_path_factory.mktemp("remotes"))
    for name, url in (
        ("origin", "../up.git"),
        ("far", "https://example.org/a.git"),
        ("both", "/srv/read.git"),
        ("short", "near:x.git"),
    ):
        git(found, "remote", "add", name, url)
    git(found, "config", "remote.both.pushurl", "host:write.git")
    git(found, "config", "url./srv/.insteadOf", "near:")
    git(found, "config", "url./srv/deep/.insteadOf", "near:x")
    git(found, "config", "url.https://push.example/.pushInsteadOf", "/srv/")
    git(found, "config", "branch.main.remote", "both")
    git(found, "config", "branch.inner.pushRemote", "origin")
    return found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fetch", ["/srv/read.git"]),
        ("pull", ["/srv/read.git"]),
        ("push", []),  # HOST:PATH
        ("push origin main", ["BASE/up.git"]),
        ("push -u origin main", ["BASE/up.git"]),
        ("push --repo origin", ["BASE/up.git"]),
        ("push -o ci.skip /srv/x", []),  # pushInsteadOf
        ("fetch -o x /srv/x main", ["/srv/x"]),
        ("fetch -t /srv/x", ["/srv/x"]),
        ("fetch --depth 1 short", ["/srv/deep/.git"]),
        ("fetch --all", ["BASE/up.git", "/srv/read.git", "/srv/deep/.git"]),
        ("fetch --multiple far origin", ["BASE/up.git"]),
        ("fetch far", []),
        ("fetch host:x", []),
        ("fetch ext::sh", []),
        ("fetch ~/x", []),
        ("fetch $PLACE", []),
        ("fetch -- ./in.git", ["BASE/repo/in.git"]),
        ("fetch file:///srv/a%20b", ["/srv/a b"]),
        ("fetch file://srv/x", ["/srv/x"]),
        ("ls-remote --get-url", []),
        ("ls-remote", ["/srv/read.git"]),
        ("ls-remote -t --sort version:refname ../x", ["BASE/x"]),
        ("clone -b main --template /t ../x there", ["BASE/repo/x"]),
        ("clone --reference=/srv/r https://example.org/x", ["/srv/r"]),
        ("archive --remote ../x HEAD", ["BASE/x"]),
        ("archive -o x.tar HEAD", []),
        ("remote update", ["BASE/up.git", "/srv/read.git", "/srv/deep/.git"]),
        ("remote update origin far", ["BASE/up.git"]),
        ("remote show origin", ["BASE/up.git"]),
        ("remote show -n origin", []),
        ("remote add -f new ../x", ["BASE/x"]),
        ("remote add new ../x", []),
        ("remote -v", []),
        ("fetch new", ["/added"]),
        ("status", []),
        ("log origin/main", []),
    ],
)
def test_paths_are_those_that_git_would_talk_to(
    place: Path, words: str, expected: list[str]
) -> None:
    word, *rest = words.split()
    found = remote_paths(word, rest, place / "packages", {"new": "/added"})
    if (word == "fetch" and "--all" in rest) or words == "remote update":
        expected = ["/added", *expected]
    base = str(place.parent)
    assert [path for _, path in found] == [one.replace("BASE", base) for one in expected]


def test_the_remote_of_a_push_may_be_another(place: Path) -> None:
    git(place, "switch", "-q", "inner")
    try:
        assert remote_paths("push", [], place, {}) == (("../up.git", str(place.parent / "up.git")),)
    finally:
        git(place, "switch", "-q", "main")


def test_without_a_repository_an_address_is_from_where_git_runs(tmp_path: Path) -> None:
    assert remote_paths("clone", ["../x"], tmp_path, {}) == (("../x", str(tmp_path.parent / "x")),)
    assert remote_paths("ls-remote", ["x"], tmp_path, {}) == (("x", str(tmp_path / "x")),)


def test_a_remote_is_added_by_words_of_git_remote() -> None:
    assert added_remote("remote", ["add", "-t", "main", "up", "../x"]) == {"up": "../x"}
    assert added_remote("remote", ["set-url", "origin", "/x"]) == {"origin": "/x"}
    assert added_remote("remote", ["show", "origin"]) == {}
    assert added_remote("fetch", ["origin", "main", "x"]) == {}


def test_other_machines_have_no_path() -> None:
    addresses = ("ssh://host/x", "user@host:x", "git://host/x", "ext::sh -c x", "~user/x")
    assert {path_of(one) for one in addresses} == {""}

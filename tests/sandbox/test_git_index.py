"""What is read of git's index is what git itself says of it, and a refresh is git's."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from skillhouse.sandbox.git_index import (
    WorkTree,
    index_entries,
    refresh_index,
    repository_around,
    repository_at,
)
from skillhouse.sandbox.git_places import leads_back
from tests.harness import ran

NAMES = [".env", "a b/ü.pem", "deep/er/than/that/x.key", "n" * 200 + "/" + "m" * 250, "run", "z"]


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), "-c", "user.name=me", "-c", "user.email=me@x", *arguments]
    return ran(command, check=True).stdout


def make(root: Path, *options: str) -> WorkTree:
    root.mkdir()
    git(root, "init", "-q", *options)
    for at, name in enumerate(NAMES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * at)
        os.utime(path, ns=(1_700_000_000_000_000_007, (1_700_000_000 + at) * 1_000_000_000 + at))
    (root / "run").chmod(0o755)
    git(root, "add", "-A")
    found = repository_at(str(root.resolve()))
    assert found is not None
    return found


def said(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of each file as git says them."""
    text = git(root, "-c", "core.quotePath=false", "ls-files", "--debug", "-z")
    form = r"\0?([^\0]+)\0  ctime.*\n  mtime: (\d+):(\d+)\n.*\n.*\n  size: (\d+)\t.*\n"
    found = re.findall(form, text)
    return {name: (int(size), int(s) * 10**9 + int(ns)) for name, s, ns, size in found}


@pytest.mark.usefixtures("git")
@pytest.mark.parametrize("version", ["2", "3", "4", "sha256"])
def test_entries_are_those_of_git(tmp_path: Path, version: str) -> None:
    is_long = version == "sha256"
    repository = make(tmp_path / "r", *(["--object-format=sha256"] if is_long else []))
    if not is_long:
        git(tmp_path / "r", "update-index", "--index-version", "4" if version == "4" else "2")
    if version == "3":
        git(tmp_path / "r", "update-index", "--skip-worktree", "z")
    entries = index_entries(repository, NAMES)
    theirs = said(tmp_path / "r")
    assert {name: (e.size, e.mtime_ns) for name, e in entries.items()} == theirs
    assert set(theirs) == set(NAMES)
    assert {name for name, entry in entries.items() if entry.is_executable} == {"run"}
    assert not any(entry.is_young for entry in entries.values())
    assert set(index_entries(repository, ["deep/", "nope"])) == {"deep/er/than/that/x.key"}


@pytest.mark.usefixtures("git")
@pytest.mark.parametrize("damage", [b"", b"DIRC", b"DIRC\0\0\0\x02\xff\xff\xff\xff" + b"\xff" * 99])
def test_what_is_no_index_has_no_entries(tmp_path: Path, damage: bytes) -> None:
    repository = make(tmp_path / "r")
    Path(repository.index).write_bytes(damage)
    assert index_entries(repository, NAMES) == {}


@pytest.mark.usefixtures("git", "bwrap")
def test_an_index_as_young_as_its_entries_is_refreshed_without_the_programs_of_the_repository(
    tmp_path: Path,
) -> None:
    """The clean filter and the monitor, which git runs of a repository's configuration."""
    repository = make(tmp_path / "r")
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    evil.chmod(0o755)
    for key in ("core.fsmonitor", "filter.x.clean", "filter.x.process"):
        git(tmp_path / "r", "config", key, str(evil))
    shutil.copy(evil, tmp_path / "r/.git/hooks/post-index-change")
    (tmp_path / "r/.git/info/attributes").write_text("* filter=x\n")
    young = 1_700_000_005
    os.utime(repository.index, (young, young))
    assert {n for n, e in index_entries(repository, NAMES).items() if e.is_young} == {"z"}
    assert refresh_index(repository, youngest_ns=young * 10**9)
    assert not any(entry.is_young for entry in index_entries(repository, NAMES).values())
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("git")
def test_a_repository_is_found_by_its_file_and_is_not_written_where_nothing_leads_back(
    tmp_path: Path,
) -> None:
    root = tmp_path / "r"
    repository = make(root)
    git(root, "commit", "-q", "-m", "one")
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = repository_around(str(tmp_path / "linked/deep/er"))
    assert linked is not None
    assert linked.directory == f"{root}/.git/worktrees/linked"
    assert leads_back(linked.directory, linked.top)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/.git").write_text(f"gitdir: {root}/.git\n")
    taken = repository_at(str(tmp_path / "taken"))
    assert taken is not None
    assert taken.directory == repository.directory
    assert not leads_back(taken.directory, taken.top)
    before = os.stat(taken.index)
    assert not refresh_index(taken, youngest_ns=0)
    assert os.stat(taken.index).st_ino == before.st_ino

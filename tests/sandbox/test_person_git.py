"""The person's settings of git, as runs have them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from skillhouse.sandbox.person_git import PersonGit
from skillhouse.sandbox.profile import GitSettings, with_git_settings
from tests.harness import Need, ran

HOSTILE = """
[user]
	name = A \\"B\\" \\\\ C
	email = me@home.test
	signingKey = ABC
[init]
	defaultBranch = trunk
[pull]
	rebase = true
[color "diff"]
	meta = "blue bold"
[core]
	pager = touch /tmp/pager
	editor = touch /tmp/editor
	fsmonitor = touch /tmp/monitor
	hooksPath = /tmp/hooks
	sshCommand = touch /tmp/ssh
	excludesFile = ~/ignored
	autocrlf
[alias]
	st = !touch /tmp/alias
[credential]
	helper = store
[url "https://evil.test/"]
	insteadOf = https://
[http]
	extraHeader = "Authorization: canary"
[filter "lfs"]
	clean = git-lfs clean -- %f
	smudge = touch /tmp/smudge
	process = git-lfs filter-process
	required = true
[filter "other"]
	clean = touch /tmp/clean
[diff]
	external = touch /tmp/external
[diff "x"]
	textconv = touch /tmp/textconv
[merge "x"]
	driver = touch /tmp/driver
[help]
	autoCorrect = immediate
[commit]
	gpgSign = true
	template = ~/template
[includeIf "gitdir:~/job/"]
	path = ~/job.config
"""


@pytest.fixture
def home(tmp_path: Path, need: Need) -> Path:
    need(shutil.which("git"), "no git")
    home = tmp_path / "home"
    for name in ("job/repo", "play"):
        subprocess.run(["git", "init", "-q", str(home / name)], check=True, env={"HOME": "/"})
    (home / ".gitconfig").write_text(HOSTILE)
    (home / "job.config").write_text("[user]\n\temail = me@job.test\n")
    (home / "ignored").write_text("*.swp\n")
    return home


def of(home: Path, place: str) -> GitSettings:
    return PersonGit({}, home).of(home / place)


def listed(config: str, tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "written"
    file.write_text(config)
    command = ["git", "config", "--file", str(file), "--list", "-z"]
    out = ran(command, check=True).stdout
    return dict(entry.partition("\n")[::2] for entry in out.split("\0") if entry)


def test_identity_and_style_are_there_and_nothing_that_runs(home: Path, tmp_path: Path) -> None:
    found = of(home, "play")
    assert listed(found.config, tmp_path) == {
        "user.name": 'A "B" \\ C',
        "user.email": "me@home.test",
        "init.defaultbranch": "trunk",
        "pull.rebase": "true",
        "color.diff.meta": "blue bold",
        "core.autocrlf": "",
        "filter.lfs.clean": "git-lfs clean -- %f",
        "filter.lfs.process": "git-lfs filter-process",
        "filter.lfs.required": "true",
    }
    assert (found.ignored, found.forced) == ("*.swp\n", {"commit.gpgsign": "false"})
    assert {"alias.st", "core.pager", "filter.lfs.smudge"} < {*found.left_out}
    assert "canary" not in repr(found)


def test_a_condition_holds_by_the_place_of_the_repository(home: Path, tmp_path: Path) -> None:
    assert listed(of(home, "job/repo").config, tmp_path)["user.email"] == "me@job.test"
    assert listed(of(home, "play").config, tmp_path)["user.email"] == "me@home.test"


def test_what_changes_is_read_again(home: Path) -> None:
    git = PersonGit({}, home)
    assert git.of(home / "play") is git.of(home / "play")
    (home / ".gitconfig").write_text("[user]\n\tname = Other\n")
    assert "Other" in git.of(home / "play").config
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("*.bak\n")
    assert git.of(home / "play").ignored == "*.bak\n"


def test_signing_that_the_repository_asks_for_is_off_too(home: Path) -> None:
    (home / ".gitconfig").write_text("")
    with (home / "play/.git/config").open("a") as file:
        file.write("[tag]\n\tgpgSign = yes\n[user]\n\tname = Of the repository\n")
    found = of(home, "play")
    assert (found.forced, found.config) == ({"tag.gpgsign": "false"}, "")
    given = with_git_settings({"GIT_CONFIG_COUNT": "1"}, found.forced)
    assert given["GIT_CONFIG_COUNT"] == "2"
    assert given["GIT_CONFIG_VALUE_1"] == "false"


@pytest.mark.parametrize("kind", ["secret", "fifo", "large", "missing", "directory"])
def test_only_a_file_of_patterns_is_handed_over(home: Path, kind: str) -> None:
    path = home / ("id_rsa" if kind == "secret" else "patterns")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_text("canary\n" * (100_000 if kind == "large" else 1))
    (home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {path}\n")
    assert of(home, "play").ignored == ""

"""Tests of protected paths: existing, missing, linked; and of what is left on the host."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from skillhouse.floor import PROTECTED_NAMES
from skillhouse.floor.crash_cleanup import PLACEHOLDER_NS
from skillhouse.sandbox import Launcher, SandboxError
from skillhouse.sandbox.mountpoints import KeptPlaceholders
from skillhouse.sandbox.protected_mounts import MountCover, protected_mounts
from tests.owners import gone_owner
from tests.sandbox.places import launcher, listing, run, sh, workspace

pytestmark = pytest.mark.slow

__all__ = ["launcher", "workspace"]

NAMED = tuple(name for name in PROTECTED_NAMES if "*" not in name)


def test_no_protected_path_can_be_made(launcher: Launcher, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    script = 'for name; do mkdir -p "$(dirname "$name")"; echo x > "$name" && mv "$name" kept; done'
    done = run(launcher, empty, "sh", "-c", script, "sh", *NAMED)
    assert done.stderr
    assert listing(empty) == set()


def test_protected_paths_that_exist_keep_what_they_hold(launcher: Launcher, tmp_path: Path):
    place = tmp_path / "full"
    for name in NAMED:
        directory = place / name
        directory.mkdir(parents=True)
        (directory / "file").write_text("kept")
    before = listing(place)
    script = (
        'for name; do echo x > "$name/file"; rm -rf "$name"; mv "$name" moved; echo x > "$name/n"; '
        'chmod 777 "$name"; echo x > "$name/m"; done; mv .git other; rm -rf .git; true'
    )
    run(launcher, place, "sh", "-c", script, "sh", *NAMED)
    # What cannot be renamed is copied by mv.
    assert {path for path in listing(place) if not path.startswith("moved")} == before
    assert {(place / name / "file").read_text() for name in NAMED} == {"kept"}


def test_secrets_cannot_be_read(launcher: Launcher, workspace: Path):
    (workspace / ".env.local").write_text("canary")
    (workspace / "id_rsa").write_text("canary")
    (workspace / "tls.pem").write_text("canary")
    done = sh(launcher, workspace, "cat .env .env.local .ssh/* *.key *.pem id_*; grep -r canary .")
    assert b"canary" not in done.stdout


def test_configuration_can_be_read(launcher: Launcher, workspace: Path):
    assert sh(launcher, workspace, "cat .git/config").stdout == b"[core]\n"


def test_git_works_and_sees_no_placeholder(launcher: Launcher, tmp_path: Path, need):
    need(Path("/usr/bin/git").exists(), "no git")
    place = tmp_path / "project"
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    script = (
        "echo x > file; git add -A && git -c user.name=a -c user.email=a@b commit -qm one && "
        "git status --porcelain && git show --stat --format=%s HEAD && git diff HEAD"
    )
    done = sh(launcher, place, script)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout.decode().split("\n")[:3] == ["one", "", " file | 1 +"]
    assert {path.name for path in place.iterdir()} == {".git", "file"}


def test_a_file_that_programs_must_read_is_empty_and_git_passes_over_it(
    launcher: Launcher, tmp_path: Path, need
):
    need(Path("/usr/bin/git").exists(), "no git")
    place = tmp_path / "project"
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    (place / "file").write_text("x")
    script = (
        "test -f .npmrc && wc -c < .npmrc; git status --porcelain; git add -A && "
        "git status --porcelain; git stash -q -u 2>&1 | grep -v initial; "
        "echo registry=x > .npmrc; rm .npmrc; mv .npmrc other; echo y > n && mv n .npmrc; true"
    )
    done = sh(launcher, place, script)
    assert done.stdout.decode().split("\n")[:3] == ["0", "?? file", "A  file"]
    assert b".npmrc" not in done.stdout
    assert listing(place) & {".npmrc", "other"} == set()


def test_git_reads_missing_modules_without_a_warning_and_none_are_left(
    launcher: Launcher, tmp_path: Path, need
):
    need(Path("/usr/bin/git").exists(), "no git")
    place, other = tmp_path / "project", tmp_path / "project/other"
    for at in (place, other):
        subprocess.run(["git", "init", "--quiet", str(at)], check=True)
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        commit = [*who, "commit", "--quiet", "--allow-empty", "-m", "one"]
        subprocess.run(["git", "-C", str(at), *commit], check=True)
    script = (
        "git fetch --recurse-submodules ./other; git status --porcelain; git submodule status; "
        "git clean -ndx; git ls-files -o; git add -A -- . ':!other'; git status --porcelain; "
        "git config -f .gitmodules submodule.x.path y; echo x > .gitmodules; rm .gitmodules; true"
    )
    done = sh(launcher, place, script)
    assert b"unable to access" not in done.stderr
    assert b".gitmodules" not in done.stdout
    assert listing(place) & {".gitmodules"} == set()


async def test_git_outside_passes_over_such_a_file_during_a_run(tmp_path: Path, need):
    need(shutil.which("git") is not None, "no git")
    await anyio.run_process(["git", "init", "--quiet", str(tmp_path)])
    async with protected_mounts(str(tmp_path), (".npmrc",), stash=KeptPlaceholders()) as mounts:
        assert mounts.covers == {f"{tmp_path}/.npmrc": MountCover.EMPTY_FILE}
        status = ["git", "-C", str(tmp_path), "status", "--porcelain"]
        assert (await anyio.run_process(status)).stdout == b""
    assert not (tmp_path / ".npmrc").exists()


async def test_a_file_system_without_sockets_has_a_directory_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr("skillhouse.sandbox.mountpoints.os.mknod", refused)
    async with protected_mounts(str(tmp_path), (".npmrc",), stash=KeptPlaceholders()) as mounts:
        assert mounts.covers == {f"{tmp_path}/.npmrc": MountCover.EMPTY_DIRECTORY}
    assert not (tmp_path / ".npmrc").exists()


def test_configuration_by_other_names_is_removed_afterwards(launcher: Launcher, workspace: Path):
    script = (
        "mkdir -p evil objects refs; echo ../evil > .git/commondir; echo x > .git/config.worktree; "
        "echo ref: refs/heads/main > HEAD; echo '[core]' > config"
    )
    assert sh(launcher, workspace, script).exit_code == 0
    assert not (workspace / ".git" / "commondir").exists()
    assert not (workspace / ".git" / "config.worktree").exists()
    assert not (workspace / "HEAD").exists()


def test_a_git_file_cannot_be_pointed_elsewhere(launcher: Launcher, tmp_path: Path):
    place = tmp_path / "worktree"
    place.mkdir()
    (place / ".git").write_text("gitdir: /elsewhere\n")
    sh(launcher, place, "echo gitdir: evil > .git; rm .git; mv .git x; true")
    assert (place / ".git").read_text() == "gitdir: /elsewhere\n"
    assert listing(place) == {".git"}


@pytest.mark.parametrize("script", ["rm .claude; mkdir .claude; echo x > .claude/x", "rm .claude"])
def test_a_protected_link_is_put_back(launcher: Launcher, workspace: Path, script: str):
    (workspace / "agents").mkdir()
    (workspace / "agents" / "file").write_text("kept")
    (workspace / ".claude").symlink_to("agents")
    sh(launcher, workspace, f"echo x > .claude/file; echo x > agents/new; {script}")
    assert os.readlink(workspace / ".claude") == "agents"
    assert listing(workspace / "agents") == {"file"}
    assert (workspace / "agents" / "file").read_text() == "kept"


def test_a_link_out_of_the_workspace_reaches_nothing(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / ".vscode").symlink_to(outside)
    (workspace / "door").symlink_to(outside)
    sh(launcher, workspace, "echo x > .vscode/x; echo x > door/x; true")
    assert listing(outside) == set()


def test_placeholders_of_a_crash_are_removed_by_the_next_run(launcher: Launcher, workspace: Path):
    before = listing(workspace)
    code = (
        "import os, sys, anyio\n"
        "from skillhouse.sandbox.mountpoints import KeptPlaceholders\n"
        "from skillhouse.sandbox.protected_mounts import protected_mounts\n"
        "async def main():\n"
        "    names = ('.claude', '.bashrc', '.npmrc', '.git/commondir')\n"
        "    async with protected_mounts(sys.argv[1], names, stash=KeptPlaceholders()):\n"
        "        os.kill(os.getpid(), 9)\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(workspace)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = {".claude", ".bashrc", ".npmrc", ".git/commondir"}
    assert listing(workspace) == before | left
    assert sh(launcher, workspace, "echo x > .bashrc").exit_code != 0
    assert listing(workspace) == before


def test_what_the_host_puts_into_a_placeholder_stays(tmp_path: Path):
    place, state = tmp_path / "place", tmp_path / "state"
    place.mkdir()

    async def edited(stash: KeptPlaceholders) -> None:
        async with protected_mounts(str(place), (".vscode", ".idea"), stash=stash):
            (place / ".vscode" / "settings.json").write_text("{}")

    for stash in (KeptPlaceholders(), KeptPlaceholders(state)):
        anyio.run(edited, stash)
        assert listing(place) == {".vscode", ".vscode/settings.json"}
        (place / ".vscode" / "settings.json").unlink()
        (place / ".vscode").rmdir()


async def test_only_the_last_run_of_a_workspace_removes_placeholders(tmp_path: Path):
    async with protected_mounts(str(tmp_path), (".claude",), stash=KeptPlaceholders()):
        async with protected_mounts(str(tmp_path), (".claude",), stash=KeptPlaceholders()) as inner:
            assert inner.covers == {f"{tmp_path}/.claude": MountCover.EMPTY_DIRECTORY}
        assert (tmp_path / ".claude").exists()
    assert not (tmp_path / ".claude").exists()


async def test_the_last_run_removes_them_though_it_made_none(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    for place in (tmp_path / ".git", tmp_path):
        os.utime(place, (1, 1))
    reading = protected_mounts(str(tmp_path), NAMED, stash=KeptPlaceholders(), read_only=True)
    async with reading:
        async with protected_mounts(str(tmp_path), NAMED, stash=KeptPlaceholders()):
            pass
        assert listing(tmp_path) > {".git"}
    assert listing(tmp_path) == {".git"}


def test_a_workspace_that_another_holds_for_itself_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("skillhouse.sandbox.protected_mounts.LOCK_SECONDS", 0.05)
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)

    async def enter() -> None:
        async with protected_mounts(str(tmp_path), (), stash=KeptPlaceholders()):
            raise AssertionError

    try:
        with pytest.raises(SandboxError) as caught:
            anyio.run(enter)
    finally:
        os.close(handle)
    assert caught.value.code == "protect-failed"


def test_a_stash_keeps_placeholders_and_forgets_dead_owners(tmp_path: Path):
    state = tmp_path / "state"
    gone = state / f"placeholders-{gone_owner()}-0"
    (gone / "0").mkdir(parents=True)
    stash = KeptPlaceholders(state)
    assert not gone.exists()
    for _ in range(2):
        stash.place(str(tmp_path / "held"))
        assert (tmp_path / "held").stat().st_mtime_ns == PLACEHOLDER_NS
        stash.remove(str(tmp_path / "held"))
        assert not (tmp_path / "held").exists()
    assert len([name for name in listing(state) if "placeholders" in name]) == 2
    stash.remove(str(tmp_path / "never"))

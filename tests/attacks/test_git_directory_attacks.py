"""Attacks on a person's repository by a run whose workspace has git's directory elsewhere.

Each program below runs in a workspace that shares a repository with its main work tree, and leaves
there what git would obey at the person's next command.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.floor import PersistentPaths, structs
from skillhouse.sandbox import (
    Completed,
    Launcher,
    SandboxLevel,
    SandboxProfile,
    SandboxStatus,
    detect,
    find_git,
    launcher_for,
    with_submodules,
)
from skillhouse.sandbox.mountpoints import KeptPlaceholders
from skillhouse.sandbox.protected_mounts import protected_mounts
from tests import repositories
from tests.repositories import git
from tests.sandbox.places import sh

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("git")]

EVIL = "#!/bin/sh\ntouch /tmp/evil\n"


@pytest.fixture(scope="module")
def status() -> SandboxStatus:
    return anyio.run(detect)


@pytest.fixture
def launcher(status: SandboxStatus, need: Any, tmp_path: Path) -> Launcher:
    need(status.level in (SandboxLevel.CGROUP, SandboxLevel.RLIMITS), "no bubblewrap")
    return launcher_for(status, state=tmp_path / "state")


def run_in(launcher: Launcher, workspace: Path, script: str, **options: Any) -> Completed:
    places = find_git(os.path.realpath(workspace))
    below = [place.parent.name for place in workspace.glob("*/.git") if place.is_file()]
    return sh(
        launcher,
        workspace,
        script,
        git=with_submodules(places, below),
        paths=PersistentPaths(),
        **options,
    )


def listing(directory: Path) -> dict[str, bytes]:
    """Return every file of a git directory that git obeys, or that stops it, with its bytes."""
    passed = ("objects", "refs", "logs")
    found = {}
    for place, names, files in os.walk(directory):
        if place == str(directory):
            names[:] = [name for name in names if name not in passed]
        for name in (*files, *(n for n in names if not os.listdir(f"{place}/{n}"))):
            path = Path(place, name)
            found[str(path.relative_to(directory))] = path.read_bytes() if path.is_file() else b"/"
    alternates = directory / "objects/info/alternates"
    return found | ({"alternates": alternates.read_bytes()} if alternates.exists() else {})


LEAVES = """
cd "$G" || exit 9
evil() { mkdir -p "$(dirname "$1")" && printf '%s' '[core]
fsmonitor = touch /tmp/evil' > "$1"; }
evil hooks/pre-commit; evil config; evil config.worktree; evil commondir; evil info/attributes
evil modules/x/config; evil worktrees/other/HEAD; evil HEAD; evil index; evil index.lock
evil HEAD.lock; evil config.lock; evil newhooks/pre-commit; evil rebase-merge/git-rebase-todo
evil MERGE_HEAD; evil sequencer/todo; evil objects/info/alternates
mv hooks hooks2; mv config config2; mv worktrees worktrees2; rm -rf hooks config
ln -s /tmp hooks2; ln -sf /etc commondir
true
"""


def test_a_linked_work_tree_leaves_nothing_that_the_main_one_obeys(
    launcher: Launcher, tmp_path: Path
) -> None:
    workspace = repositories.linked(tmp_path)
    common = tmp_path / "repo/.git"
    before = listing(common)
    done = run_in(launcher, workspace, LEAVES, environment={"G": str(common)})
    assert done.exit_code == 0, done.stderr
    assert listing(common) == before
    assert "`index.lock`" in " ".join(done.notes)
    assert git(tmp_path / "repo", "status", "--porcelain") == ""
    assert git(workspace, "status", "--porcelain") == ""


def test_a_linked_work_tree_keeps_its_own_settings(launcher: Launcher, tmp_path: Path) -> None:
    workspace = repositories.linked(tmp_path)
    own = tmp_path / "repo/.git/worktrees/linked"
    git(tmp_path / "repo", "config", "extensions.worktreeConfig", "true")
    before = listing(own)
    script = """
    cd "$G"
    for name in commondir gitdir config.worktree; do
        printf '/tmp\\n' > $name; rm -f $name; mv $name moved; ln -s /tmp $name
    done
    mkdir -p modules/x; echo x > modules/x/config
    cd /; rm -rf "$G"; mv "$G" "$G.old"; echo broken > "$W/.git"; true
    """
    variables = {"G": str(own), "W": str(workspace)}
    done = run_in(launcher, workspace, script, environment=variables)
    assert done.exit_code == 0, done.stderr
    kept = listing(own)
    names = {"commondir", "gitdir"}
    assert {n: kept[n] for n in names} == {n: before[n] for n in names}
    assert {"config.worktree", "modules/x/config"}.isdisjoint(kept)
    assert (workspace / ".git").read_text(encoding="utf-8") == f"gitdir: {own}\n"


def test_hooks_behind_a_link_stay_where_they_are(launcher: Launcher, tmp_path: Path) -> None:
    workspace = repositories.linked(tmp_path)
    common = tmp_path / "repo/.git"
    (workspace / "scripts").mkdir()
    (workspace / "scripts/pre-commit").write_text("#!/bin/sh\n", encoding="utf-8")
    subprocess.run(["rm", "-r", common / "hooks"], check=True)
    (common / "hooks").symlink_to(workspace / "scripts")
    script = f'printf %s "{EVIL}" > scripts/pre-commit; rm "$G/hooks"; mkdir "$G/hooks"; true'
    run_in(launcher, workspace, script, environment={"G": str(common)})
    assert os.readlink(common / "hooks") == str(workspace / "scripts")
    assert (workspace / "scripts/pre-commit").read_text(encoding="utf-8") == "#!/bin/sh\n"


def as_workspace(base: Path) -> tuple[Path, Path]:
    return repositories.submodule(base), base / "outer/.git/modules/sub"


def below_workspace(base: Path) -> tuple[Path, Path]:
    return repositories.with_submodule(base), base / "outer/.git/modules/sub"


def part(base: Path) -> tuple[Path, Path]:
    return repositories.part(base), base / "repo/.git"


@pytest.mark.parametrize("make", [as_workspace, below_workspace, part], ids=lambda m: m.__name__)
def test_a_directory_of_one_work_tree_is_left_as_git_obeys_it(
    launcher: Launcher, tmp_path: Path, make: Callable[[Path], tuple[Path, Path]]
) -> None:
    workspace, own = make(tmp_path)
    passed = {"HEAD", "index", "info/attributes"}
    # What a work tree has for itself, and a run may make there as in a plain `.git`.
    free = ("HEAD", "index", "MERGE_HEAD", "rebase-merge", "sequencer", "new", "info", "hooks2")
    before = {n: b for n, b in listing(own).items() if n not in passed}
    done = run_in(launcher, workspace, LEAVES, environment={"G": str(own)})
    assert done.exit_code == 0, done.stderr
    after = listing(own)
    assert {n: after.get(n) for n in before} == before
    new = {n for n in after if n not in before and not n.startswith(free)}
    assert {n for n in new if not n.endswith(".lock")} == set()


def test_the_lock_of_a_person_who_commits_meanwhile_stays(
    launcher: Launcher, tmp_path: Path
) -> None:
    workspace = repositories.linked(tmp_path)
    main = tmp_path / "repo"
    (main / "top.txt").write_text("mine\n", encoding="utf-8")
    ready, go = tmp_path / "ready", tmp_path / "go"
    os.mkfifo(ready)
    os.mkfifo(go)
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\necho > {ready}; cat {go}; echo mine > "$1"\n', encoding="utf-8")
    editor.chmod(0o755)
    variables = {**os.environ, **repositories.VARIABLES, "GIT_EDITOR": str(editor)}
    person: list[subprocess.Popen[bytes]] = []

    def commit() -> None:
        person.append(subprocess.Popen(["git", "commit", "-qa"], cwd=main, env=variables))
        ready.read_bytes()

    script = "git status --short; git commit -q --allow-empty -m run"
    (workspace / "started").touch()
    commit()
    done = run_in(launcher, workspace, script, environment=dict(repositories.VARIABLES))
    assert done.exit_code == 0, done.stderr
    assert (main / ".git/index.lock").exists()
    go.write_bytes(b"\n")
    assert person[0].wait() == 0
    assert git(main, "log", "-1", "--format=%s") == "mine\n"


@pytest.mark.parametrize(("where", "is_left"), [("elsewhere", False), ("repo", True)])
def test_only_a_git_that_works_on_the_repository_shields_what_is_new_there(
    launcher: Launcher, tmp_path: Path, where: str, is_left: bool
) -> None:
    """Any program of git on the machine did, as in a run beside others."""
    workspace = repositories.linked(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    command = ("git", "hash-object", "--stdin")
    with subprocess.Popen(command, cwd=tmp_path / where, stdin=subprocess.PIPE) as waiting:
        while Path(f"/proc/{waiting.pid}/comm").read_text("utf-8") != "git\n":
            time.sleep(0.01)
        script = 'printf x > "$G/MERGE_HEAD"'
        done = run_in(launcher, workspace, script, environment={"G": str(tmp_path / "repo/.git")})
        waiting.kill()
    assert done.exit_code == 0
    assert "MERGE_HEAD" in " ".join(done.notes)
    assert (tmp_path / "repo/.git/MERGE_HEAD").exists() is is_left


def existing(paths: list[str]) -> list[str]:
    return [path for path in paths if os.path.lexists(path)]


async def test_a_run_leaves_the_placeholders_of_another_in_a_shared_directory(
    launcher: Launcher, tmp_path: Path
) -> None:
    workspace, main = repositories.linked(tmp_path), str(tmp_path / "repo")
    profile = SandboxProfile(workspace, paths=PersistentPaths(), git=find_git(str(workspace)))
    before = sorted(os.listdir(tmp_path / "repo/.git"))
    async with protected_mounts(
        main, SandboxProfile(Path(main)).protected, stash=KeptPlaceholders()
    ) as first:
        placed = existing(first.placeholders)
        done = await launcher.run(("git", "status"), profile, cwd=workspace)
        assert done.exit_code == 0
        assert f"{main}/.git/commondir" in placed
        assert existing(placed) == placed
    assert sorted(os.listdir(tmp_path / "repo/.git")) == before


def test_settings_that_git_may_write_lose_what_a_program_puts_there(
    launcher: Launcher, tmp_path: Path
) -> None:
    workspace = repositories.plain(tmp_path)
    git(workspace, "config", "core.fsmonitor", "sh -c 'git config core.pager evil; exit 1'")
    git(workspace, "branch", "-q", "gone", "main")
    before = git(workspace, "config", "--list")
    places = structs.replace(find_git(str(workspace)), opens_config=True)
    script = "git branch -q -u main gone; git status; git config alias.st '!evil'; true"
    done = sh(launcher, workspace, script, git=places, paths=PersistentPaths())
    notes = " ".join(done.notes)
    assert "`core.pager`" in notes
    assert "`alias.st`" in notes
    after = git(workspace, "config", "--list")
    assert set(after.splitlines()) - set(before.splitlines()) == {
        "branch.gone.remote=.",
        "branch.gone.merge=refs/heads/main",
    }


@pytest.mark.parametrize("make", [repositories.plain, repositories.linked])
def test_a_run_that_only_looks_changes_nothing_of_git_without_a_mount_for_each_path(
    launcher: Launcher, tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    workspace, main = make(tmp_path), tmp_path / "repo/.git"
    before = listing(main), listing(workspace)
    script = (
        'for d in .git "$G" "$G/worktrees/linked"; do for f in new config HEAD hooks/post-commit; '
        'do echo x > "$d/$f" && echo "wrote $d/$f"; done; done; '
        "mv .git aside && echo moved; rm -rf .git && echo removed; true"
    )
    done = run_in(launcher, workspace, script, read_only=True, environment={"G": str(main)})
    assert (done.exit_code, done.stdout) == (0, b"")
    assert (listing(main), listing(workspace)) == before


def test_a_directory_that_may_be_written_opens_nothing_protected_in_it_or_around_it(
    launcher: Launcher, tmp_path: Path
) -> None:
    workspace = repositories.plain(tmp_path)
    before = listing(workspace / ".git")
    script = (
        "echo x > .git/new; for f in config hooks/post-commit; do "
        'echo x > ".git/$f" && echo "wrote $f"; done; true'
    )
    done = sh(
        launcher,
        workspace,
        script,
        read_only=True,
        writable=(workspace / ".git",),
        paths=PersistentPaths(),
    )
    assert (done.exit_code, done.stdout) == (0, b"")
    after = listing(workspace / ".git")
    assert {name: after.get(name) for name in before} == before

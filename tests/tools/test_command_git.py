"""Tests of the words of git that are refused before they start, without a sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from skillhouse.approval import ScriptStore
from skillhouse.permission import Effect, Layer, LayerRules, PathPolicy, Rule, judge_line
from skillhouse.skill import SkillIndex
from skillhouse.tools.call import RefusedError
from skillhouse.tools.command_git import GitConsents, GitUse, git_use
from skillhouse.tools.tool import Session
from tests import repositories
from tests.repositories import git

pytestmark = pytest.mark.usefixtures("git")

ALLOWED = LayerRules(
    [Layer(name="user", rules=(Rule(effect=Effect.ALLOW, action="exec", pattern="*"),))]
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("repositories").resolve()
    workspace = repositories.linked(made)
    git(workspace, "clone", "-q", "--bare", ".", "../up.git")
    git(workspace, "remote", "add", "origin", "../up.git")
    git(workspace, "fetch", "-q")
    git(workspace, "branch", "-q", "-D", "outer")
    # A path outside of the workspace is refused whatever it writes.
    git(workspace, "remote", "set-url", "origin", "https://example.org/up.git")
    return made


def use_of(line: str, workspace: Path) -> GitUse:
    verdict = judge_line(
        line, ALLOWED, PathPolicy(workspace, writable=(workspace,)), environment={}
    )
    session = Session(
        agent="default",
        user="local",
        channel="test",
        visible=SkillIndex(()),
        skill_need=lambda skill: pytest.fail(skill.name),
    )
    consents = GitConsents(
        store=ScriptStore(workspace.parent / "state"),
        session=session,
        decide=lambda need: Effect.ALLOW,
        problem_around=lambda top: "",
    )
    return git_use(verdict.structure, line, workspace, consents)


@pytest.mark.parametrize(
    ("line", "opens"),
    [
        ("git branch", False),
        ("git branch new main", False),
        ("git branch -vv --contains main", False),
        ("git branch -D inner", True),
        ("git branch -qd inner || true", True),
        ("git branch --set-upstream-to=origin/main", True),
        ("git branch new origin/main", True),
        ("git switch inner", False),
        ("git branch --no-track new origin/main", False),
        ("git switch outer", True),
        ("git switch -c new", False),
        ("git switch -c new origin/main && git status", True),
        ("git checkout -b new", False),
        ("git checkout -- top.txt", False),
        ("git checkout --track origin/outer", True),
        ("git push -u origin feature", True),
        ("git push", False),
        ("git remote -v", False),
        ("git remote add other ../x", True),
        ("git -C . remote rename origin old", True),
        ("git status; make", False),
        ("git switch inner && make", False),
        ("git push && make", False),
        ("git config user.name", False),
        ("git config --get-all user.name x", False),
        ("git config -f my.conf a.b c", False),
        ("git config list", False),
        ("git worktree list", False),
        ("git init made && git -C made config a.b c", False),
        ("git init made && git -C made remote add origin ../x && ls made", False),
        ("git submodule status", False),
        ("git submodule update --recursive", True),
        ("git reflog expire --expire=now main", False),
        ("git gc --help", False),
        ("for f in a b; do git add $f; done", False),
        ("for b in inner outer; do git branch -D $b; done", True),
        ("cat > x <<EOF\ngit worktree add ../y\nEOF", False),
        ("echo git worktree add", False),
        ("bash -c 'git status'", False),
    ],
)
def test_config_is_open_to_words_that_write_it_alone(base: Path, line: str, opens: bool) -> None:
    assert use_of(line, base / "linked").writes_config is opens


@pytest.mark.parametrize(
    "line",
    [
        "git branch -D inner && make",
        "git remote add other ../x; ls",
        "git switch outer | cat",
        "for b in $(git branch); do git branch -D $b; done",
        "git config user.name Somebody",
        "git config set user.name Somebody",
        "git config --global alias.x '!sh'",
        "git config --unset user.name",
        "git -C packages config -e",
        "git worktree add ../x -b x",
        "git worktree prune",
        "git submodule add ../repo sub",
        "git sparse-checkout set lib",
        "git maintenance start",
        "git gc",
        "git reflog expire --all",
        "if true; then git worktree add ../x; fi",
        "bash -lc 'git worktree add ../x'",
        "sh -c 'ls; git branch -D inner'",
    ],
)
def test_words_without_their_whole_effect_are_refused(base: Path, line: str) -> None:
    with pytest.raises(RefusedError, match="nothing was done"):
        use_of(line, base / "linked")


@pytest.mark.parametrize("options", ["--init", "--init --recursive", "--recursive --init sub"])
def test_submodules_are_begun_by_the_person_and_updated_by_a_run(
    tmp_path: Path, options: str
) -> None:
    outer = repositories.with_submodule(tmp_path)
    copy = outer.with_name("copy")
    repositories.git(tmp_path, "clone", "-q", str(outer), str(copy))
    line = f"git submodule update {options}"
    assert use_of(line, outer).writes_config
    with pytest.raises(RefusedError, match="nothing was done"):
        use_of(line, copy)


def test_a_submodule_of_a_submodule_that_is_new_is_seen(tmp_path: Path) -> None:
    outer = repositories.with_submodule(tmp_path)
    text = '[submodule "deep"]\n\tpath = deep\n\turl = ../repo\n'
    (outer / "sub/.gitmodules").write_text(text)
    assert use_of("git submodule update --init", outer).writes_config
    with pytest.raises(RefusedError, match="nothing was done"):
        use_of("git submodule update --init --recursive", outer)


@pytest.mark.parametrize("line", ["git gc", "git reflog expire --all"])
def test_what_is_about_all_work_trees_runs_in_the_main_one(base: Path, line: str) -> None:
    assert use_of(line, base / "repo").needs == ()


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("git switch inner", False),
        ("git switch -c new", False),
        ("git commit -am x", False),
        ("git stash", False),
        ("git merge main", True),
        ("git rebase main", True),
        ("git pull", True),
        ("git am x.patch", True),
        ("git apply x.patch", False),
        ("git submodule status", False),
        ("git reset --hard main", True),
        ("git stash -q && git stash pop", False),
        ("git update-index --refresh", False),
        ("git merge --abort", False),
        ("git rebase --continue", False),
        # The value of an option is none of these words.
        ("git merge -m --quit main", True),
        ("git merge --message --quit main", True),
        ("git merge --quit main", True),
    ],
)
def test_a_part_refuses_what_may_change_the_rest(
    base: Path, line: str, is_refused: bool, tmp_path: Path
) -> None:
    repositories.plain(tmp_path)
    git(tmp_path / "repo", "switch", "-q", "--detach", "main")
    (tmp_path / "repo/top.txt").write_text("other\n", encoding="utf-8")
    git(tmp_path / "repo", "commit", "-qam", "other")
    git(tmp_path / "repo", "switch", "-q", "-c", "work")
    if line == "git switch inner":
        git(tmp_path / "repo", "reset", "-q", "--hard", "main")
    place = (tmp_path / "repo/packages/fe").resolve()
    if is_refused:
        with pytest.raises(RefusedError, match="start skillhouse in"):
            use_of(line, place)
    else:
        assert [need.permission.action for need in use_of(line, place).needs] == ["read"]


def halt(repo: Path, word: str, *options: str, outside: bool) -> None:
    """Halt git at a conflict in `packages/fe`; `outside`, the rest of the work is above."""
    git(repo, "switch", "-q", "-c", "work", "main")
    (repo / "packages/fe/in.txt").write_text("work\n", encoding="utf-8")
    git(repo, "commit", "-qam", "first of two")
    (repo / ("top.txt" if outside else "packages/fe/in.txt")).write_text("more\n", encoding="utf-8")
    git(repo, "commit", "-qam", "second of two")
    if word != "rebase":
        git(repo, "switch", "-q", "inner")
    given = {"rebase": "inner", "cherry-pick": "main..work", "merge": "work"}[word]
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, word, *options, given)


@pytest.mark.parametrize(
    ("word", "outside", "refused"),
    [
        ("rebase", False, ""),
        ("rebase", True, "--abort --skip --continue"),
        ("cherry-pick", False, ""),
        ("cherry-pick", True, "--skip --continue"),
        ("merge", False, ""),
        ("merge", True, "--abort"),
    ],
)
def test_a_part_ends_and_goes_on_with_what_stays_in_it(
    tmp_path: Path, word: str, outside: bool, refused: str
) -> None:
    part = repositories.part(tmp_path).resolve()
    halt(tmp_path / "repo", word, outside=outside)
    for option in ("--abort", "--quit", "--continue", *("--skip",) * (word != "merge")):
        if option in refused.split():
            with pytest.raises(RefusedError, match=r"`\.\./\.\./top.txt` outside"):
                use_of(f"git {word} {option}", part)
        else:
            assert [n.permission.action for n in use_of(f"git {word} {option}", part).needs] == [
                "read"
            ]


def test_a_part_leaves_alone_what_git_is_said_to_have_left_in_no_list(tmp_path: Path) -> None:
    part = repositories.part(tmp_path).resolve()
    halt(tmp_path / "repo", "rebase", outside=False)
    todo = tmp_path / "repo/.git/rebase-merge/git-rebase-todo"
    commit = todo.read_text(encoding="utf-8").split()[1]

    def make(text: str) -> None:
        todo.unlink()
        todo.write_text(text, encoding="utf-8")

    def link() -> None:
        todo.unlink()
        todo.symlink_to(part / "in.txt")

    def fifo() -> None:
        todo.unlink()
        os.mkfifo(todo)

    for change in (
        lambda: make("exec touch ../../top.txt\n"),
        lambda: make("merge -C x y\n"),
        lambda: make("pick 0000000000000000000000000000000000000000\n"),
        lambda: make("pick --output=x\n" + "x" * 70_000),
        lambda: make(f"pick {commit}\n" * 51),
        link,
        fifo,
    ):
        change()
        with pytest.raises(RefusedError, match="may change files outside"):
            use_of("git rebase --continue", part)
    git(part, "rebase", "--quit")


@pytest.mark.parametrize("outside", [False, True])
def test_a_part_ends_a_rebase_by_patches_that_stays_in_it(tmp_path: Path, outside: bool) -> None:
    part = repositories.part(tmp_path).resolve()
    halt(tmp_path / "repo", "rebase", "--apply", outside=outside)
    for option in ("--continue", "--skip", *("--abort",) * outside):
        with pytest.raises(RefusedError, match="outside of the workspace"):
            use_of(f"git rebase {option}", part)
    if not outside:
        assert len(use_of("git rebase --abort", part).needs) == 1


def test_a_part_is_written_by_lines_of_git_alone(tmp_path: Path) -> None:
    part = repositories.part(tmp_path).resolve()
    assert use_of("git commit -am x", part).places.read_only is False
    assert use_of("git status; make", part).places.read_only is True
    assert use_of("for x in a b; do git switch $x; done", part).places.read_only is False
    assert use_of("for x in $(ls); do git switch $x; done", part).places.read_only is True

"""Tests of git in commands where its directory is not `./.git`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import SandboxLevel, detect
from tests import repositories
from tests.repositories import git
from tests.tools.houses import Person

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("git")]

RULES = tuple(Rule(effect=Effect.ALLOW, action=action, pattern="*") for action in ("exec", "write"))


@pytest.fixture(autouse=True)
def mounted(need: Any) -> None:
    level = anyio.run(detect).level
    need(level in (SandboxLevel.CGROUP, SandboxLevel.RLIMITS), "no bubblewrap")


class Place:
    """A workspace, its house, and the person who answers there."""

    def __init__(self, base: Path, workspace: Path, *answers: Answer) -> None:
        (base / "home").mkdir(exist_ok=True)
        places = Locations(
            start=workspace, home=base / "home", environment={}, managed_file=base / "managed.toml"
        )
        self.workspace = workspace
        self.person = Person(answers)
        self.house = Skillhouse(
            configured(places), channel=self.person, layers=(Layer(name="user", rules=RULES),)
        )

    def run(self, command: str) -> Any:
        return self.house.call_sync("exec", {"command": command})

    def runs(self, command: str) -> str:
        result = self.run(command)
        assert result.status == "ok", result.content
        return str(result.content)

    def reasons(self) -> list[str]:
        return [reason for request in self.person.asked for reason in request.reasons]


@pytest.fixture
def place_of(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    places: list[Place] = []

    def make(workspace: Path, *answers: Answer) -> Place:
        places.append(Place(tmp_path, workspace, *answers))
        return places[-1]

    yield make
    for place in places:
        place.house.close()


def day(place: Place) -> None:
    """Commit, branch, rename, stash and delete, and compare with what git says outside."""
    at = place.workspace
    assert place.runs("git status --short") == "[no output]"
    place.runs("echo new > new.txt")
    place.runs("git add -A && git commit -qm second")
    assert git(at, "log", "-1", "--format=%s") == "second\n"
    place.runs("git switch -q -c topic")
    place.runs("echo more >> new.txt && git stash -q")
    place.runs("git stash pop -q && git commit -qam third")
    assert "error" not in place.runs("git branch -m topic named")
    place.runs("git branch other")
    assert place.runs("git branch -D other").startswith("Deleted branch other")
    assert git(at, "branch", "--show-current") == "named\n"
    assert git(at, "status", "--porcelain") == ""
    assert git(at, "show", "--format=", "--name-only", "HEAD").endswith("new.txt\n")


@pytest.mark.parametrize(
    "make",
    [
        repositories.linked,
        repositories.linked_by_relative_paths,
        repositories.below_agents_directory,
        repositories.in_bare_repository,
    ],
    ids=lambda make: make.__name__,
)
def test_a_day_in_a_linked_work_tree_is_as_outside(
    tmp_path: Path, place_of: Callable[..., Place], make: Callable[[Path], Path]
) -> None:
    place = place_of(make(tmp_path))
    day(place)
    assert place.person.asked == []
    main = tmp_path / "repo"
    assert git(main, "status", "--porcelain", "--ignored").replace("?? .claude/\n", "") == ""
    assert git(main, "branch", "--show-current") == "main\n"
    for command in (
        "git gc",
        "git reflog expire --all",
        "git worktree add ../x",
        "git config a.b c",
    ):
        result = place.run(command)
        assert result.status == "denied"
        assert "nothing was done" in result.content


def test_a_day_in_a_submodule_and_around_it_is_as_outside(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    outer = repositories.with_submodule(tmp_path)
    day(place_of(outer / "sub"))
    around = place_of(outer)
    around.runs("echo more >> sub/new.txt")
    around.runs("git -C sub commit -qam fourth && git commit -qam 'move submodule'")
    assert git(outer / "sub", "log", "-1", "--format=%s") == "fourth\n"
    assert git(outer, "status", "--porcelain") == ""
    assert around.person.asked == []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (repositories.separate, "nothing there leads back to this workspace"),
        (repositories.shared, "borrows the objects"),
        (repositories.part_of_linked, "git needs the whole work tree"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_has_no_way_back_is_asked_about_once(
    tmp_path: Path, place_of: Callable[..., Place], make: Callable[[Path], Path], reason: str
) -> None:
    workspace = make(tmp_path)
    refused = place_of(workspace, Answer.NO)
    assert refused.run("git status").status == "denied"
    place = place_of(workspace, Answer.ONCE)
    day(place)
    (said,) = place.reasons()
    assert reason in said
    again = place_of(workspace)
    again.runs("git log -1")
    assert again.person.asked == []


def test_a_part_of_a_work_tree_reads_the_rest_without_its_secrets(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    part = repositories.part(tmp_path)
    top = tmp_path / "repo"
    (top / "lib").mkdir()
    (top / "lib/.env").write_text("SECRET=1\n", encoding="utf-8")
    place = place_of(part, Answer.ONCE)
    # Unasked, a command that has nothing to do with git sees the workspace alone.
    assert place.run("python3 -c 'print(open(\"../../top.txt\").read())'").is_error
    place.runs("git status --short && git log -1 && git diff")
    script = 'import os; print(open("../../top.txt").read(), os.listdir("../.."))'
    assert "top" in place.runs(f"python3 -c '{script}'")
    for code in (
        'open("../../lib/.env").read()',
        'open("../../made", "w")',
        'open("../../.git/made", "w")',
    ):
        assert place.run(f"python3 -c '{code}'").is_error, code
    assert not (top / "made").exists()


def test_a_part_of_a_work_tree_refuses_what_would_change_the_rest(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    part = repositories.part(tmp_path)
    top = tmp_path / "repo"
    place = place_of(part, Answer.ONCE)
    place.runs("git switch -q inner")
    (top / "top.txt").write_text("changed\n", encoding="utf-8")
    for command in (
        "git switch outer",
        "git merge outer",
        "git reset --hard",
        "git pull",
        "git stash",
    ):
        result = place.run(command)
        assert result.status == "denied", command
        assert str(top) in result.content
    assert git(top, "status", "--porcelain") == " M top.txt\n"
    assert git(top, "branch", "--show-current") == "inner\n"
    place.runs("echo x >> in.txt && git add -A . && git commit -qm inner-2")
    assert git(top, "status", "--porcelain") == " M top.txt\n"


def test_a_part_ends_a_rebase_that_halted_in_it_after_a_question(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    part = repositories.part_of_linked(tmp_path)
    place = place_of(part, *[Answer.ONCE] * 3)
    place.runs("git switch -q -c topic main && echo topic > in.txt && git commit -qam topic")
    place.runs("echo more >> in.txt && git stash -q && git stash pop -q && git commit -qam more")
    halted = place.run("git rebase inner")
    assert "could not apply" in halted.content
    place.runs("git rebase --abort")
    assert git(part, "status", "--porcelain", "--branch") == "## topic\n"
    assert place.run("git rebase inner || git rebase --abort").status == "ok"
    assert git(part, "log", "--format=%s", "main..topic") == "more\ntopic\n"
    assert (part / "in.txt").read_text() == "topic\nmore\n"
    assert ["whole work tree" in reason for reason in place.reasons()] == [True, False, False]


def test_a_commit_has_the_person_of_the_home(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    """The usual place of a name and an address (B4)."""
    workspace = repositories.plain(tmp_path)
    for key in ("user.name", "user.email"):
        git(workspace, "config", "--unset", key)
    place = place_of(workspace)
    text = "[user]\n\tname = Ada\n\temail = ada@example.org\n[core]\n\texcludesFile = ~/ignored\n"
    (tmp_path / "home/.gitconfig").write_text(text)
    (tmp_path / "home/ignored").write_text("*.swp\n")
    place.runs("touch made.swp made && git add -A && git commit -qm second")
    assert git(workspace, "log", "-1", "--format=%an %ae") == "Ada ada@example.org\n"
    assert git(workspace, "show", "--format=", "--name-only", "HEAD") == "made\n"
    assert place.person.asked == []


def test_words_that_write_config_do_so_or_are_refused(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    workspace = repositories.plain(tmp_path)
    git(workspace, "clone", "-q", "--bare", ".", "../up.git")
    git(workspace, "remote", "add", "origin", "../up.git")
    git(workspace, "push", "-q", "origin", "main:theirs", "outer")
    git(workspace, "branch", "-q", "-D", "outer")
    place = place_of(workspace)
    assert "error" not in place.runs("git switch theirs")
    assert git(workspace, "config", "branch.theirs.remote") == "origin\n"
    place.runs("git switch -q -c mine origin/theirs && git remote add second ../second.git")
    assert git(workspace, "config", "branch.mine.merge") == "refs/heads/theirs\n"
    assert git(workspace, "remote") == "origin\nsecond\n"
    for command in ("git branch -D theirs && make", "git switch outer && ls"):
        result = place.run(command)
        assert result.status == "denied", command
        assert "git commands alone" in result.content
    assert "branch.theirs.remote" in git(workspace, "config", "--list")
    place.runs("git remote remove second && git branch -D theirs")
    assert "branch.theirs" not in git(workspace, "config", "--list")


def test_n16_what_git_writes_in_config_ends_without_an_error(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    workspace = repositories.plain(tmp_path)
    place = place_of(workspace, *[Answer.ONCE] * 9)
    git(workspace, "branch", "draft")
    git(workspace, "clone", "-q", "--bare", ".", "../up.git")
    git(workspace, "remote", "add", "origin", "../up.git")
    git(workspace, "fetch", "-q", "origin")
    for command in (
        "git branch -D draft",
        "git branch -u origin/main",
        "git branch --unset-upstream",
        "git remote rename origin up",
        "git branch --track other up/outer",
        "git branch -D other",
    ):
        said = place.runs(command)
        assert "error" not in said
        assert "stderr" not in said, said
    assert "branch.other" not in git(workspace, "config", "--list")


@pytest.mark.parametrize(
    "command",
    [
        "git fetch",
        "git fetch -q --depth 1 origin",
        "git fetch --all",
        "git pull --rebase origin main",
        "git push",
        "git push --dry-run origin main",
        "git push --repo=origin",
        "git ls-remote",
        "git remote update",
        "git remote add other ../up.git && git fetch other",
        "git remote set-url origin ../up.git && git pull",
        "git fetch ../up.git",
        "git fetch UP main",
        "git fetch file://UP",
        "git fetch FILE%2egit",
        "git -C packages fetch ../up.git",
        "git clone ../up.git copy",
        "git clone -q --depth 1 -b main file://UP copy",
        "git clone -q --reference UP . copy",
        "git archive --remote=UP main",
        "git push ../link main",
        "git fetch link",
        "git log --oneline -1 && git fetch",
        "sh -c 'git fetch'",
    ],
)
def test_a_remote_outside_of_the_workspace_is_refused_before_it_is_asked(
    tmp_path: Path, place_of: Callable[..., Place], command: str
) -> None:
    workspace = repositories.plain(tmp_path)
    git(workspace, "clone", "-q", "--bare", ".", "../up.git")
    git(workspace, "remote", "add", "origin", "../up.git")
    git(workspace, "config", "url.file://.insteadOf", "near:")
    (tmp_path / "link").symlink_to("up.git")
    (workspace / "link").symlink_to("../up.git")
    place = place_of(workspace)
    before = git(workspace, "config", "--list")
    whole = command.replace("UP", str(tmp_path / "up.git"))
    result = place.run(whole.replace("FILE%2egit", f"file://{tmp_path}/up%2egit"))
    assert result.status == "denied", result.content
    assert "up.git`" in result.content or "link`" in result.content
    assert "outside of the workspace" in result.content
    assert result.content.endswith("nothing was done: ask the user to run it")
    assert place.person.asked == []
    assert git(workspace, "config", "--list") == before


@pytest.mark.parametrize(
    "command",
    [
        "git fetch -q in.git",
        "git fetch -q near",
        "git -C packages fetch -q in.git",
        "git push -q in.git main:other",
        "git clone -q in.git copy && git -C copy fetch -q",
        "git clone -q --bare . /tmp/x.git && git fetch -q /tmp/x.git",
        "git fetch -q .",
        "git remote -v",
        "git remote add third ../nowhere.git",
        "git clone --help > /dev/null; true",
    ],
)
def test_a_remote_in_the_workspace_is_used(
    tmp_path: Path, place_of: Callable[..., Place], command: str
) -> None:
    workspace = repositories.plain(tmp_path)
    git(workspace, "clone", "-q", "--bare", ".", "in.git")
    git(workspace, "remote", "add", "near", "./in.git")
    git(workspace, "remote", "add", "far", "../up.git")
    place_of(workspace, *[Answer.ONCE] * 3).runs(command)


def test_a_remote_elsewhere_is_no_way_to_see_what_is_there(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    """The answer is the same for what is there and what is not."""
    place = place_of(repositories.plain(tmp_path))
    (tmp_path / "there").mkdir()
    said = [place.run(f"git fetch {tmp_path}/{name}").content for name in ("there", "other")]
    assert said[0].replace("there", "other") == said[1]


def test_a_linked_work_tree_fetches_from_its_repository(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    place = place_of(repositories.linked(tmp_path))
    place.runs("git fetch -q ../repo main")


def test_a_workspace_with_a_protected_name_is_refused_unless_it_is_a_work_tree(
    tmp_path: Path, place_of: Callable[..., Place]
) -> None:
    repository = repositories.plain(tmp_path)
    for name in (".git", ".claude", ".ssh"):
        (repository / name).mkdir(exist_ok=True)
        result = place_of(repository / name).run("touch made")
        assert result.status == "denied"
        assert "is protected, and is no work tree" in result.content, name
    worktree = repository / ".claude/worktrees/one"
    git(repository, "worktree", "add", "-q", str(worktree), "-b", "one")
    place = place_of(worktree)
    place.runs("touch made")
    place.runs(f"touch {os.path.realpath(worktree)}/by-path")
    assert place.run("mkdir -p .claude/x").status == "denied"
    place_of(worktree / "packages/fe").runs("touch made")
    (worktree / ".claude/skills").mkdir(parents=True)
    result = place_of(worktree / ".claude/skills").run("touch made")
    assert "is protected, and is no work tree" in result.content

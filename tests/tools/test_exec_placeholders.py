"""Tests of what commands see of protected names that do not exist, and of a new repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.floor import PersistentPaths
from skillhouse.permission import Effect, Rule
from skillhouse.sandbox import Launcher, OpenedProtection, SandboxProfile
from skillhouse.tools import ToolResult
from tests.extensions.cells.lab import until
from tests.harness import Need
from tests.house.places import make_places
from tests.sandbox.places import launcher
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

__all__ = ["launcher"]

ALL = Rule(effect=Effect.ALLOW, action="*", pattern="*")
GIT = "git -c user.name=me -c user.email=me@example.org"
NOTE = "skillhouse protects th"


class Empty:
    """A workspace with nothing in it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = make_places(base).start

    def run(self, *lines: str) -> list[ToolResult]:
        """Run lines one after another, and say yes to every question."""
        with house_at(self.base, ALL, person=Person([Answer.ONCE] * 40)) as house:
            # The house's places have one, with nothing in it.
            if not os.listdir(self.root / ".git"):
                (self.root / ".git").rmdir()
            return [house.call_sync("exec", {"command": line}) for line in lines]

    def last(self, *lines: str) -> ToolResult:
        return self.run(*lines)[-1]

    def names(self) -> list[str]:
        return sorted(os.listdir(self.root))


@pytest.fixture
def empty(tmp_path: Path, need: Need) -> Empty:
    need(shutil.which("bwrap"), "no bubblewrap")
    return Empty(tmp_path)


@pytest.fixture
def _git(need: Need) -> None:
    need(shutil.which("git", path="/usr/local/bin:/usr/bin:/bin"), "no git")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ls -A", "file\n"),
        ("find . | sort", ".\n./file\n"),
        ("cat .env", "exit code 1\n[stderr]\ncat: .env: No such file or directory\n"),
        ("test -e .git", "exit code 1"),
        ("grep -rl before . | wc -l", "1\n"),
        ("cd . && du -a .git", "du: cannot access '.git': No such file or directory"),
    ],
)
def test_what_only_looks_sees_no_placeholder(empty: Empty, line: str, expected: str) -> None:
    (empty.root / "file").write_text("before\n")
    assert expected in (content := empty.last(line).content), content
    assert NOTE not in content


@pytest.mark.parametrize("line", ["ls > out", "sort -o out file", "find . -delete"])
def test_what_writes_by_its_words_still_does(empty: Empty, line: str) -> None:
    (empty.root / "file").write_text("before\n")
    empty.run(line)
    assert empty.names() != ["file"]


def test_a_program_that_meets_one_learns_what_it_is(empty: Empty) -> None:
    listing = "python3 -c \"import os; print(*sorted(os.listdir('.')))\""
    writing = "python3 -c \"open('.env', 'w')\""
    listed, written, plain = empty.run(listing, writing, "python3 -c \"print('my.env')\"")
    assert listed.content.splitlines()[-1].startswith("[`.agents`, `.bash_login`, ")
    assert written.content.splitlines()[-1].startswith("[`.env` does not exist: ")
    assert NOTE not in plain.content
    (empty.root / ".env").write_text("A=1\n")
    assert NOTE not in empty.last(writing).content, "it is there"
    assert empty.names() == [".env"]


def test_what_begins_a_project_works_in_an_empty_workspace(empty: Empty, need: Need) -> None:
    need(shutil.which("npm", path="/usr/bin:/bin"), "no npm")
    lines = ("npm init -y", "python3 -m venv .venv --without-pip", "npm pack --dry-run")
    results = empty.run(*lines)
    assert [result.status for result in results] == ["ok"] * 3
    assert empty.names() == [".venv", "package.json"]
    # npm lists what it packs; of these names it has none of its own.
    assert [name for name in (".agents", ".vscode") if name in results[2].content] == []


def test_a_copy_of_the_workspace_holds_no_placeholder(empty: Empty) -> None:
    (empty.root / "copy").mkdir()
    (empty.root / "file").write_text("x")
    copying = "import shutil as s; s.copytree('.', 'copy/all', ignore=s.ignore_patterns('copy'))"
    result = empty.last(f'python3 -c "{copying}"')
    assert "directories with protected names: `copy/all/.agents`, " in result.content
    assert os.listdir(empty.root / "copy/all") == ["file"]


@pytest.mark.usefixtures("_git")
def test_git_adds_stashes_and_cleans_none_of_them(empty: Empty) -> None:
    lines = (
        "git init -q -b main",
        "touch file",
        "git add -A",
        f"{GIT} commit -qm one",
        "mkdir .vscode",
        "touch other",
        "git status --short --ignored",
        f"{GIT} stash -u",
        "touch more",
        "git clean -fd",
        "git ls-files",
    )
    results = empty.run(*lines)
    assert [(line, r.content) for line, r in zip(lines, results, strict=True) if r.is_error] == [
        ("mkdir .vscode", "denied: `.vscode` is protected")
    ]
    assert (results[6].content, results[10].content) == ("?? other\n", "file\n")
    assert "Removing more" in results[9].content
    assert empty.names() == [".git", "file"]


@pytest.mark.usefixtures("_git")
def test_git_passes_over_no_other_directory_of_such_a_name(empty: Empty) -> None:
    for place in (".", "sub"):
        subprocess.run(["git", "init", "-q", empty.root / place], check=True)
    for path in (".vscode/x", "sub/.idea/x"):
        (empty.root / path).parent.mkdir()
        (empty.root / path).write_text("x")
    there, below = empty.run("git status --short -uall", "git -C sub status --short")
    assert ("?? .vscode/x\n" in there.content, below.content) == (True, "?? .idea/\n")


@pytest.mark.usefixtures("_git")
def test_a_repository_is_made_at_the_top_by_git_alone(empty: Empty) -> None:
    made, again, ruined = empty.run(
        "git init -b main", "git status --short", "git config core.fsmonitor evil"
    )
    assert (made.status, again.content) == ("ok", "[no output]")
    assert ruined.is_error
    config = (empty.root / ".git/config").read_text()
    assert [word for word in ("fsmonitor", "hooksPath") if word in config] == []
    assert (empty.root / ".git/HEAD").read_text() == "ref: refs/heads/main\n"
    assert empty.names() == [".git"]


OTHERS = [
    "git init --template=evil",
    "git init --template evil",
    "git init --separate-git-dir=evil",
    "git -c init.templateDir=evil init",
    "GIT_TEMPLATE_DIR=evil git init",
    "env GIT_TEMPLATE_DIR=evil git init",
    "git init && python3 evil.py",
    "git init > out",
    "python3 evil.py",
    "sh -c 'git init; python3 evil.py'",
    "nice git init",
    "git init . evil",
]


@pytest.mark.usefixtures("_git")
@pytest.mark.parametrize("line", OTHERS)
def test_no_other_command_makes_one_there(empty: Empty, line: str) -> None:
    """Of each the person's prompt would obey settings of the model's while it still runs."""
    (empty.root / "evil/hooks").mkdir(parents=True)
    (empty.root / "evil/config").write_text("[core]\n\tfsmonitor = touch ran\n")
    (empty.root / "evil/hooks/post-index-change").write_text("touch ran\n")
    (empty.root / "evil.py").write_text(
        "import os\nos.makedirs('.git', exist_ok=True)\n"
        "open('.git/config', 'a').write('[core]\\n\\tfsmonitor = touch ran')\n"
    )
    result = empty.last(line)
    assert not (empty.root / ".git").exists(), result.content
    assert result.is_error


@pytest.mark.usefixtures("_git")
def test_an_existing_repository_is_not_opened_again(empty: Empty) -> None:
    subprocess.run(["git", "init", "-q", empty.root], check=True)
    setting = ["git", "-C", str(empty.root), "config", "core.editor", "own"]
    subprocess.run(setting, check=True)
    hook = empty.root / ".git/hooks/pre-commit"
    hook.write_text("own")
    assert empty.last("git init -b main").is_error
    assert "editor = own" in (empty.root / ".git/config").read_text()
    assert hook.read_text() == "own"
    (empty.root / ".git/config").unlink()
    assert empty.last("git init").is_error
    shutil.rmtree(empty.root / ".git")
    (empty.root / "elsewhere").mkdir()
    (empty.root / ".git").symlink_to("elsewhere")
    with house_at(empty.base, ALL) as house:
        house.call_sync("exec", {"command": "git init"})
    assert os.listdir(empty.root / "elsewhere") == []


@pytest.mark.usefixtures("_git")
def test_an_empty_directory_of_its_name_becomes_one(empty: Empty) -> None:
    with house_at(empty.base, ALL) as house:
        assert os.listdir(empty.root / ".git") == []
        made = house.call_sync("exec", {"command": "git init -q"})
        assert (made.status, made.content) == ("ok", "[no output]")
        assert house.call_sync("exec", {"command": "git status --short"}).status == "ok"


ATTACK = """
import os, time
open('started', 'w').close()
done = []
until = time.monotonic() + 10
while not os.path.exists('stop') and time.monotonic() < until:
    for name in ('.git/config', '.git/hooks/post-checkout', '.git/x'):
        try:
            os.makedirs(os.path.dirname(name), exist_ok=True)
            open(name, 'a').write('evil')
            done.append(name)
        except OSError:
            pass
    try:
        os.rename('.git', 'was')
        done.append('renamed')
    except OSError:
        pass
print(done)
"""


@pytest.mark.usefixtures("_git")
def test_a_command_at_the_same_time_changes_nothing_of_it(
    launcher: Launcher, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    said: list[bytes] = []

    async def attack() -> None:
        profile = SandboxProfile(place, paths=PersistentPaths())
        done = await launcher.run(("python3", "-c", ATTACK), profile, cwd=place)
        said.append(done.stdout)

    async def scene() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attack)
            with anyio.fail_after(20):
                while not (place / "started").exists():  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            opened = OpenedProtection(repositories=True, trees=True, top_repository=True)
            profile = SandboxProfile(place, paths=PersistentPaths(), opened=opened)
            done = await launcher.run(("git", "init", "-q"), profile, cwd=place)
            assert (done.exit_code, done.notes) == (0, ())
            (place / "stop").touch()

    anyio.run(scene)
    assert said == [b"[]\n"]
    assert "evil" not in (place / ".git/config").read_text()
    assert not (place / ".git/hooks/post-checkout").exists()
    assert sorted(os.listdir(place)) == [".git", "started", "stop"]


async def test_what_a_person_makes_under_a_placeholder_stays(empty: Empty) -> None:
    """It was renamed `.withheld` at the end of the run, though the run cannot have made it."""
    (empty.root / ".git").rmdir()
    made = [".claude/settings.json", ".vscode/tasks.json", ".env.d/x", ".git/hooks/pre-commit"]
    found: list[ToolResult] = []
    with house_at(empty.base, ALL, person=Person([Answer.ONCE])) as house:

        async def run() -> None:
            arguments = {"command": "python3 -c 'import time; time.sleep(2)'"}
            found.append(await house.call("exec", arguments))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: ".claude" in empty.names())
            for name in made:
                path = empty.root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("mine\n")
    assert "withheld: `.env.d`" in found[0].content, "that name has no placeholder"
    files = sorted(str(p.relative_to(empty.root)) for p in empty.root.rglob("*") if p.is_file())
    assert files == sorted([*made[:2], ".env.d.withheld/x", made[3]])

"""Ordinary work goes on with files that act later: real programs in a new repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.permission import Effect, Rule
from skillhouse.tools import ToolResult
from tests.harness import Need, ran
from tests.house.places import make_places
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

EXEC = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
FILES = {
    "package.json": '{"name": "p", "version": "1.0.0"}\n',
    "Makefile": "all: out.txt\nout.txt:\n\techo hi > out.txt\n",
    "CLAUDE.md": "# Work\n",
    "AGENTS.md": "# Work\n",
    ".github/workflows/x.yml": "on: push\n",
    "p.py": "x = 1\n",
    "pyproject.toml": (
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "p"\nversion = "1"\n[tool.setuptools]\npy-modules = ["p"]\n'
    ),
    "test_p.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def test(self): pass\n",
}


class Project:
    """A repository with two branches, an agent that may run any command, and nobody to ask."""

    def __init__(self, base: Path) -> None:
        self.base, self.person = base, Person()
        self.root = make_places(base).start
        shutil.rmtree(self.root / ".git", ignore_errors=True)
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "me")
        self.git("config", "user.email", "me@example.org")
        self.commit("one")
        self.git("checkout", "-q", "-b", "other")
        (self.root / "p.py").write_text("x = 2\n")
        self.commit("two")
        self.git("checkout", "-q", "main")

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), *arguments]
        return ran(command, check=True).stdout

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def sh(self, line: str) -> ToolResult:
        with house_at(self.base, EXEC, person=self.person) as house:
            result = house.call_sync("exec", {"command": line})
        assert (result.status, self.person.asked) == ("ok", []), result.content
        assert "withheld" not in result.content
        return result


@pytest.fixture
def project(tmp_path: Path, need: Need) -> Project:
    need(shutil.which("bwrap"), "no bubblewrap")
    need(shutil.which("git"), "no git")
    return Project(tmp_path)


def test_npm_writes_its_own_list(project: Project, need: Need) -> None:
    need(shutil.which("npm"), "no npm")
    project.sh("npm version patch --no-git-tag-version")
    assert json.loads((project.root / "package.json").read_text())["version"] == "1.0.1"


def test_npm_makes_a_new_list(project: Project, need: Need) -> None:
    need(shutil.which("npm"), "no npm")
    (project.root / "package.json").unlink()
    project.sh("npm init -y")
    assert (project.root / "package.json").is_file()


def test_make_writes_its_target(project: Project, need: Need) -> None:
    need(shutil.which("make"), "no make")
    project.sh("make")
    assert (project.root / "out.txt").read_text() == "hi\n"


def test_tests_write_their_caches(project: Project) -> None:
    project.sh("python3 -m unittest")
    assert (project.root / "__pycache__").is_dir()


def test_git_switches_to_a_branch_and_back(project: Project) -> None:
    for branch, text in (("other", "x = 2\n"), ("main", "x = 1\n")):
        project.sh(f"git checkout {branch}")
        assert ((project.root / "p.py").read_text(), project.git("status", "--short")) == (text, "")


@pytest.mark.parametrize(
    "line",
    [
        "git merge other",
        "git reset --hard other",
        "git restore --source=other p.py",
        "git checkout other -- p.py",
        "git cherry-pick other",
        "git checkout -b third",
        "git stash",
        "git mv p.py q.py",
    ],
)
def test_git_words_that_rewrite_other_files_are_not_asked_about(
    project: Project, line: str
) -> None:
    (project.root / "new.txt").write_text("new\n")
    before = {name: (project.root / name).read_text() for name in FILES if name != "p.py"}
    project.sh(line)
    assert {name: (project.root / name).read_text() for name in before} == before


def test_a_clone_brings_its_files_and_no_hook(project: Project) -> None:
    result = project.sh("git clone . copy")
    assert "came with it: `copy/AGENTS.md`" in result.content
    assert (project.root / "copy/.github/workflows/x.yml").is_file()
    clone = ["git", "-C", str(project.root / "copy"), "status", "--short"]
    done = ran(clone, check=True)
    assert done.stdout == ""
    left = os.listdir(project.root / "copy/.git/hooks")
    assert [name for name in left if not name.endswith(".sample")] == []


def test_cargo_makes_a_package(project: Project) -> None:
    if shutil.which("cargo", path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip("no cargo in the sandbox, and a toolchain is too much for CI to install")
    project.sh("cargo new crate")
    assert (project.root / "crate/.git/config").is_file()


def test_an_environment_takes_an_editable_package(project: Project) -> None:
    code = "import setuptools; import pip, wheel"
    has = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, check=False, env={})
    if has.returncode:
        pytest.skip("no setuptools for the system's Python, which CI does not install")
    project.sh("python3 -m venv --system-site-packages .venv")
    (project.root / "install.py").write_text(
        "import subprocess, sys\n"
        "options = ['--no-build-isolation', '--no-index', '--no-deps', '-q', '-e', '.']\n"
        "sys.exit(subprocess.run(['.venv/bin/pip', 'install', *options]).returncode)\n"
    )
    project.sh("python3 install.py")
    assert list((project.root / ".venv/lib").glob("python3*/site-packages/*p-1*"))


UGLY = "x  =  {  'a':1 }\n"
FORMATTER = """import pathlib, sys
for file in pathlib.Path(sys.argv[-1]).glob("*.py"):
    file.write_text(file.read_text().replace("  ", " ").replace("'", '"'))
"""
"""What there is of a formatter where black cannot be had."""
BLACK = """import subprocess
import sys

sys.exit(subprocess.run([".venv/bin/black", "."]).returncode)
"""
"""A program is named, and never by its path, so a script starts it. It is as black would have it:
while it runs, its approved copy is read-only."""


def approved(project: Project, line: str) -> tuple[ToolResult, list[str]]:
    """Return what an approved command did, and the titles of its questions."""
    person = Person([Answer.ONCE] * 3)
    with house_at(project.base, person=person) as house:
        result = house.call_sync("exec", {"command": line})
    return result, [asked.title for asked in person.asked]


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_formatter_writes_the_files(project: Project, is_allowed: bool) -> None:
    (project.root / "tidy").mkdir()
    (project.root / "tidy/tidy.py").write_text(FORMATTER)
    (project.root / "ugly.py").write_text(UGLY)
    line = "python3 tidy/tidy.py ."
    if is_allowed:
        project.sh(line)
    else:
        result, titles = approved(project, line)
        assert (result.status, titles) == ("ok", [f"exec: {line}"])
    assert (project.root / "ugly.py").read_text() != UGLY


@pytest.mark.heavy
def test_black_writes_the_files(project: Project) -> None:
    environment = project.root / ".venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", str(environment)], check=True)
    install = [str(environment / "bin/pip"), "install", "-q", "--retries", "0", "black"]
    if subprocess.run(install, capture_output=True, check=False, timeout=100).returncode:
        pytest.skip("no index of packages to install black from; see the formatter above")
    (project.root / "ugly.py").write_text(UGLY)
    (project.root / "tidy.py").write_text(BLACK)
    result, titles = approved(project, "python3 tidy.py")
    assert (result.status, titles) == ("ok", ["exec: python3 tidy.py"]), result.content
    assert (project.root / "ugly.py").read_text() == 'x = {"a": 1}\n'
    (project.root / "ugly.py").write_text(UGLY)
    project.sh("python3 tidy.py")
    assert (project.root / "ugly.py").read_text() == 'x = {"a": 1}\n'


def test_make_does_not_make_its_own_makefile_anew(project: Project, need: Need) -> None:
    """The approved one runs; where it is named as well, it is asked about and written first."""
    need(shutil.which("make"), "no make")
    text = "all:\n\techo one > out.txt\nMakefile: Makefile.in\n\tcp Makefile.in Makefile\n"
    (project.root / "Makefile").write_text(text)
    (project.root / "Makefile.in").write_text(text.replace("one", "two"))
    os.utime(project.root / "Makefile", (1, 1))
    result, titles = approved(project, "make")
    assert (result.status, titles) == ("ok", ["exec: make"])
    # The copy that is mounted is newer than what it is made from.
    assert (project.root / "out.txt").read_text() == "one\n"
    assert (project.root / "Makefile").read_text() == text
    with house_at(project.base, EXEC, person=project.person) as house:
        result = house.call_sync("exec", {"command": "make"})
    assert (result.status, "Read-only file system" in result.content) == ("error", True)
    assert (project.root / "Makefile").read_text() == text
    result, titles = approved(project, "cp Makefile.in Makefile && make")
    assert (result.status, titles) == ("ok", ["exec: cp Makefile.in Makefile ; make"])
    assert (project.root / "out.txt").read_text() == "two\n"

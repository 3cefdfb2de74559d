"""Attacks by new names: what may be written gets the name, or the place, of what acts later.

Each left a hostile file where a program obeys it, with a rule `exec *` and no question.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.floor import PROTECTED_NAMES
from skillhouse.floor.crash_cleanup import PLACEHOLDER_NS
from skillhouse.sandbox.mountpoints import KeptPlaceholders
from skillhouse.sandbox.protected_mounts import MountCover, protected_mounts
from tests.attacks.test_persistence_attacks import Workspace, workspace

pytestmark = pytest.mark.slow

__all__ = ["workspace"]

PRELUDE = """
import os
def put(path, text='evil'):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    open(path, 'w').write(text)
def rename(old, new, how=os.rename):
    os.makedirs(os.path.dirname(new) or '.', exist_ok=True)
    how(old, new)
def attempt(action):
    try:
        action()
    except OSError as error:
        print('refused', type(error).__name__)
    else:
        print('done')
"""


def hostile(workspace: Workspace, code: str) -> str:
    """Run code of the workspace that ordinary rules allow, and return the result's text."""
    workspace.put("attack.py", PRELUDE + code)
    return workspace.sh("python3 attack.py").content


def found(workspace: Workspace, word: str = "evil") -> set[str]:
    """Return the files that hold a word, by the path that a program would open, links followed."""
    hits = set()
    for place, _, names in os.walk(workspace.root, followlinks=True):
        for name in names:
            path = Path(place, name)
            if name != "attack.py" and path.is_file() and word in path.read_text(errors="replace"):
                hits.add(path.relative_to(workspace.root).as_posix())
    return hits


@pytest.mark.parametrize(
    ("link", "inside"),
    [
        (".github", "workflows/x.yml"),
        (".config", "git/config"),
        (".cargo", "config.toml"),
        ("sub/.yarn", "releases/yarn.cjs"),
        (".GitHub", "skills/x/SKILL.md"),
        (".local/share", "systemd/user/x.service"),
        (".hg", "hgrc"),
    ],
)
def test_a_new_link_lends_a_directory_a_name_that_counts(
    workspace: Workspace, link: str, inside: str, bwrap: None
) -> None:
    text = hostile(
        workspace,
        f"put('data/{inside}')\nos.makedirs(os.path.dirname({link!r}) or '.', exist_ok=True)\n"
        f"os.symlink(os.path.abspath('data'), {link!r})",
    )
    assert f"{link}/{inside}" not in found(workspace)
    assert f"withheld: `{link}`" in text


def test_a_directory_is_swapped_for_a_link(workspace: Workspace, bwrap: None) -> None:
    workspace.put(".github/dependabot.yml")
    hostile(
        workspace,
        "put('data/workflows/x.yml')\nos.rename('.github', 'was')\nos.symlink('data', '.github')",
    )
    assert ".github/workflows/x.yml" not in found(workspace)


def test_other_new_links_stay(workspace: Workspace, bwrap: None) -> None:
    text = hostile(workspace, "put('data/x')\nos.symlink('data', 'current')\nos.symlink('x', 'y')")
    assert (os.readlink(workspace.root / "current"), "withheld" in text) == ("data", False)


@pytest.mark.parametrize("how", ["os.rename", "os.link", "os.replace"])
@pytest.mark.parametrize("name", [".envrc", "sub/deep/.envrc", "Makefile", ".husky/pre-commit"])
def test_an_opened_file_gets_another_name(tmp_path: Path, how: str, name: str, bwrap: None) -> None:
    workspace = Workspace(tmp_path, [Answer.ONCE] * 4)
    workspace.put("package.json", "{}")
    workspace.put(
        "attack.py",
        f"{PRELUDE}put('package.json')\nrename('package.json', {name!r}, {how})",
    )
    # The line names package.json, so that an approval opens it for the whole run.
    result = workspace.sh("touch package.json && python3 attack.py")
    assert result.status in ("ok", "error")
    assert name not in found(workspace), result.content
    assert f"withheld: `{name.split('/pre', maxsplit=1)[0]}`" in result.content


@pytest.mark.parametrize("name", ["Makefile", "AGENTS.md", ".mcp.json", ".envrc", ".git/config"])
def test_the_directory_around_a_protected_file_is_swapped(
    workspace: Workspace, name: str, bwrap: None
) -> None:
    workspace.put(f"pkg/{name}")
    text = hostile(
        workspace, f"os.rename('pkg', 'was')\nput('pkg/{name}', '[core]\\nfsmonitor=evil')"
    )
    assert f"pkg/{name}" not in found(workspace), text


def test_a_protected_link_is_swapped_for_a_file(workspace: Workspace, bwrap: None) -> None:
    workspace.put("README.md")
    (workspace.root / "AGENTS.md").symlink_to("README.md")
    os.utime(workspace.root / "AGENTS.md", (7, 7), follow_symlinks=False)
    hostile(
        workspace,
        "put('other.md')\nos.unlink('AGENTS.md')\nos.symlink('./other.md', 'AGENTS.md')\n"
        "os.unlink('AGENTS.md')\nos.symlink('other.mdx'[:9], 'AGENTS.md')\n"
        "os.utime('AGENTS.md', (7, 7), follow_symlinks=False)\nput('other.mdx')",
    )
    assert "AGENTS.md" not in found(workspace)


@pytest.mark.parametrize("name", [".husky", "sub/.claude", ".github/workflows", "sub/.git"])
def test_a_directory_with_the_time_of_a_placeholder_is_not_ours(
    workspace: Workspace, name: str, bwrap: None
) -> None:
    hostile(
        workspace,
        f"put('{name}/config', '[core]\\nfsmonitor=evil')\n"
        f"os.utime({name!r}, ns=({PLACEHOLDER_NS},) * 2)",
    )
    assert f"{name}/config" not in found(workspace)
    # And nothing of it comes back by way of the directories that later runs put there.
    for _ in range(2):
        workspace.sh("touch x")
    assert [path for path in found(workspace) if "withheld" not in path] == []


def test_two_directories_of_one_moment_are_swapped(workspace: Workspace, bwrap: None) -> None:
    hostile(workspace, "put('.local/share/x', '')\nput('data/share/systemd/user/x.service')")
    one, two = workspace.root / ".local/share", workspace.root / "data/share"
    # Newer kernels give no two changes the same time.
    for _ in range(2_000):
        for place in (one, two):
            place.chmod(0o755)
        if one.stat().st_ctime_ns == two.stat().st_ctime_ns:
            break
    hostile(
        workspace,
        "os.rename('.local', 'was')\nos.rename('data', '.local')",
    )
    assert ".local/share/systemd/user/x.service" not in found(workspace)


ELSEWHERE = """
put('evil/config', '[core]\\nbare = false\\nfsmonitor = touch {ran}')
put('evil/objects/x'), put('evil/refs/x')
def renames():
    put('made', text)
    os.rename('made', name)
settings = open('evil/config').read()
for name, text in (('{git}/commondir', '../evil'), ('{git}/config.worktree', settings)):
    attempt(lambda: put(name, text))
    attempt(renames)
    attempt(lambda: os.symlink('../made', name))
    attempt(lambda: os.link('made', name))
    attempt(lambda: os.unlink(name))
"""


@pytest.mark.parametrize("place", ["", "sub/"])
def test_configuration_of_a_repository_is_sought_elsewhere_while_a_command_runs(
    workspace: Workspace, tmp_path: Path, place: str, bwrap: None, git: None
) -> None:
    """A prompt of the person would have started the program before the run was over."""
    directory = workspace.root / place
    subprocess.run(["git", "init", "-q", directory], check=True)
    extended = ["git", "-C", str(directory), "config", "extensions.worktreeConfig", "true"]
    subprocess.run(extended, check=True)
    code = ELSEWHERE.replace("{git}", f"{place}.git").replace("{ran}", str(tmp_path / "ran"))
    assert "done" not in hostile(workspace, code)
    found = {"commondir", "config.worktree"} & set(os.listdir(directory / ".git"))
    assert found == set()


def test_a_person_and_a_command_use_git_at_the_same_time(
    workspace: Workspace, bwrap: None, git: None
) -> None:
    run = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]
    run += ["-C", str(workspace.root)]
    subprocess.run([*run, "init", "-q", "-b", "main"], check=True)
    workspace.put("file")
    result = workspace.sh(
        "git add file && git -c user.name=me -c user.email=me@example.org commit -qm one && "
        "git status --short && git stash list && git log --format=%s && git gc -q && git fsck"
    )
    assert result.content == "one\n"

    def asks() -> list[str]:
        words = (["status", "--short"], ["log", "--format=%s"], ["rev-parse", "--git-dir"])
        done = [subprocess.run([*run, *w], check=True, capture_output=True) for w in words]
        subprocess.run([*run, "commit", "-q", "--allow-empty", "-m", "two"], check=True)
        return [one.stdout.decode().strip() for one in done]

    async def person() -> list[str]:
        async with protected_mounts(
            str(workspace.root), PROTECTED_NAMES, stash=KeptPlaceholders()
        ) as mounts:
            assert mounts.covers[f"{workspace.root}/.git/commondir"] is MountCover.READ_ONLY
            return asks()

    assert anyio.run(person) == ["", "one", ".git"]
    assert not (workspace.root / ".git/commondir").exists()
    subjects = subprocess.run([*run, "log", "--format=%s"], check=True, capture_output=True)
    assert subjects.stdout == b"two\none\n"


def test_a_work_tree_elsewhere_is_kept_and_nothing_is_left(
    workspace: Workspace, bwrap: None, git: None
) -> None:
    subprocess.run(["git", "init", "-q", workspace.root], check=True)
    setting = ["git", "-C", str(workspace.root), "config", "core.worktree", "../tree"]
    subprocess.run(setting, check=True)
    (workspace.root / "tree").mkdir()
    hostile(workspace, "attempt(lambda: put('.git/commondir', '../evil'))")
    assert not (workspace.root / ".git/commondir").exists()

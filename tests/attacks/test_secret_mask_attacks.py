"""Attacks on secrets that git tracks, by programs, by git's history and by taking their place.

Each is first tried without the gate, where it works.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from skillhouse.tools import ToolResult
from tests.harness import Need, ran
from tests.house.places import make_places
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

SECRET = "hunter2-of-the-work-tree"
FILES = {
    "a.txt": "a\n",
    ".env": f"K={SECRET}\n",
    "deploy/.env": f"K={SECRET}\n",
    "certs/server.key": f"{SECRET}\n",
    ".ssh/config": f"# {SECRET}\n",
    "read.py": "import sys; print(open(sys.argv[1]).read())\n",
}
ALL = (
    *(Rule(effect=Effect.ALLOW, action=name, pattern="*") for name in ("exec", "write")),
    *(Rule(effect=Effect.ALLOW, action="exec", pattern=f"python3 {n}.py") for n in ("all", "take")),
)


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), "-c", "user.name=me", "-c", "user.email=me@x", *arguments]
    return ran(command, check=True).stdout


class Project:
    def __init__(self, root: Path, house: Skillhouse, person: Person) -> None:
        self.root, self.house, self.person = root, house, person

    def sh(self, line: str) -> ToolResult:
        return self.house.call_sync("exec", {"command": line})

    def outside(self, line: str) -> str:
        done = ran(["bash", "-c", line], cwd=self.root)
        return done.stdout + done.stderr

    def state(self) -> tuple[str, ...]:
        files = sorted(path for path in self.root.rglob("*") if ".git" not in path.parts)
        texts = [f"{path}: {path.read_text()}" for path in files if path.is_file()]
        return (git(self.root, "status", "--short"), git(self.root, "rev-parse", "HEAD"), *texts)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, need: Need) -> Iterator[Project]:
    base = tmp_path_factory.mktemp("masks")
    root = make_places(base).start
    git(root, "init", "-q", "-b", "main")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "one")
    git(root, "checkout", "-q", "-b", "other")
    (root / ".env").write_text(f"K={SECRET} other\n")
    git(root, "commit", "-q", "-am", "two")
    git(root, "checkout", "-q", "main")
    git(root, "tag", "blob", git(root, "rev-parse", "HEAD:.env").strip())
    (root / "own.key").write_text(f"{SECRET}\n")
    (root / "a.txt").write_text("stashed\n")
    (root / "deploy/.env").write_text(f"K={SECRET} stashed\n")
    git(root, "stash")
    person = Person()
    with house_at(base, *ALL, person=person, sandbox="bubblewrap") as house:
        yield Project(root, house, person)


READS = [
    "cp {0} /tmp/x; cat /tmp/x",
    "sh read.sh {0}",
    "dd if={0} status=none",
    "python3 -c 'import os; print(os.pread(os.open(\"{0}\", os.O_RDONLY), 99, 0))'",
    "python3 -c 'import mmap; print(mmap.mmap(open(\"{0}\").fileno(), 0, prot=1)[:])'",
    'python3 -c \'import os; os.chmod("{0}", 0o644); print(open("{0}").read())\'',
    (
        'python3 -c \'import os; f = os.open("{0}", os.O_PATH); '
        'print(open(f"/proc/self/fd/{{f}}").read())\''
    ),
    'python3 -c \'import os; os.rename("{0}", "x"); print(open("x").read())\'',
    'python3 -c \'import os; os.link("{0}", "x"); print(open("x").read())\'',
    "tar cf - {0}",
    "git diff --no-index /dev/null {0}",
    "git hash-object -w {0}",
    "umount {0}; cat {0}",
]


def test_no_program_reads_the_bytes_of_a_masked_file(project: Project) -> None:
    """All in one script: a program that the rules let run is not judged by what it opens."""
    (project.root / "read.sh").write_text('while read -r line; do echo "$line"; done < "$1"\n')
    names = (".env", "certs/server.key", ".ssh/config", "own.key")
    lines = [line.format(name) for name in names for line in READS]
    assert SECRET in project.outside("; ".join(lines[:5]))
    (project.root / "all.py").write_text(
        "import subprocess\n"
        f"for line in {lines!r}:\n"
        "    subprocess.run(['sh', '-c', line])\n"
        "import os\n"
        "for place, _, names in os.walk('/', onerror=None):\n"
        "    if place.startswith(('/proc', '/usr', '/dev')):\n"
        "        continue\n"
        "    for name in names:\n"
        "        try:\n"
        "            data = open(os.path.join(place, name), 'rb').read(1 << 20)\n"
        "        except OSError:\n"
        "            continue\n"
        f"        if {SECRET[:9]!r}.encode() + {SECRET[9:]!r}.encode() in data:\n"
        "            print('found', place, name)\n"
    )
    try:
        result = project.sh("python3 all.py")
        assert result.status == "ok", result.content
        assert SECRET not in result.content
        assert "found" not in result.content
    finally:
        for made in ("read.sh", "all.py"):
            (project.root / made).unlink()
    assert all((project.root / name).read_text().strip().endswith(SECRET) for name in names)


DOORS = [
    "git show",
    "git show HEAD",
    "git show blob",
    "git show {blob}",
    "git show --stat {blob}",
    "git show other --",
    "git cat-file -p {blob}",
    "git cat-file blob blob",
    "git log -p",
    "git log --patch -1",
    "git log -U9 --all",
    "git log -c -p --all",
    "git whatchanged -p",
    "git reflog -p",
    "git stash show -p",
    "git stash list -p",
    "git diff main other",
    "git diff main..other",
    "git diff other",
    "git diff other .",
    "git log -p deploy",
    "git show HEAD deploy",
    "git diff {blob} HEAD:a.txt",
    "git diff-tree -p HEAD other",
    "git diff-tree -p --root HEAD",
    "git format-patch --stdout main..other",
    "git grep K= HEAD",
    "git grep -n -e K= other",
    "git grep --cached K=",
    "git grep K= {blob}",
    "git archive HEAD",
    "git archive --format=tar HEAD deploy",
    "git bundle create b.bundle --all && tail -c +1 b.bundle",
    "git clone -q . copy && python3 read.py copy/.env",
    "git worktree add -q copy && python3 read.py copy/.env",
    "git checkout other -- .env && git diff --cached",
    "cd deploy && git show HEAD",
    "git -C deploy log -p",
    "git --no-pager show",
    "git log -p | head -n 99",
]


@pytest.mark.parametrize("door", DOORS)
def test_no_word_of_git_gives_a_secret_of_the_history_unasked(project: Project, door: str) -> None:
    line = door.format(blob=git(project.root, "rev-parse", "HEAD:.env").strip())
    if not {"bundle", "clone", "worktree", "checkout"} & {*line.split()}:
        assert SECRET in project.outside(line)
    before = project.state()
    result = project.sh(line)
    assert result.status == "denied", result.content
    assert SECRET not in result.content
    assert project.state() == before


FREE = [
    "git diff",
    "git log --oneline",
    "git log --stat",
    "git show --stat HEAD",
    "git show --name-only other",
    "git log -p -- a.txt",
    "git show HEAD -- . ':(exclude,top).env' ':!deploy' ':!certs' ':!.ssh'",
    "git grep -l a HEAD -- a.txt",
    "git stash list",
    "git diff HEAD",
    "git diff a.txt",
    "git diff HEAD a.txt",
    "git diff --word-diff main other a.txt",
    "git log -p -1 a.txt",
    "git show HEAD a.txt",
    "git diff-tree -p HEAD other a.txt",
]


@pytest.mark.parametrize("line", FREE)
def test_what_gives_no_secret_is_not_asked_about(project: Project, line: str) -> None:
    before = len(project.person.asked)
    result = project.sh(line)
    assert (result.status, len(project.person.asked)) == ("ok", before), result.content
    assert SECRET not in result.content


def test_git_works_beside_masked_files_as_outside(project: Project) -> None:
    """Tracked ones are unchanged to it, and one that nobody tracks is not there (B2)."""
    (project.root / "a.txt").write_text("changed\n")
    asked = len(project.person.asked)
    try:
        result = project.sh("git status --short && git diff --stat && git add -A && git stash -q")
        assert result.status == "ok", result.content
        assert result.content.startswith(" M a.txt\n a.txt | 2 +-\n 1 file changed")
        assert git(project.root, "stash", "show", "--name-only", "stash@{0}") == "a.txt\n"
        git(project.root, "stash", "pop", "-q")
        result = project.sh("git -c user.name=me -c user.email=me@x commit -qam changed")
        assert result.status == "ok", result.content
        assert git(project.root, "show", "--format=%s", "--name-only") == "changed\n\na.txt\n"
    finally:
        git(project.root, "reset", "-q", "--hard", "other~1")
    assert len(project.person.asked) == asked


WRITES = [
    "git switch other",
    "git checkout -q other",
    "git checkout other -- .",
    "git merge other",
    "git rebase other",
    "git cherry-pick other",
    "git reset --hard other",
    "git reset -q other",
    "git restore --source=other .",
    "git stash pop",
    "git stash -a",
    "git rm .env",
    "git rm -r certs",
    "git mv certs certificates",
    "git clean -fdx",
    "git clean -fX",
    "rm -rf certs",
    "rm -r certs deploy",
]


@pytest.mark.parametrize("line", WRITES)
def test_what_would_write_a_masked_file_is_refused_before_it_starts(
    project: Project, line: str
) -> None:
    before, asked = project.state(), len(project.person.asked)
    result = project.sh(line)
    assert result.status == "denied"
    assert result.content.startswith("denied, nothing was done:"), result.content
    assert project.state() == before
    assert len(project.person.asked) == asked


def test_nothing_takes_the_place_of_a_masked_file(project: Project) -> None:
    """By programs of a script, of which nothing is known before."""
    before = project.state()
    (project.root / "take.py").write_text(
        "import os, shutil\n"
        "def tried(work):\n"
        "    try:\n"
        "        work()\n"
        "    except OSError as error:\n"
        "        print('no:', error.errno)\n"
        "    else:\n"
        "        print('done')\n"
        "open('mine', 'w').write('mine')\n"
        "for name in ('.env', 'certs/server.key', 'own.key'):\n"
        "    tried(lambda: os.unlink(name))\n"
        "    tried(lambda: os.replace('mine', name))\n"
        "    tried(lambda: open(name, 'w'))\n"
        "    tried(lambda: os.truncate(name, 0))\n"
        "    tried(lambda: os.utime(name))\n"
        "    tried(lambda: os.chmod(name, 0o644))\n"
        "os.unlink('mine')\n"
    )
    try:
        result = project.sh("python3 take.py")
    finally:
        (project.root / "take.py").unlink()
    assert result.content.split() == ["no:", *result.content.split()[1:]]
    assert "done" not in result.content
    assert project.state() == before


def test_an_index_that_names_another_file_shows_nothing_of_it(project: Project) -> None:
    """A mask has the size of an entry and holes for content, whatever the entry says."""
    index = project.root / ".git/index"
    kept = index.read_bytes()
    info = os.stat(project.root / "a.txt")
    entry = f"100644,{git(project.root, 'rev-parse', 'HEAD:a.txt').strip()},own.key"
    git(project.root, "update-index", "--add", "--cacheinfo", entry)
    try:
        result = project.sh("ls -l own.key")
    finally:
        index.write_bytes(kept)
    assert SECRET not in result.content
    assert info.st_size == os.stat(project.root / "a.txt").st_size


def test_what_a_person_has_deleted_or_staged_is_not_given_either(project: Project) -> None:
    """Where there is no file, there is no mask."""
    deploy, env = project.root / "deploy/.env", project.root / ".env"
    kept = {path: path.read_text() for path in (deploy, env)}
    deploy.unlink()
    env.write_text(f"K={SECRET} staged\n")
    git(project.root, "add", ".env")
    try:
        for line in (
            *("git diff", "git diff HEAD", "git diff --cached", "git diff-files -p"),
            *("git diff-index -p HEAD", "git add -p", "git reset -p", "git status -v"),
            *("git commit --dry-run -v", "git stash", "git restore --staged --worktree ."),
        ):
            if line.startswith("git diff"):
                assert SECRET in project.outside(line)
            result = project.sh(line)
            assert result.status == "denied", (line, result.content)
            assert SECRET not in result.content
        result = project.sh("git diff -- a.txt; git status --short")
        assert (result.status, result.content.split()) == ("ok", ["M", ".env", "D", "deploy/.env"])
    finally:
        git(project.root, "reset", "-q")
        for path, text in kept.items():
            path.write_text(text)
    assert git(project.root, "status", "--short").split() == ["??", "own.key"]

"""Attacks on the gate of what writes (security.md section 6, items 71 and 72).

Each first works on the check of a published design: a list of exact paths and prefixes, patterns
of the last name, and a containment by text (seeds.md section 1.1, "Protected files").
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from skillhouse.approval import Answer, ApprovalRequest, Unattended
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import load_profile, profile_names
from skillhouse.tools import WriteGate
from tests.harness import ran
from tests.house.places import make_places, write_skill
from tests.machines import OWN_MOUNTS
from tests.tools.houses import Person

pytestmark = pytest.mark.slow

EVERYTHING = Rule(effect=Effect.ALLOW, action="*", pattern="*")
PREFIXES = (
    ".git/config .git/HEAD .git/hooks .ssh .gnupg .npmrc .netrc .env .env.local .env.production"
).split()
NAMES = re.compile(r"\.env(\..+)?|id_[a-z]+|.*\.pem|.*\.key", re.IGNORECASE)


def published_write(root: Path, path: str, content: str) -> None:
    """Write as the published tool does, whose list is of the workspace's top."""
    relative = os.path.normpath(path)
    if os.path.isabs(relative) or relative.startswith(".."):
        raise PermissionError(path)
    if any(relative == p or relative.startswith(f"{p}/") for p in PREFIXES):
        raise PermissionError(path)
    if NAMES.fullmatch(PurePosixPath(relative).name):
        raise PermissionError(path)
    place = root / relative
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)


def house_at(base: Path, *, gate: WriteGate | None = None, **values: Any) -> Skillhouse:
    values.setdefault("channel", Unattended())
    values.setdefault("layers", (Layer(name="user", rules=(EVERYTHING,)),))
    return Skillhouse(configured(make_places(base)), write_gate=gate or WriteGate(), **values)


def try_all(house: Skillhouse, path: str) -> list[tuple[str, str]]:
    """Try each tool that writes a file; exec by a redirection of its own."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write", {"path": path, "content": "evil"}),
        ("edit", {"path": path, "old": "harmless", "new": "evil"}),
        ("exec", {"command": f"echo evil > '{path}'"}),
    ]
    results = [house.call_sync(*call) for call in calls]
    return [(result.status, result.content) for result in results]


NOT_THERE_YET = [
    ".git/hooks/pre-commit",
    ".GIT/hooks/pre-commit",
    ".g\u200cit/hooks/pre-commit",
    "git~1/hooks/pre-commit",
    ".git /hooks/pre-commit",
    ".git./config",
    ".git::$INDEX_ALLOCATION/config",
    "sub/.git/hooks/pre-commit",
    "sub/.git/config",
    "sub/module/.git",
    ".gitmodules",
    "sub/.gitmodules",
    ".gitconfig",
    ".bashrc",
    "sub/.bashrc",
    ".zshrc",
    ".zshenv",
    ".profile",
    ".bash_profile",
    ".ripgreprc",
    ".mcp.json",
    "sub/.mcp.json",
    ".vscode/tasks.json",
    "sub/.vscode/settings.json",
    ".idea/workspace.xml",
    ".claude/commands/x.md",
    ".claude/agents/x.md",
    ".claude/settings.local.json",
    ".agents/skills/new/SKILL.md",
    ".skillhouse/skills/new/SKILL.md",
    ".opencode/skill/new/SKILL.md",
    "skillhouse.toml",
    "sub/skillhouse.toml",
    ".ssh/config",
    "deploy/.ssh/authorized_keys",
    "deploy/id_ed25519",
    "deploy/id_rsa.old",
    ".ENV",
    "deploy/.env.production",
    "deploy/server.PEM",
]


@pytest.mark.parametrize("path", NOT_THERE_YET)
def test_71_a_protected_path_is_not_made_at_any_depth_or_in_any_spelling(
    tmp_path: Path, path: str
) -> None:
    naive = tmp_path / "naive"
    try:
        published_write(naive, path, "evil")
    except PermissionError:
        # What its list does hold; the other spellings and depths are the attack.
        assert path.startswith((".git/", ".ssh/")) or NAMES.fullmatch(PurePosixPath(path).name)
    else:
        assert (naive / os.path.normpath(path)).read_text() == "evil"
    person = Person([Answer.ONCE] * 9)
    with house_at(tmp_path, channel=person) as house:
        for spelling in (path, str(tmp_path / "project" / path), f"./{path}", f"a/./{path}"[2:]):
            told = try_all(house, spelling)
            assert {status for status, _ in told} == {"denied"}, told
            assert "is protected" in told[0][1]
        assert person.asked == []
    assert not (tmp_path / "project" / path).exists()


def test_71_the_published_list_misses_most_of_them(tmp_path: Path) -> None:
    taken = []
    for path in NOT_THERE_YET:
        try:
            published_write(tmp_path, path.replace("sub/module/.git", "s/m/.git"), "evil")
        except (PermissionError, OSError):
            continue
        taken.append(path)
    assert len(taken) > len(NOT_THERE_YET) / 2


@pytest.mark.parametrize("name", profile_names())
def test_71_no_root_of_skills_of_any_profile_is_written_to(tmp_path: Path, name: str) -> None:
    """Roots that do not exist yet: a skill that is written there is offered at the next start."""
    rules = load_profile(name).roots
    paths = [rule.path for rule in rules if not rule.path.startswith(("/", "~", "$", "{"))]
    published_write(tmp_path / "naive", "skills/new/SKILL.md", "evil")
    with house_at(tmp_path, profile=name, roots=[tmp_path / "project/lent"]) as house:
        explicit = ["lent"] if any(rule.path == "{explicit}" for rule in rules) else []
        for path in [*paths, *explicit]:
            for below in ("SKILL.md", "new/SKILL.md", "new/scripts/run.py"):
                assert {status for status, _ in try_all(house, f"{path}/{below}")} == {"denied"}
                assert not (tmp_path / "project" / path / below).exists()


def by_its_path(project: Path, skill: Path) -> str:
    return str(skill.relative_to(project) / "SKILL.md")


def by_a_link(project: Path, skill: Path) -> str:
    (project / "notes").symlink_to(skill)
    return "notes/SKILL.md"


def by_a_hard_link(project: Path, skill: Path) -> str:
    os.link(skill / "SKILL.md", project / "notes.md")
    return "notes.md"


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("way", [by_its_path, by_a_link, by_a_hard_link])
def test_71_a_skill_does_not_edit_a_skill(
    tmp_path: Path, way: Callable[[Path, Path], str], loaded: bool
) -> None:
    project = make_places(tmp_path).start
    skill = write_skill(project / "lent/helper", body="harmless\n")
    path = way(project, skill)
    before = (skill / "SKILL.md").read_bytes()
    published_write(project, path, "evil")
    assert (skill / "SKILL.md").read_text() == "evil"
    (skill / "SKILL.md").write_bytes(before)
    with house_at(tmp_path, roots=[project / "lent"]) as house:
        if loaded:
            assert house.call_sync("skill", {"name": "helper"}).status == "ok"
        told = try_all(house, path)
        if way is not by_a_hard_link:
            assert "ok" not in {status for status, _ in told}
    # A write puts a new file in the place of the name, and never reaches the other one.
    assert (skill / "SKILL.md").read_bytes() == before


def test_71_work_inside_a_root_of_skills_makes_no_skill(tmp_path: Path) -> None:
    """The root holds the workspace: its files are work, but a SKILL.md would be offered."""
    with house_at(tmp_path, roots=[tmp_path]) as house:
        assert house.call_sync("write", {"path": "a/notes.md", "content": "x"}).status == "ok"
        for path in ("SKILL.md", "a/SKILL.md", "a/skill.MD"):
            assert house.call_sync("write", {"path": path, "content": "evil"}).status == "denied"


def test_71_the_house_does_not_rewrite_or_tell_its_own_state(tmp_path: Path) -> None:
    """Home is the workspace: trust, grants, approvals and the log lie in it."""
    home = make_places(tmp_path).home
    places = make_places(tmp_path, {"XDG_STATE_HOME": str(home / "state")})
    at_home = type(places)(
        start=home, home=home, environment=places.environment, managed_file=places.managed_file
    )
    layers = (Layer(name="user", rules=(EVERYTHING,)),)
    with Skillhouse(configured(at_home), layers=layers, channel=Unattended()) as house:
        house.call_sync("list", {})
        files = [path for path in (home / "state/skillhouse").rglob("*") if path.is_file()]
        assert house.audit_log.path in files
        before = {path: path.read_bytes() for path in files if "audit" not in path.name}
        for file in (*files, home / "state/skillhouse/new.db"):
            relative = str(file.relative_to(home))
            assert {status for status, _ in try_all(house, relative)} == {"denied"}
            assert house.call_sync("read", {"path": relative}).is_error
        for path in (".config/skillhouse/config.toml", ".cache/skillhouse/index/x"):
            assert {status for status, _ in try_all(house, path)} == {"denied"}
        assert {path: path.read_bytes() for path in before} == before
    published_write(home, "state/skillhouse/audit.jsonl", "evil")
    assert (home / "state/skillhouse/audit.jsonl").read_text() == "evil"


class Careless:
    """A channel that takes silence for a yes."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        return Answer.ONCE


def test_70_where_nobody_watches_a_question_is_a_no(tmp_path: Path) -> None:
    call = ("write", {"path": "a.txt", "content": "x"})
    with house_at(tmp_path, layers=(), channel=Careless()) as house:
        assert house.call_sync(*call).status == "ok"
    (tmp_path / "project/a.txt").unlink()
    with house_at(tmp_path, layers=(), channel=Unattended()) as house:
        assert house.call_sync(*call).status == "denied"
    assert not (tmp_path / "project/a.txt").exists()


ALLOWED = WriteGate(enabled=True, allow_users=("mika",), allow_paths=("docs/", "*.md"))


@pytest.mark.parametrize(
    "path",
    (
        "docs-private/a.txt docs/../a.txt a/b.md DOCS/a.txt elsewhere/docs/a.txt docs a.md/x "
        "out/a.txt"
    ).split(),
)
def test_71_a_path_that_only_looks_listed_is_not(tmp_path: Path, path: str) -> None:
    project = make_places(tmp_path).start
    (project / "docs").mkdir()
    (project / "out").symlink_to(tmp_path)
    # The list of a careless tool: beginnings and ends of texts.
    assert path.startswith(("docs", "DOCS", "elsewhere/docs", "out", "a"))
    person = Person([Answer.ONCE] * 9)
    with house_at(tmp_path, gate=ALLOWED, channel=person) as house:
        result = house.call_sync("write", {"path": path, "content": "evil"}, user="mika")
        assert result.status in ("denied", "error")
        assert person.asked == []
    assert not [found for found in tmp_path.rglob("*.txt") if found.read_text() == "evil"]


def test_71_a_link_in_an_allowed_directory_leads_nowhere(tmp_path: Path) -> None:
    project = make_places(tmp_path).start
    (project / "docs").mkdir()
    (project / "docs/out").symlink_to(project)
    published_write(project, "docs/out/a.txt", "evil")
    assert (project / "a.txt").read_text() == "evil"
    (project / "a.txt").unlink()
    person = Person([Answer.ONCE] * 9)
    with house_at(tmp_path, gate=ALLOWED, channel=person) as house:
        call = ("write", {"path": "docs/out/a.txt", "content": "evil"})
        assert house.call_sync(*call, user="mika").is_error
    assert not (project / "a.txt").exists()


@pytest.fixture
def sandboxed(need: Any) -> None:
    need(Path("/usr/bin/bwrap").exists(), "bubblewrap is not installed")


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    "script",
    [
        "mkdir -p {0} && echo evil > {0}/post-checkout",
        "echo evil > a; chmod +x a; mkdir -p {0}; mv a {0}/post-checkout",
        "mv repository/.git repository/old; mkdir -p {0}; echo evil > {0}/post-checkout",
        "echo '[core] fsmonitor=evil' > repository/.git/config",
        "ln repository/.git/config c && echo evil > c",
        "ln -s $PWD/repository/.git g && echo evil > g/config",
    ],
)
def test_71_a_command_changes_no_repository_inside_the_workspace(
    tmp_path: Path, script: str
) -> None:
    project = make_places(tmp_path).start
    for name in ("repository/.git/hooks", "repository/.git/modules"):
        (project / name).mkdir(parents=True)
    (project / "repository/.git/config").write_text("[core]\n")
    filled = script.format("repository/.git/hooks")

    def state() -> dict[str, str]:
        git = project / "repository/.git"
        return {str(p): p.read_text() for p in sorted(git.rglob("*")) if p.is_file()}

    before = state()
    subprocess.run(("sh", "-c", filled), cwd=project, check=False)
    assert state() != before
    shutil.rmtree(project / "repository")
    for name in ("repository/.git/hooks", "repository/.git/modules"):
        (project / name).mkdir(parents=True)
    (project / "repository/.git/config").write_text("[core]\n")
    for name in ("a", "c", "g"):
        (project / name).unlink(missing_ok=True)
    with house_at(tmp_path) as house:
        house.call_sync("exec", {"command": "sh", "params": ["-c", filled]})
    assert state() == before


@pytest.mark.usefixtures("sandboxed")
def test_71_a_command_neither_reads_a_secret_further_down_nor_writes_a_skill(
    tmp_path: Path,
) -> None:
    project = make_places(tmp_path).start
    skill = write_skill(project / "lent/helper", body="harmless\n")
    (project / "deploy").mkdir()
    (project / "deploy/.env").write_text("canary")
    (project / "deploy/.mcp.json").write_text("{}")
    script = (
        "cat deploy/.env; echo evil >> lent/helper/SKILL.md; mkdir lent/new; echo x > lent/new/a; "
        "echo evil > deploy/.mcp.json; mv lent old; echo; cat deploy/.mcp.json; true"
    )
    naive = subprocess.run(
        ("sh", "-c", script.replace("mv lent old;", "")),
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert b"canary" in naive.stdout
    assert "evil" in (skill / "SKILL.md").read_text()
    shutil.rmtree(project / "lent")
    write_skill(project / "lent/helper", body="harmless\n")
    (project / "deploy/.mcp.json").write_text("{}")
    with house_at(tmp_path, roots=[project / "lent"]) as house:
        said = house.call_sync("exec", {"command": "sh", "params": ["-c", script]})
    assert "canary" not in said.content
    assert "{}" in said.content, "what is no secret can be read"
    assert "evil" not in (skill / "SKILL.md").read_text()
    assert os.listdir(project / "lent") == ["helper"]
    assert (project / "deploy/.mcp.json").read_text() == "{}"


FULL = """
import resource, signal, sys
from pathlib import Path
from tests.attacks.test_write_attacks import house_at
base, naive, bound = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if bound:
    resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))
big = "new " * 1_000_000
try:
    naive.write_text(big)
except OSError:
    print("naive:", naive.read_text()[:4])
with house_at(base) as house:
    result = house.call_sync("write", {"path": "a.txt", "content": big})
print("house:", result.status, (base / "project/a.txt").read_text()[:4])
print("left:", sorted(path.name for path in (base / "project").iterdir()))
"""


@pytest.mark.parametrize("kind", ["file limit", "small disk"])
def test_72_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, kind: str, need: Any) -> None:
    project = make_places(tmp_path).start
    start = [sys.executable, "-c", FULL, str(tmp_path), str(project / "naive"), "2000000"]
    if kind == "small disk":
        need(shutil.which("unshare"), "unshare is not installed")
        mount = f"mount -t tmpfs -o size=2m none {project} && mkdir {project}/.git"
        files = f"echo 'old text' | tee {project}/a.txt > {project}/naive"
        start[-1] = "0"
        start = [*OWN_MOUNTS, "sh", "-c", f'{mount} && {files} && exec "$@"', "sh", *start]
        possible = subprocess.run((*OWN_MOUNTS, "true"), check=False).returncode == 0
        need(possible, "no user namespaces")
    for name in ("a.txt", "naive"):
        (project / name).write_text("old text")
    done = ran(
        start,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.splitlines() == [
        "naive: new ",
        "house: error old ",
        "left: ['.git', 'a.txt', 'naive']",
    ], done.stderr


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("d/" * 65 + "a.txt", "expected at most 64 directories in the path, got 65"),
        ("d/" * 60_000 + "a.txt", "expected at most 64 directories in the path, got 60000"),
        ("/".join(["d" * 200] * 20) + "/a.txt", "expected a path of at most 4000 bytes, got 4025"),
    ],
)
def test_one_call_makes_no_tower_of_directories(tmp_path: Path, path: str, why: str) -> None:
    if path.count("/") == 65:
        published_write(tmp_path / "naive", path, "x")
        assert (tmp_path / "naive" / path).exists()
    with house_at(tmp_path) as house:
        for tool, more in (("write", {"content": "x"}), ("edit", {"old": "a", "new": "b"})):
            refused = house.call_sync(tool, {"path": path, **more})
            assert (refused.is_error, why in refused.content) == (True, True)
        project = house.services.project
        assert not [entry for entry in os.listdir(project) if entry.startswith("d")]
        deepest = "d/" * 64 + "a.txt"
        assert house.call_sync("write", {"path": deepest, "content": "x"}).status == "ok"
        assert (project / deepest).read_text() == "x"

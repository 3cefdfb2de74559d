"""Attacks that stay: files that agents, editors, shells and git obey (review G6, G8).

Each was possible before with a rule `write *` or `exec *` and no question.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.floor import PATH_GROUPS, PathClass
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Rule
from skillhouse.tools import ToolResult
from tests.harness import copy, ran
from tests.house.places import make_places
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

ALL = Rule(effect=Effect.ALLOW, action="*", pattern="*")
NEVER, ASKED = (
    sorted(
        {
            pattern.lstrip("/").replace("*", "x")
            for group in PATH_GROUPS
            if group.path_class is path_class
            for pattern in group.patterns
        }
    )
    for path_class in (PathClass.NEVER, PathClass.ASKED)
)
REVIEWED_NEVER = (
    "opencode.json .windsurf/x .roo/mcp.json .kiro/x .qwen/x .continue/x .zed/tasks.json "
    ".aider.conf.yml .devcontainer/devcontainer.json .envrc mise.toml .husky/pre-commit "
    ".pre-commit-config.yaml .cargo/config.toml .yarnrc.yml .pnpmfile.cjs .claude.json "
    ".bash_aliases .zlogin .config/fish/config.fish .config/git/config "
    ".local/share/systemd/user/x.service .config/environment.d/x.conf Library/LaunchAgents/x.plist"
).split()
REVIEWED_ASKED = (
    "CLAUDE.md AGENTS.md GEMINI.md .github/copilot-instructions.md .cursorrules .clinerules/x.md "
    ".gitattributes .github/skills/x/SKILL.md skill/x/SKILL.md Makefile package.json "
    ".github/workflows/x.yml"
).split()
CASES = ("{}", "sub/{}", "a/b/c/{}")


class Workspace:
    """A project with a rule that allows everything, and a person who is counted."""

    def __init__(self, base: Path, answers: Sequence[Answer] = ()) -> None:
        self.base = base
        self.person = Person(answers)
        self.root = make_places(base).start

    def call(self, tool: str, **arguments: object) -> ToolResult:
        with house_at(self.base, ALL, person=self.person) as house:
            return house.call_sync(tool, arguments)

    def sh(self, line: str) -> ToolResult:
        return self.call("exec", command=line)

    def put(self, relative: str, text: str = "before\n") -> Path:
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_what_cannot_be_mounted_read_only_is_asked_about_first(tmp_path: Path, bwrap: None) -> None:
    """Beyond 48 files the rest could be written, with a word in the log only."""
    workspace = Workspace(tmp_path)
    line = "python3 -c \"open('d59/AGENTS.md', 'w').write('evil')\""
    for number in range(48):
        workspace.put(f"d{number:02}/AGENTS.md")
        # These are covered as secrets.
        workspace.put(f"d{number:02}/.npmrc")
    assert workspace.sh("python3 -c \"open('d47/AGENTS.md', 'w')\"").status == "error"
    assert workspace.person.asked == []
    for number in range(48, 60):
        workspace.put(f"d{number:02}/AGENTS.md")
    assert workspace.sh(line).status == "denied"
    assert (workspace.root / "d59/AGENTS.md").read_text() == "before\n"
    (asked,) = workspace.person.asked
    assert asked.title.startswith("12 paths not covered: exec: python3 -c ")
    # Its table says what it writes: that is a question of its own, and nothing else is open.
    assert workspace.sh("cp d00/AGENTS.md copy.txt").status == "ok"


def spellings(path: str) -> tuple[str, ...]:
    return (path, path.upper(), f"deep/er/{path}")


@pytest.mark.parametrize("path", sorted({*NEVER, *REVIEWED_NEVER}))
def test_no_rule_lets_a_tool_write_what_starts_programs(workspace: Workspace, path: str) -> None:
    for spelling in spellings(path):
        result = workspace.call("write", path=spelling, content="evil")
        assert (result.status, (workspace.root / spelling).is_file()) == ("denied", False)
    assert workspace.person.asked == []


@pytest.mark.parametrize("path", sorted({*ASKED, *REVIEWED_ASKED}))
def test_what_agents_obey_is_asked_about_each_time(workspace: Workspace, path: str) -> None:
    anchored = path.startswith(("skill/", "skills", "workspace/")) or path == "skill"
    tried = spellings(path)[: 2 if anchored else 3]
    for spelling in tried:
        assert workspace.call("write", path=spelling, content="evil").status == "denied"
        assert not os.path.lexists(workspace.root / spelling)
    asked = workspace.person.asked
    assert [request.always for request in asked] == [()] * len(tried)
    assert all("asked about each time" in request.reasons[0] for request in asked)


@pytest.mark.parametrize("path", REVIEWED_ASKED)
def test_an_approval_of_what_agents_obey_is_never_remembered(tmp_path: Path, path: str) -> None:
    workspace = Workspace(tmp_path, [Answer.ALWAYS, Answer.NO])
    assert workspace.call("write", path=path, content="one").status == "ok"
    assert workspace.call("edit", path=path, old="one", new="two").status == "denied"
    assert (workspace.root / path).read_text() == "one"


MAKE = "python3 -c \"import os; os.makedirs('{directory}', exist_ok=True); "
LINES = [
    "echo evil > {path}",
    "cp evil {path}",
    "mv evil {path}",
    "tee {path} < evil",
    "ln -s evil {path}",
    "install evil {path}",
    "dd if=evil of={path}",
    "cp -t {directory} {name}",
    MAKE + "open('{path}', 'w')\"",
    MAKE + "os.rename('evil', '{path}')\"",
    MAKE + "os.mkdir('made'); os.rename('evil', 'made/x'); os.rename('made/x', '{path}')\"",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "path", ["AGENTS.md", "sub/opencode.json", ".github/skills/x/SKILL.md", "Makefile"]
)
def test_no_command_makes_one_unasked(
    workspace: Workspace, line: str, path: str, bwrap: None
) -> None:
    workspace.put("evil", "evil")
    directory, name = os.path.split(path)
    workspace.put(name + ".txt")
    if "-t " in line:
        workspace.put("from/" + name, "evil")
        line = line.replace("{name}", "from/" + name)
    if directory:
        (workspace.root / directory).mkdir(parents=True, exist_ok=True)
    workspace.sh(line.format(path=path, directory=directory or ".", name=name))
    assert not os.path.lexists(workspace.root / path)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("path", ["AGENTS.md", "sub/opencode.json", "CLAUDE.md", "ci/Makefile"])
def test_no_command_changes_one_unasked(
    workspace: Workspace, line: str, path: str, bwrap: None
) -> None:
    workspace.put("evil", "evil")
    kept = workspace.put(path)
    directory, name = os.path.split(path)
    if "-t " in line:
        workspace.put("from/" + name, "evil")
        line = line.replace("{name}", "from/" + name)
    workspace.sh(line.format(path=path, directory=directory or ".", name=name))
    assert (kept.read_text(), kept.is_symlink()) == ("before\n", False)


def test_a_linked_directory_is_no_way_around(workspace: Workspace, bwrap: None) -> None:
    kept = workspace.put(".github/workflows/x.yml")
    (workspace.root / "d").symlink_to(".github/workflows")
    assert workspace.call("write", path="d/x.yml", content="evil").is_error
    assert workspace.sh("echo evil > d/x.yml").is_error
    assert workspace.sh("cp d/x.yml d/y.yml").is_error
    assert workspace.sh("python3 -c \"open('d/x.yml', 'w').write('evil')\"").is_error
    assert (kept.read_text(), os.listdir(kept.parent)) == ("before\n", ["x.yml"])


def test_what_a_command_made_is_kept_under_another_name(workspace: Workspace, bwrap: None) -> None:
    result = workspace.sh("python3 -c \"open('AGENTS.md', 'w').write('mine')\"")
    assert "withheld: `AGENTS.md` is now `AGENTS.md.withheld`" in result.content
    assert (workspace.root / "AGENTS.md.withheld").read_text() == "mine"


def test_what_is_moved_stays(workspace: Workspace, bwrap: None) -> None:
    workspace.put("pkg/Makefile")
    result = workspace.sh("mv pkg other")
    assert (result.status, (workspace.root / "other/Makefile").read_text()) == ("ok", "before\n")


def test_an_approved_copy_writes_what_was_asked_about(tmp_path: Path, bwrap: None) -> None:
    workspace = Workspace(tmp_path, [Answer.ONCE] * 3)
    workspace.put("new", "new")
    workspace.put("AGENTS.md")
    result = workspace.sh("cp new AGENTS.md")
    assert (result.status, "[written: AGENTS.md]" in result.content) == ("ok", True)
    assert (workspace.root / "AGENTS.md").read_text() == "new"
    assert workspace.sh("echo more >> AGENTS.md").status == "ok"
    assert workspace.sh("rm AGENTS.md").status == "ok"
    assert [request.always for request in workspace.person.asked] == [()] * 3


def test_an_operator_may_have_a_path_asked_about(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text(
        '[protection]\nasked = ["opencode.json", ".git", ".env"]\n'
        '[[rules]]\neffect = "allow"\naction = "*"\npattern = "*"\n'
    )
    person = Person([Answer.ONCE, Answer.ONCE])
    with Skillhouse(configured(places), channel=person) as house:
        assert house.call_sync("write", {"path": "opencode.json", "content": "{}"}).status == "ok"
        for fixed in (".git/config", ".env"):
            assert house.call_sync("write", {"path": fixed, "content": ""}).status == "denied"
    assert len(person.asked) == 1


EVIL_CONFIG = '[core]\n\tfsmonitor = "touch {ran}; false"\n\tbare = false\n\tworktree = .\n'


def bare_files(ran: Path) -> dict[str, str]:
    return {
        "config": EVIL_CONFIG.format(ran=ran),
        "objects/x": "",
        "refs/heads/x": "",
        "HEAD": "ref: refs/heads/main\n",
    }


@pytest.mark.parametrize("place", ["evil", "a/b/evil", "."])
@pytest.mark.parametrize("last", ["HEAD", "config", "objects/x", "refs/heads/x"])
def test_no_write_completes_a_bare_repository(
    workspace: Workspace, tmp_path: Path, place: str, last: str, git: None
) -> None:
    ran = tmp_path / "ran"
    files = bare_files(ran)
    text = files.pop(last)
    statuses = [
        workspace.call("write", path=f"{place}/{name}", content=content).status
        for name, content in files.items()
    ]
    statuses.append(workspace.call("write", path=f"{place}/{last}", content=text).status)
    assert "denied" in statuses
    status = ["git", "-C", str(workspace.root / place), "status"]
    subprocess.run(status, capture_output=True, check=False)
    assert not ran.exists()


@pytest.mark.parametrize("place", ["evil", "a/b/evil"])
def test_no_command_leaves_a_bare_repository_that_runs_a_program(
    workspace: Workspace, tmp_path: Path, place: str, bwrap: None, git: None
) -> None:
    ran = tmp_path / "ran"
    script = workspace.put("make.py", _script(bare_files(ran), place))
    workspace.sh(f"python3 {script.name}")
    assert (workspace.root / place / "config").exists()
    status = ["git", "-C", str(workspace.root / place), "status"]
    subprocess.run(status, capture_output=True, check=False)
    assert not ran.exists()
    assert subprocess.run(status, capture_output=True, check=False).returncode != 0


def _script(files: dict[str, str], place: str) -> str:
    return (
        f"import os\nfor n, t in {files!r}.items():\n"
        f"    p = os.path.join({place!r}, n)\n    os.makedirs(os.path.dirname(p), exist_ok=True)\n"
        "    open(p, 'w').write(t)\n"
    )


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n\tfsmonitor = {}\n",
        "[CORE] fsMonitor = {}\n",
        "[core]\n\thooksPath = ../hooks\n",
        "[include]\n\tpath = ../x\n",
        '[includeIf "gitdir:**"]\n\tpath = ../x\n',
        '[filter "x"]\n\tclean = {}\n',
        '[diff "x"]\n\ttextconv = {}\n',
        "[diff.x]\n\texternal = {}\n",
        "[alias]\n\tst = !{}\n",
        "[credential]\n\thelper = {}\n",
        "[gpg]\n\tprogram = {}\n",
        "[core]\n\tsshCommand = {}\n\teditor = {}\n\tpager = {}\n",
        '[remote "o"]\n\turl = ext::{}\n\tuploadpack = {}\n',
        "[core] bare = \\\n false\n\tfsmonitor\\\n = {}\n",
    ],
)
def test_a_new_repository_keeps_no_setting_that_runs_a_program(
    workspace: Workspace, tmp_path: Path, setting: str, bwrap: None, git: None
) -> None:
    ran = tmp_path / "ran"
    files = {
        ".git/config": "[user]\n\tname = me\n" + setting.replace("{}", f"touch {ran}"),
        ".git/hooks/post-index-change": f"#!/bin/sh\ntouch {ran}\n",
        ".git/objects/info/x": "",
        ".git/refs/heads/x": "",
        ".git/HEAD": "ref: refs/heads/main\n",
    }
    workspace.put("make.py", _script(files, "new"))
    result = workspace.sh("python3 make.py")
    text = (workspace.root / "new/.git/config").read_text()
    assert [word for word in (str(ran), "path") if word in text.casefold()] == []
    assert os.listdir(workspace.root / "new/.git/hooks") == []
    assert "removed from the new repository" in result.content
    status = ["git", "-C", str(workspace.root / "new"), "status"]
    subprocess.run(status, capture_output=True, check=False)
    assert not ran.exists()


def test_a_link_or_file_named_git_leads_nowhere_else(workspace: Workspace, bwrap: None) -> None:
    workspace.sh("python3 -c \"import os; os.mkdir('a'); os.symlink('/tmp/x', 'a/.git')\"")
    workspace.sh(
        "python3 -c \"import os; os.mkdir('b'); open('b/.git','w').write('gitdir: /tmp')\""
    )
    assert not any(os.path.lexists(workspace.root / place / ".git") for place in "ab")


def test_in_the_sandbox_git_takes_no_bare_repository_by_itself(
    workspace: Workspace, bwrap: None, git: None
) -> None:
    subprocess.run(["git", "init", "-q", "--bare", workspace.root / "bare"], check=True)
    result = workspace.sh("cd bare && git rev-parse --git-dir")
    assert (result.is_error, "safe.bareRepository" in result.content) == (True, True)


NAMES = [
    "CLAUDE.md",
    ".claude/settings.json",
    ".github/workflows/x.yml",
    "Makefile",
    ".gitattributes",
]


def git_in(root: Path, *arguments: str) -> str:
    return ran(["git", "-C", root, *arguments], check=True).stdout


def two_branches(root: Path, names: Sequence[str]) -> None:
    for words in ("init -q -b main", "config user.name me", "config user.email me@example.org"):
        git_in(root, *words.split())
    for branch in ("main", "other"):
        if branch == "other":
            git_in(root, "checkout", "-q", "-b", "other")
        for name in (*names, "src/a.py"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"# {branch}\n")
        git_in(root, "add", "-A")
        git_in(root, "commit", "-q", "-m", branch)
    git_in(root, "checkout", "-q", "main")


class Repository(Workspace):
    """A workspace that is a repository with a second branch."""

    def git(self, *arguments: str) -> str:
        return git_in(self.root, *arguments)

    def branches(self, names: Sequence[str]) -> None:
        template = self.base.parent / f"branches-{len(names)}"
        copy(template, lambda root: two_branches(root, names), self.root)


WORDS = [
    "git checkout other",
    "git switch other",
    "git checkout other -- .",
    "git restore --source=other .",
    "git merge other",
    "git reset --hard other",
    "git rebase other",
    "git cherry-pick other",
]


@pytest.mark.parametrize("line", WORDS)
def test_git_asks_before_it_rewrites_protected_files(
    tmp_path: Path, line: str, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path)
    workspace.branches(NAMES)
    before = workspace.git("status", "--porcelain", "-b")
    assert workspace.sh(line).status == "denied"
    (request,) = workspace.person.asked
    assert all(f"`{name}`" in request.reasons[0] for name in NAMES)
    assert (request.always, request.found[0][0]) == ((), "rewrites")
    assert workspace.git("status", "--porcelain", "-b") == before


@pytest.mark.parametrize("line", WORDS)
def test_git_rewrites_all_of_them_when_approved(
    tmp_path: Path, line: str, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path, [Answer.ONCE])
    workspace.branches(NAMES)
    result = workspace.sh(line)
    assert result.status == "ok", result.content
    assert [(workspace.root / name).read_text() for name in NAMES] == ["# other\n"] * 5
    assert f"[written: {', '.join(sorted(NAMES))}]" in result.content
    assert workspace.git("diff", "--name-only", "other") == ""


@pytest.mark.parametrize("line", [*WORDS, "git stash", "git clean -fd"])
def test_git_asks_nothing_where_no_such_file_changes(
    tmp_path: Path, line: str, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path)
    workspace.branches([])
    workspace.put("CLAUDE.md")
    workspace.git("add", "-A")
    workspace.git("commit", "-q", "-m", "same")
    workspace.git("checkout", "-q", "other")
    workspace.git("cherry-pick", "main")
    workspace.git("checkout", "-q", "main")
    workspace.put("src/a.py" if line == "git stash" else "new.py", "# changed\n")
    result = workspace.sh(line if line != "git cherry-pick other" else "git cherry-pick other~1")
    assert workspace.person.asked == []
    assert "CLAUDE.md" not in result.content


def test_git_adds_and_removes_protected_files_of_a_branch(
    tmp_path: Path, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path, [Answer.ONCE] * 4)
    workspace.branches([])
    workspace.git("checkout", "-q", "-b", "third")
    for name in NAMES:
        workspace.put(name)
    workspace.git("add", "-A")
    workspace.git("commit", "-q", "-m", "third")
    workspace.git("checkout", "-q", "main")
    for line, is_there in (("git checkout third", True), ("git checkout main", False)):
        assert workspace.sh(line).status == "ok"
        assert {os.path.lexists(workspace.root / name) for name in NAMES} == {is_there}
        assert workspace.git("status", "--porcelain") == ""


def test_a_stash_holds_and_gives_back_protected_files(
    tmp_path: Path, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path, [Answer.ONCE] * 2)
    workspace.branches(NAMES)
    workspace.put("CLAUDE.md", "mine\n")
    assert workspace.sh("git stash").status == "ok"
    assert (workspace.root / "CLAUDE.md").read_text() == "# main\n"
    assert workspace.sh("git stash pop").status == "ok"
    assert (workspace.root / "CLAUDE.md").read_text() == "mine\n"
    assert len(workspace.person.asked) == 2


@pytest.mark.parametrize("make", ["git stash store {}", "git update-ref refs/stash {}"])
@pytest.mark.parametrize("name", ["CLAUDE.md", ".mcp.json"])
def test_a_stash_that_the_line_brings_writes_no_protected_file(
    tmp_path: Path, make: str, name: str, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path)
    workspace.branches(["CLAUDE.md"])
    workspace.put(name, "theirs\n")
    workspace.git("stash", "-q", "-u")
    made = workspace.git("rev-parse", "stash@{0}").strip()
    workspace.git("stash", "drop", "-q")
    before = workspace.git("status", "--porcelain")
    result = workspace.sh(f"{make.format(made)} && git stash pop")
    assert result.is_error, result.content
    assert not (workspace.root / name).exists() or (workspace.root / name).read_text() == "# main\n"
    assert workspace.git("status", "--porcelain").replace(f"?? {name}.withheld\n", "") == before


def test_a_stash_and_its_end_in_one_line_are_asked_about_as_two(
    tmp_path: Path, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path, [Answer.ONCE])
    workspace.branches(NAMES)
    workspace.put("src/a.py", "mine\n")
    assert workspace.sh("git stash -q && git stash pop -q").status == "ok"
    assert workspace.person.asked == []
    workspace.put("CLAUDE.md", "mine\n")
    assert workspace.sh("git stash -q && git stash pop -q").status == "ok"
    assert [len(one.reasons) for one in workspace.person.asked] == [2]
    assert (workspace.root / "CLAUDE.md").read_text() == "mine\n"


@pytest.mark.parametrize(
    "line",
    [
        *("git pull", "git am x.patch", "git apply x.patch", "git bisect start"),
        *("git merge --abort", "git apply --stat --apply x.patch", "git rerere"),
    ],
)
def test_git_words_that_bring_what_nobody_knows_are_asked_about(
    tmp_path: Path, line: str, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path)
    workspace.branches(NAMES)
    assert workspace.sh(line).status == "denied"
    assert "may rewrite files" in workspace.person.asked[0].reasons[0]


@pytest.mark.parametrize(
    "line", ["git sparse-checkout list", "git apply --stat x.patch", "git rerere status"]
)
def test_git_words_that_only_show_something_are_not_asked_about(
    tmp_path: Path, line: str, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path)
    workspace.branches(NAMES)
    workspace.put("x.patch", "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+1\n")
    workspace.sh(line)
    assert workspace.person.asked == []


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("uniq a AGENTS.md", "AGENTS.md"),
        ("xxd -r a AGENTS.md", "AGENTS.md"),
        ("git archive -o AGENTS.md HEAD", "AGENTS.md"),
        ("gzip -dk Makefile.gz", "Makefile"),
    ],
)
def test_a_program_that_names_what_it_writes_is_asked_about_such_a_file(
    tmp_path: Path, line: str, path: str, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path)
    workspace.branches(NAMES)
    assert workspace.sh(line).status == "denied"
    assert f"`{path}` is asked about each time" in workspace.person.asked[0].reasons[0]


def test_a_checkout_inside_a_script_is_not_called_done(
    tmp_path: Path, bwrap: None, git: None
) -> None:
    workspace = Repository(tmp_path)
    workspace.branches(NAMES)
    workspace.put("run.py", "import subprocess\nsubprocess.run(['git', 'checkout', 'other'])\n")
    result = workspace.sh("python3 run.py")
    assert (result.is_error, "half done" in result.content) == (True, True)
    assert (workspace.root / "CLAUDE.md").read_text() == "# main\n"


def test_an_archive_brings_its_own_directory_and_nothing_for_this_one(
    workspace: Workspace, bwrap: None
) -> None:
    for name in ("new/Makefile", "new/CLAUDE.md", ".github/skills/x/SKILL.md", "AGENTS.md"):
        workspace.put(f"from/{name}")
    made = ["tar", "-C", str(workspace.root / "from"), "-cf", str(workspace.root / "x.tar"), "."]
    subprocess.run(made, check=True)
    shutil.rmtree(workspace.root / "from")
    result = workspace.sh("tar xf x.tar")
    assert [
        os.path.lexists(workspace.root / name) for name in ("new/Makefile", "new/CLAUDE.md")
    ] == [
        True,
        True,
    ]
    assert "came with it: `new/CLAUDE.md`" in result.content
    for name in (".github/skills", "AGENTS.md"):
        assert not os.path.lexists(workspace.root / name)


def test_a_directory_with_such_files_is_removed_after_a_question(
    tmp_path: Path, bwrap: None
) -> None:
    workspace = Workspace(tmp_path, [Answer.ONCE])
    workspace.put("pkg/Makefile")
    workspace.put("pkg/src/package.json")
    assert workspace.sh("rm -r pkg").status == "ok"
    assert not (workspace.root / "pkg").exists()
    assert len(workspace.person.asked) == 1


def test_a_command_writes_nothing_through_a_file_of_git_that_appears_later(
    workspace: Workspace, bwrap: None, git: None
) -> None:
    subprocess.run(["git", "init", "-q", workspace.root / "sub"], check=True)
    subprocess.run(["git", "init", "-q", "--bare", workspace.root / "bare"], check=True)
    workspace.sh("python3 -c \"open('sub/.git/commondir', 'w').write('../../x')\"")
    workspace.sh("python3 -c \"open('bare/config.worktree', 'w').write('x')\"")
    assert workspace.sh("python3 -c \"open('bare/config', 'a').write('x')\"").is_error
    assert workspace.call("write", path="bare/hooks/post-update", content="x").status == "denied"
    assert not (workspace.root / "sub/.git/commondir").exists()
    assert not (workspace.root / "bare/config.worktree").exists()


def test_r6_a_new_directory_of_an_unknown_program_is_asked_about(workspace: Workspace) -> None:
    workspace.put("evil.json")
    workspace.put("d/settings.json")
    assert workspace.call("write", path=".newagent/hooks.json", content="x").status == "denied"
    for line in ("mkdir .newagent", "cp -r d .newagent", "mv d .newagent"):
        assert workspace.sh(line).status == "denied"
    assert not os.path.lexists(workspace.root / ".newagent")
    assert all("is new here" in request.reasons[0] for request in workspace.person.asked)
    workspace.put(".known/x")
    assert workspace.call("write", path=".known/y", content="x").status == "ok"
    assert workspace.call("write", path=".pytest_cache/y", content="x").status == "ok"

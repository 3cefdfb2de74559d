"""The first hour, walked by the page alone on five homes as people have them, and a read-only one.

What the page shows of what its own steps made is there on each of them, in its order. What it shows
of all skills of an empty home (lists, numbers) is other where a person has more. Questions are
counted.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts.terminal import Terminal, word_of

from tests.frontends.test_cli_unwritable_homes import MOUNTS, READ_ONLY
from tests.guides.pages import COMMANDS, ROOT, blocks, commands_of, escaped, steps
from tests.guides.test_guides import SIGNS_A_MINUTE, WORDS_A_MINUTE
from tests.harness import Need
from tests.house.places import write_skill
from tests.machines import check_machine
from tests.registry.sources import make_repository

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

FIRST_HOUR = "docs/guides/first-hour.md"
READ_ONLY_SECTION = "## Where the home is read-only\n"
QUESTIONS_MAX = 6
TO_TRUST = "`skillhouse trust`"
OWN = re.compile(r"standup|minutes|weather|git log|^Begin$|rule-add:|export:|create:|config\.toml")
"""What a line has that is about the walk itself, and not about all that a home holds."""


def empty(home: Path, shared: Path) -> None:
    """Leave the home as it is."""


def claude_code(home: Path, shared: Path) -> None:
    """72 skills of four public collections, where Claude Code reads them."""
    found: dict[str, dict[str, bytes]] = {}
    with gzip.open(shared / "skill-files/sample.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            name = Path(one["path"]).parent.name
            found.setdefault(one["repo"], {})[name] = base64.b64decode(one["skill_md_b64"])
    largest = sorted(found.values(), key=len)[-4:]
    for collection in largest:
        for name, data in sorted(collection.items())[:18]:
            file = home / ".claude/skills" / name / "SKILL.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    (home / ".claude/settings.json").write_text('{"model": "opus"}\n')
    (home / ".claude.json").write_text('{"theme": "dark"}\n')


def dotfiles(home: Path, shared: Path) -> None:
    """Folders of clients are links into a repository, and single skills are links, too."""
    mine = home / "dotfiles"
    write_skill(mine / "agents/skills/review", "Review a change. Use before a merge.")
    write_skill(mine / "claude/skills/notes", "Take notes. Use it in meetings.")
    write_skill(home / "src/tool", "Use the tool.")
    make_repository(mine)
    (home / ".agents").symlink_to("dotfiles/agents")
    (home / ".claude").mkdir()
    (home / ".claude/skills").symlink_to("../dotfiles/claude/skills")
    (mine / "agents/skills/tool").symlink_to(home / "src/tool")
    (home / ".config").symlink_to("dotfiles/config")
    (mine / "config").mkdir()


def codex(home: Path, shared: Path) -> None:
    """Skills where the installer of Codex puts them, and its settings."""
    for number in range(14):
        write_skill(home / f".codex/skills/codex-{number}", f"Does thing {number}. Use for it.")
    write_skill(home / ".codex/skills/.system/skill-creator", "Makes skills.")
    (home / ".codex/config.toml").write_text('model = "gpt-5.5"\n')


def team(home: Path, shared: Path) -> None:
    """A project that was pulled, with skills of others and links for a client."""
    work = home / "work"
    for name in ("deploy", "migrate"):
        write_skill(work / f".agents/skills/{name}", f"How we {name}. Use for each {name}.")
    (work / ".claude").mkdir()
    (work / ".claude/skills").symlink_to("../.agents/skills")
    (work / "AGENTS.md").write_text("Use the skills.\n")
    make_repository(work)


HOMES: dict[str, Callable[[Path, Path], None]] = {
    "empty": empty,
    "claude-code": claude_code,
    "dotfiles": dotfiles,
    "codex": codex,
    "team": team,
}


@dataclass
class Walked:
    """What a person typed, and what they were asked."""

    commands: int = 0
    questions: int = 0
    words: int = 0
    """What they read: the page, and what commands print besides what it shows."""
    signs: int = 0
    """What they typed."""

    def read(self, command: str, shown: str, output: str) -> None:
        """Count a command, and what it prints beyond what the page shows of it."""
        self.commands += 1
        self.signs += len(command)
        self.words += max(0, len(output.split()) - len(shown.split()))

    @property
    def minutes(self) -> int:
        seconds = 60 * self.signs / SIGNS_A_MINUTE + 60 * self.words / WORDS_A_MINUTE
        return -int(-seconds // 60)


def walk(terminal: Terminal, *, is_read_only: bool = False) -> Walked:
    """Type what the page says, block by block, and hold it against what comes.

    Args:
        is_read_only: Only the section about such a home is walked; else all but that.
    """
    done = Walked()
    before, section = (ROOT / FIRST_HOUR).read_text(encoding="utf-8").split(READ_ONLY_SECTION)
    walked = section if is_read_only else before[before.index("## What is here") :]
    done.words = len(walked.split())

    def answer(question: str) -> str:
        done.questions += 1
        return word_of(question)

    for block in blocks(FIRST_HOUR):
        if block.mark == "not run" or block.language not in COMMANDS:
            continue
        if is_read_only != (block.mark == "run by"):
            continue
        typed = steps(block.text) if block.language == "console" else [(block.text, "")]
        done.commands += len(commands_of(block)) - len(typed)
        for command, shown in typed:
            ended = terminal.run(command, answer)
            said = f"{block}\n$ {command}\n{ended.output}"
            # A doctor has findings about what a person had before, too.
            is_refused = "set SKILLHOUSE_STATE_DIRECTORY" in shown
            may = (0, 1) if block.mark == "exit 1" or " doctor " in command else (0,)
            may = (1,) if is_refused else may
            assert ended.status in may, said
            done.read(command, shown, ended.output)
            if command == "skillhouse list" and TO_TRUST in ended.output:
                # What the page says of a project that others wrote.
                trusted = terminal.run("skillhouse trust", answer)
                done.read("skillhouse trust", "", trusted.output)
                assert trusted.status == 0, said
            assert in_order(own_lines(shown), as_linked(ended.output)), f"{said}\n--- {shown}"
    return done


def as_linked(output: str) -> str:
    """Return what is in the dotfiles by the links that lead there."""
    return re.sub(
        r"(~|/home/me)/dotfiles/(agents|claude)|(\.\./\.\.)/(agents|claude)",
        lambda found: f"{found[1] or found[3]}/.{found[2] or found[4]}",
        output,
    )


def own_lines(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if OWN.search(line)]


def in_order(wanted: list[str], output: str) -> bool:
    """Whether each line of the page is in the output, one behind the other; `…` is anything."""
    patterns = [escaped(line.strip()).replace("…", r"[^\n]*") for line in wanted]
    # A list of names has those of others, too.
    patterns = [one.replace(r"\(standup\)", r"\([^\n]*standup\b[^\n]*") for one in patterns]
    return re.search(r"(?s)" + ".*?".join(patterns), output) is not None


@pytest.mark.parametrize("name", HOMES)
def test_the_first_hour_ends_as_the_page_says_on_each_home(
    terminal: Terminal, newcomer: None, shared_data: Path, name: str
) -> None:
    HOMES[name](terminal.home, shared_data)
    done = walk(terminal)
    assert_noted(name, done)


def assert_noted(name: str, done: Walked) -> None:
    """Hold what was counted against the page; minutes differ with the lines of a machine."""
    page = (ROOT / FIRST_HOUR).read_text(encoding="utf-8")
    row = re.search(rf"^\| {name} \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert row is not None, (name, done, done.minutes)
    assert [int(row[1]), int(row[2])] == [done.commands, done.questions]
    assert done.questions <= QUESTIONS_MAX
    assert abs(int(row[3]) - done.minutes) <= 1, (name, done, done.minutes)


def test_on_a_read_only_home_what_reads_works_and_what_writes_names_the_setting(
    terminal: Terminal, newcomer: None, need: Need
) -> None:
    check_machine(need, MOUNTS)
    write_skill(
        terminal.home / ".agents/skills/standup",
        "Write a stand-up note from git history. Use when asked for a status.",
    )
    before = sorted(terminal.home.rglob("*"))
    terminal.around = (*MOUNTS, "sh", "-c", READ_ONLY, "sh", str(terminal.home))
    done = walk(terminal, is_read_only=True)
    assert sorted(terminal.home.rglob("*")) == before
    assert_noted("read-only", done)

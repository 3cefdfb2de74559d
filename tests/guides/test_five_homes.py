"""The first hour, walked by the page alone on five homes as people have them.

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

from tests.guides.pages import COMMANDS, ROOT, blocks, commands_of, steps
from tests.registry.sources import make_repository
from tests.runtime.places import write_skill

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

FIRST_HOUR = "docs/guides/first-hour.md"
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


def walk(terminal: Terminal) -> Walked:
    """Type what the page says, block by block, and hold it against what comes."""
    done = Walked()

    def answer(question: str) -> str:
        done.questions += 1
        return word_of(question)

    for block in blocks(FIRST_HOUR):
        if block.mark == "not run" or block.language not in COMMANDS:
            continue
        typed = steps(block.text) if block.language == "console" else [(block.text, "")]
        done.commands += len(commands_of(block))
        for command, shown in typed:
            ended = terminal.run(command, answer)
            said = f"{block}\n$ {command}\n{ended.output}"
            # A doctor has findings about what a person had before, too.
            may = (0, 1) if block.mark == "exit 1" or " doctor " in command else (0,)
            assert ended.status in may, said
            if command == "skillhouse list" and TO_TRUST in ended.output:
                # What the page says of a project that others wrote.
                done.commands += 1
                assert terminal.run("skillhouse trust", answer).status == 0, said
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
    patterns = [re.escape(line.strip()).replace("…", r"[^\n]*") for line in wanted]
    # A list of names has those of others, too.
    patterns = [one.replace(r"\(standup\)", r"\([^\n]*standup\b[^\n]*") for one in patterns]
    return re.search(r"(?s)" + ".*?".join(patterns), output) is not None


@pytest.mark.parametrize("name", HOMES)
def test_the_first_hour_ends_as_the_page_says_on_each_home(
    terminal: Terminal, newcomer: None, shared_data: Path, name: str
) -> None:
    HOMES[name](terminal.home, shared_data)
    done = walk(terminal)
    print(name, done)
    assert done.questions <= QUESTIONS_MAX
    page = (ROOT / FIRST_HOUR).read_text(encoding="utf-8")
    assert f"| {name} | {done.commands} | {done.questions} |" in page

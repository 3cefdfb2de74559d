"""Every command block of README.md and docs/guides works as printed, with an installed wheel."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from scripts.terminal import Terminal, word_of

from tests.guides.pages import (
    COMMANDS,
    NAMES,
    README,
    ROOT,
    TEXTS,
    Block,
    Installed,
    Names,
    blocks,
    commands_of,
    steps,
)
from tests.guides.standins import STANDINS
from tests.harness import Need

pytestmark = pytest.mark.slow

NOT_RUN = {
    "README.md": 2,
    "docs/guides/agents.md": 1,
    "docs/guides/any-framework-over-mcp.md": 4,
    "docs/guides/approvals.md": 1,
    "docs/guides/bot.md": 4,
    "docs/guides/build-an-agent.md": 1,
    "docs/guides/chat.md": 1,
    "docs/guides/containers.md": 2,
    "docs/guides/install.md": 1,
    "docs/guides/operate-registry.md": 3,
    "docs/guides/page.md": 1,
    "docs/guides/executable-skills.md": 1,
    "docs/guides/first-hour.md": 1,
    "docs/guides/python.md": 1,
    "docs/guides/several-machines.md": 5,
    "docs/guides/signing.md": 1,
    "docs/guides/telemetry.md": 2,
    "docs/guides/typescript.md": 1,
    "docs/guides/write-an-extension.md": 1,
}
"""Blocks that no test runs, by page; the reason is above each."""

FIRST_HOUR = "docs/guides/first-hour.md"
ALONE = (
    README,
    *(f"docs/guides/{name}.md" for name in ("with-claude-code", "build-an-agent", "for-a-team")),
    FIRST_HOUR,
)
"""Pages for a newcomer, who has nothing but what is on the page: no set-up there."""

FENCE = re.compile(r"^ *```", re.MULTILINE)
EXTRA = re.compile(r"'\.\[([a-z,-]+)\]'|extra `([a-z-]+)`")
WORDS_A_MINUTE, SIGNS_A_MINUTE = 180, 200
"""How fast a person reads, and types; docs/guides/first-hour.md says so."""


class Walk:
    """A person who types a page, block by block."""

    def __init__(self, terminal: Terminal, instead: dict[str, str], installed: Installed) -> None:
        self.terminal = terminal
        self.installed = installed
        self.extras = Block.extras
        self.instead = instead
        self.names = Names()

    def take(self, block: Block) -> None:
        """Do what one block says."""
        if block.mark in ("not run", "run by"):
            return
        if block.language in ("bash", "console") and block.extras != self.extras:
            self.extras = block.extras
            self.terminal.run(f'export PATH="{self.installed(block.extras)}:$PATH"')
        if block.file is not None:
            self._write(block, block.file)
        elif block.language in ("bash", "set-up"):
            self._run_all(block)
        elif block.language == "console":
            for command, shown in steps(block.text):
                self._type(block, command, shown)
        elif block.language == "python":
            program = self.terminal.state / "program.py"
            program.write_text(self.real(block.text), encoding="utf-8")
            python = self.installed(block.python_extras) / "python"
            done = self.terminal.run(f"{python} {program}")
            assert done.status == 0, f"{block}\n{block.text}\n{done.output}"

    def real(self, text: str) -> str:
        """Return what stands here for a text of the page."""
        for shown, real in {"/home/me": str(self.terminal.home), **self.instead}.items():
            text = text.replace(shown, real)
        return text

    def _write(self, block: Block, name: str) -> None:
        path = self.terminal.cwd / name.replace("~", str(self.terminal.home))
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.name == "config.toml" and path.exists() else ""
        text = self.real(block.text)
        if before and not text.lstrip("# ").startswith(("[", "~")):
            path.write_text(f"{text}\n{before}", encoding="utf-8")
        else:
            path.write_text(f"{before}\n{text}" if before else text, encoding="utf-8")

    def _run_all(self, block: Block) -> None:
        script = self.real(self.names.put(block.text))
        if block.mark == "until":
            done = self.terminal.begin(script, self.real(block.reason), word_of)
            assert self.real(block.reason) in done.output, f"{block}\n{script}\n{done.output}"
            return
        if block.mark == "exit 1":
            note = "trap 's=$?; [ $s = 1 ] || exit $s; echo EXIT-1' ERR"
            script = f"{note}\n{script}\ntrap - ERR\ntrue"
        else:
            script = f"set -e\n{script}\nset +e"
        done = self.terminal.run(script, word_of)
        assert done.status == 0, f"{block}\n{script}\n{done.output}"
        assert ("EXIT-1" in done.output) == (block.mark == "exit 1"), f"{block}\n{done.output}"

    def _type(self, block: Block, command: str, shown: str) -> None:
        def answer(question: str) -> str:
            for line in shown.splitlines():
                if line.startswith(question.strip()):
                    return line[len(question.strip()) :].strip() or word_of(question)
            return word_of(question)

        command = self.real(self.names.put(command))
        if command.startswith("python "):
            command = f'PATH="{self.installed(block.python_extras)}:$PATH" {command}'
        if block.mark == "until":
            output = self.terminal.begin(command, self.real(block.reason), answer).output
        else:
            done = self.terminal.run(command, answer)
            output = done.output
            may = (0, 1) if block.mark == "exit 1" else (0,)
            assert done.status in may, f"{block}\n$ {command}\n{output}"
        for name, real in self.instead.items():
            output = output.replace(real, name)
        # A command that takes long on this machine shows its lines while it runs, too.
        output = re.sub(r"^  … .*\n", "", output, flags=re.MULTILINE)
        if shown:
            assert self.names.match(shown, output), f"{block}\n$ {command}\n{output}\n--- {shown}"


@pytest.mark.parametrize("page", [name for name in NAMES if blocks(name)])
def test_each_command_of_the_page_works_as_printed(
    page: str,
    terminal: Terminal,
    tmp_path: Path,
    newcomer: None,
    need: Need,
    installed: Installed,
) -> None:
    with ExitStack() as stack:
        standin = STANDINS.get(page)
        instead = stack.enter_context(standin(terminal, tmp_path, need)) if standin else {}
        walk = Walk(terminal, instead, installed)
        for block in blocks(page):
            walk.take(block)
        checked = terminal.run("skillhouse config check")
        assert checked.status == 0, checked.output


@pytest.mark.parametrize("page", NAMES)
def test_no_command_is_outside_of_a_block_that_the_rule_knows(page: str) -> None:
    found = blocks(page)
    fences = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    assert 2 * sum(block.language != "set-up" for block in found) == len(fences)
    for block in found:
        assert block.language in (*COMMANDS, *TEXTS, "set-up"), str(block)
        if block.language in TEXTS and block.file is None:
            assert not re.search(r"^(\$ |skillhouse [a-z])", block.text, re.MULTILINE), str(block)
        if block.language == "toml":
            tomllib.loads(block.text)
        if block.language == "json":
            json.loads(block.text)


def test_what_is_not_run_is_counted_and_gives_its_reason() -> None:
    marked = [block for page in NAMES for block in blocks(page) if block.mark]
    for block in marked:
        # A configuration, too, can be that of a test, with stand-ins for the services it names.
        assert block.language in COMMANDS or block.mark == "run by", str(block)
        assert block.reason, str(block)
    left_out = [block for block in marked if block.mark == "not run"]
    print(*(f"{block}: {block.reason}" for block in left_out), sep="\n")
    counts = Counter(block.page for block in left_out)
    assert counts == NOT_RUN
    assert {block.mark for block in marked} <= {"not run", "run by", "exit 1", "until"}
    for block in left_out:
        for test in re.findall(r"tests/[\w/*.]+\.py", block.reason):
            assert list(ROOT.glob(test)), str(block)
    for block in marked:
        if block.mark == "run by":
            assert (ROOT / block.reason).is_file(), str(block)


def test_no_block_is_a_file_of_the_machine() -> None:
    """It would be written there: what follows "`/etc/x.toml`:" is taken for that file."""
    written = [(str(block), block.file) for page in NAMES for block in blocks(page) if block.file]
    assert [one for one in written if one[1].startswith("/")] == []


def test_a_page_for_a_newcomer_has_no_set_up() -> None:
    assert [block for page in ALONE for block in blocks(page) if block.language == "set-up"] == []


def test_each_extra_of_the_pages_is_one_of_ours() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for page in NAMES:
        for found in EXTRA.findall((ROOT / page).read_text(encoding="utf-8")):
            names = "".join(found).split(",")
            assert set(names) <= set(project["project"]["optional-dependencies"]), (page, names)


def test_the_first_hour_counts_its_commands_and_minutes() -> None:
    text = (ROOT / FIRST_HOUR).read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([^]]+)\]\(#[\w-]+\) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    counted = []
    for title, section in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE):
        line = text[: text.index(f"## {title}\n")].count("\n")
        inside = range(line, line + section.count("\n") + 1)
        typed = [
            command
            for block in blocks(FIRST_HOUR)
            if block.line in inside and block.language in COMMANDS
            for command in commands_of(block)
        ]
        seconds = 60 * len("".join(typed)) / SIGNS_A_MINUTE
        seconds += 60 * len(section.split()) / WORDS_A_MINUTE
        counted.append((title, str(len(typed)), str(-int(-seconds // 60))))
    assert rows == counted
    numbers = [sum(map(int, column)) for column in list(zip(*counted, strict=True))[1:]]
    assert f"| in all | {numbers[0]} | {numbers[1]} |" in text

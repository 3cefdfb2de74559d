"""Every command block of README.md and docs/guides works as printed, with an installed wheel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.terminal import Terminal, install, short_home, word_of
from tests.guides.pages import (
    COMMANDS,
    NAMES,
    README,
    ROOT,
    TEXTS,
    Block,
    Names,
    blocks,
    commands,
    steps,
)
from tests.guides.standins import STANDINS
from tests.runtime.coded import best_sandbox

pytestmark = pytest.mark.slow

NOT_RUN_MAX = 16
"""Blocks that no test runs; a new one needs a reason that is better than those of these."""

OWN = (README, *(f"docs/guides/{name}.md" for name in ("first-hour",)))
"""Pages for a newcomer, who has nothing but what is on the page: no set-up there."""

FENCE = re.compile(r"^ *```", re.MULTILINE)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the programs of an installed wheel are."""
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def terminal(programs: Path) -> Iterator[Terminal]:
    with short_home() as home:
        made = Terminal(home, programs)
        try:
            yield made
        finally:
            made.close()


class Walk:
    """Somebody who types a page, block by block."""

    def __init__(self, terminal: Terminal, instead: dict[str, str]) -> None:
        self.terminal = terminal
        self.instead = instead
        self.names = Names()

    def take(self, block: Block) -> None:
        """Do what one block says."""
        if block.mark in ("not run", "run by"):
            return
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
            done = self.terminal.run(f"python {program}")
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
            script = f"trap 's=$?; [ $s = 1 ] || exit $s; echo EXIT-1' ERR\n{script}\ntrap - ERR\ntrue"
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
        if block.mark == "until":
            output = self.terminal.begin(command, self.real(block.reason), answer).output
        else:
            done = self.terminal.run(command, answer)
            output = done.output
            may = (0, 1) if block.mark == "exit 1" else (0,)
            assert done.status in may, f"{block}\n$ {command}\n{output}"
        for name, real in self.instead.items():
            output = output.replace(real, name)
        if shown:
            assert self.names.match(shown, output), f"{block}\n$ {command}\n{output}\n--- {shown}"


@pytest.mark.parametrize("page", [name for name in NAMES if commands(name)])
def test_each_command_of_the_page_works_as_printed(
    page: str,
    terminal: Terminal,
    tmp_path: Path,
    need: Callable[[object, str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    best_sandbox(need)
    with ExitStack() as stack:
        standin = STANDINS.get(page)
        instead = stack.enter_context(standin(terminal, tmp_path, need)) if standin else {}
        walk = Walk(terminal, instead)
        for block in blocks(page):
            walk.take(block)

"""Asks the person at the terminal, and makes sure that it is one, not the program that waits.

This closes the ways that a coding agent with a shell takes by itself. It is no boundary: a program
with the user's rights can change the state's files as well (docs/decisions/0164-who-answers.md).
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import anyio

from skillhouse.approval import LASTING, OWNER, Answer, GrantStore, Reply, allowed_answers
from skillhouse.clients import coding_agents
from skillhouse.floor import SkillhouseError
from skillhouse.frontends.cli.question import forget_typed, is_terminal
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.presentation.question import (
    ONLY_PLACE,
    question_lines,
    question_of,
    question_title,
    standing_line,
)

if TYPE_CHECKING:
    from skillhouse.approval import ApprovalRequest


PROC = Path("/proc")
"""Where the system shows processes (Linux); elsewhere only our own environment is looked at."""
ANCESTORS_MAX = 64
"""Parents that are looked at; the chain of a login has about ten."""
ENVIRONMENT_MAX = 2 * 1_048_576
"""Bytes of a process's environment (Linux: a quarter of the stack's limit, 2 MiB by default)."""

_OFF = frozenset({"", "0", "false"})
_RUNNERS = ("node", "bun", "deno", "python")
"""Programs that are called by their script's name."""


class NotAPersonError(SkillhouseError):
    """A coding agent: nothing was changed."""


def refuse_agents(what: str) -> None:
    """Refuse the command `what`, which loosens something, where a coding agent runs it.

    Raises:
        NotAPersonError: this process, or one that it comes from, belongs to a coding agent.
    """
    found = coding_agent(os.environ)
    if found:
        raise NotAPersonError(
            f"`{what}` is for a person, and {found}: nothing was changed. Do it in a terminal of "
            "your own; questions can also be answered on the page or on a paired device"
        )


def coding_agent(environment: Mapping[str, str]) -> str:
    """Return which coding agent runs this process and how that shows; nothing when none does.

    The processes that it comes from are looked at too: `env -i` and `script` hide nothing.
    """
    agents = coding_agents()
    for variables, programs in ((environment, ()), *_ancestors()):
        for agent in agents:
            for name in agent.variables:
                if variables.get(name, "").lower() not in _OFF:
                    return f"{agent.called} runs this (the variable {name} is set)"
            if agent.programs and any(program in agent.programs for program in programs):
                return f"{agent.called} runs this"
    return ""


def _ancestors() -> Iterator[tuple[Mapping[str, str], tuple[str, ...]]]:
    """Yield the environment and names of each ancestor; what other users run is not readable."""
    pid = os.getppid()
    for _ in range(ANCESTORS_MAX):
        if pid <= 1:
            return
        try:
            # The name in brackets may hold anything, also brackets.
            before, _, after = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")
            parent = int(after.split()[1])
        except (OSError, ValueError, IndexError):
            return
        name = before.partition(b"(")[2].decode("utf-8", "replace")
        words = _fields(pid, "cmdline")[:2]
        variables = (field.partition("=") for field in _fields(pid, "environ"))
        yield {key: value for key, _, value in variables}, (name, *_program_names(words))
        pid = parent


def _fields(pid: int, name: str) -> list[str]:
    try:
        with (PROC / str(pid) / name).open("rb") as file:
            return file.read(ENVIRONMENT_MAX).decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _program_names(words: list[str]) -> Iterator[str]:
    """Yield what a program is called: its own name, and that of a script that it runs."""
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        yield name.removesuffix(".js")
        if place == 0 and not name.startswith(_RUNNERS):
            return


TERMINAL = Path("/dev/tty")
"""The terminal of this process, also where another program holds its stdin and stdout."""
LINE_MAX = 1_000
"""Bytes of an answer; the line discipline gives no more than 4,096 at once."""
PASTE_SECONDS = 0.05
"""Silence that ends what is pasted."""

_ANSWERS = {
    "y": Answer.ONCE,
    "yes": Answer.ONCE,
    "ok": Answer.ONCE,
    "confirm": Answer.ONCE,
    "approve": Answer.ONCE,
    "s": Answer.SESSION,
    "session": Answer.SESSION,
    "p": Answer.PROJECT,
    "project": Answer.PROJECT,
    "a": Answer.ALWAYS,
    "always": Answer.ALWAYS,
}
"""The words that approve (the published design); any other denies."""
_KEYS = {"once": "y", "session": "s", "project": "p", "always": "a", "no": "n"}
"""The letter of each answer, as the prompt names it."""


class QuestionHost(Protocol):
    """A conversation at the terminal, in which a question appears."""

    def question(self) -> AbstractContextManager[None]:
        """Leave the terminal to the question and its answer."""

    def keep(self, text: str) -> bool:
        """Keep a text that is no answer; return whether the question is asked again."""


class TerminalChannel:
    """Asks on the process's terminal; without one, `ask` returns None."""

    host: QuestionHost | None = None
    """Takes what is typed and is no answer; without one it denies."""

    def __init__(
        self,
        stdin: TextIO,
        terminal: Terminal,
        *,
        device: Callable[[], TextIO] | None = None,
    ) -> None:
        """Take stdin and where talk goes; `device` opens the terminal where stdin is none."""
        self._stdin = stdin
        self._terminal = terminal
        self._device = device or _open_terminal

    async def ask(self, request: ApprovalRequest) -> Reply | None:
        """Show the exact call and read one answer; silence and any other word deny."""
        if coding_agent(os.environ):
            # What types there may be the program that waits for the answer.
            return None
        if is_terminal(self._stdin):
            return await self._ask_on(request, self._stdin, self._terminal)
        try:
            file = self._device()
        except OSError:
            return None
        with file:
            # What is asked goes to the terminal too: stderr may be another program's.
            return await self._ask_on(request, file, Terminal(file, file, os.environ))

    async def _ask_on(
        self, request: ApprovalRequest, file: TextIO, terminal: Terminal
    ) -> Reply | None:
        if request.out_of_band_only:
            terminal.note_rows(f"\n{question_title(request.title)}")
            terminal.note_rows(f"  this is not decided here: decide it on {ONLY_PLACE}")
            return None
        with self.host.question() if self.host else nullcontext():
            show_request(request, terminal.note_rows)
            if Answer.ALWAYS in allowed_answers(request):
                terminal.note_rows("  a narrower rule may follow s, p or a: `a RULE`")
            while (reply := await self._read_answer(request, file, terminal)) is None:
                pass
        return reply

    async def _read_answer(
        self, request: ApprovalRequest, file: TextIO, terminal: Terminal
    ) -> Reply | None:
        """Read one answer; None for a text that was kept: the question is asked again."""
        choices = allowed_answers(request)
        forget_typed(file)
        offered = question_of(request).answers
        words = ", ".join(f"{_KEYS[one]} {words}" for one, words in offered.items())
        terminal.prompt(f"Allow? ({words}) ")
        # A thread that waits for the line would keep the process alive after Ctrl-C.
        await anyio.wait_readable(file)
        text = _read_line(file)
        word, _, message = text.strip().partition(" ")
        answer = _ANSWERS.get(text.strip().lower(), Answer.NO)
        rules: tuple[str, ...] = ()
        if message and (lasting := _ANSWERS.get(word.lower())) in LASTING and lasting in choices:
            answer, rules = lasting, (message,)
        is_no = word.lower() in ("n", "no")
        # The end of the input is no line, and denies.
        if self.host and text and not is_no and (answer is Answer.NO or _is_prose(rules, request)):
            return self._keep_text(self.host, text + _read_pasted(file), terminal)
        if answer is not Answer.NO and answer not in choices:
            terminal.note(f"{answer.value} is not possible here; taken as once")
            answer = Answer.ONCE
        return Reply(
            answer=answer,
            by=OWNER,
            channel="terminal",
            message=message if is_no and answer is Answer.NO else "",
            rules=rules,
        )

    def _keep_text(self, host: QuestionHost, text: str, terminal: Terminal) -> Reply | None:
        """Give a text to the conversation; a denial where that does not ask again."""
        if not text.strip():
            return None
        if not host.keep(text.strip()):
            return Reply(answer=Answer.NO, by=OWNER, channel="terminal")
        terminal.note("  kept as your next message; the call still waits for one of the answers")
        return None


def _is_prose(rules: tuple[str, ...], request: ApprovalRequest) -> bool:
    """Return whether what follows a lasting word is no rule, as in `a different file, please`."""
    offered = [one for pattern in request.patterns for one in (pattern.text, pattern.pattern)]
    heads = [one.split(maxsplit=1)[0] for one in offered if one.strip()]
    return any(
        not any(rule.startswith(head) or head.startswith(rule.split()[0]) for head in heads)
        for rule in rules
    )


def show_request(request: ApprovalRequest, note: Callable[[str], None]) -> None:
    """Show everything a person should see of a question; nothing in it can act on a terminal."""
    question = question_of(request)
    title, *lines = question_lines(question)
    note(f"\n{title}")
    for line in (*lines, *filter(None, [standing_line(question)])):
        note(line)


def note_changes(state_directory: Path, terminal: Terminal) -> None:
    """Say once what an update changed about standing approvals."""
    if notice := GrantStore(state_directory).take_notice():
        terminal.note(f"{notice}; `skillhouse approvals grants` lists what holds")


def _read_pasted(file: TextIO) -> str:
    """Return what was pasted together with a line: it is no answer to the question either."""
    text = ""
    while select.select([file], [], [], PASTE_SECONDS)[0] and (line := _read_line(file)):
        text += line
    return text


def _read_line(file: TextIO) -> str:
    with suppress(OSError):
        return os.read(file.fileno(), LINE_MAX).decode("utf-8", "replace")
    return ""


def _open_terminal() -> TextIO:
    """Open the terminal; `OSError` if there is none, or in its background, where we would stop."""
    handle = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    try:
        if os.tcgetpgrp(handle) != os.getpgrp():
            raise OSError("in the background of its terminal")
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace")

"""The terminal loop: lines are sent or are commands, on one event loop that Ctrl-C interrupts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Generic, Self, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from skillhouse.approval import OWNER
from skillhouse.floor import SkillhouseError, nearest
from skillhouse.frontends.chat.compaction import last_prompt
from skillhouse.frontends.chat.conversation import Answered, ChatConversation
from skillhouse.frontends.chat.screen import CHANNEL, Screen
from skillhouse.frontends.presentation.text import counted, cut, one_line
from skillhouse.tiers import is_stop_command

COMMANDS = {
    "help": "this list",
    "skills": "the skills, and which are in use",
    "reload-skills": "look for skills again",
    "unload": "NAME: take a skill out of use, and its text out of the conversation",
    "cost": "tokens of the catalog, the skills and the conversation",
    "compact": "make the conversation short now",
    "stop": "end what runs, and refuse every tool until `skillhouse resume`",
    "quit": "end; so does Ctrl-D",
}
_COLUMNS = 76
_PROMPT_COLUMNS = 60


class Commands:
    def __init__(self, conversation: ChatConversation, screen: Screen) -> None:
        self._conversation = conversation
        self._house = conversation.house
        self._screen = screen

    @property
    def words(self) -> list[str]:
        names = (entry.name for entry in self._house.invocable(self._conversation.agent))
        return [*COMMANDS, *names]

    def is_skill(self, line: str) -> bool:
        word = line[1:].strip().partition(" ")[0]
        named = word in self.words or (":" in word and "/" not in word)
        return line.startswith("/") and word not in COMMANDS and named

    async def take(self, line: str, more: str = "") -> Answered | None:
        """Run or send what the user typed; None if the model was not asked.

        `more` is sent with it, but not as arguments of a skill, which may become parts of commands.
        """
        if is_stop_command(line, self._house.services.enforcement.policy, channel=CHANNEL):
            self._stop(line.strip())
            return None
        if not line.startswith("/"):
            return await self._conversation.ask(line)
        word, _, rest = line[1:].strip().partition(" ")
        if word in COMMANDS:
            await self._do(word, rest.strip())
            return None
        if self.is_skill(line):
            return await self._conversation.start(word, rest.strip(), more=more)
        close = next(iter(nearest(word, self.words)), "")
        hint = f"did you mean `/{close}`" if close else "`/help` lists them"
        self._screen.error(f"unknown command `/{word}`; {hint}; a blank before it sends it as text")
        return None

    async def _do(self, word: str, rest: str) -> None:
        if word == "help":
            for name, text in COMMANDS.items():
                self._screen.note(f"  /{name:<15}{text}")
            self._screen.note(f"  /{'SKILL [WORDS]':<15}start a skill yourself")
        elif word == "skills":
            self._skills()
        elif word == "reload-skills":
            await self._reload()
        elif word == "unload":
            gone = self._conversation.unload(rest)
            names = ", ".join(one_line(one.name) for one in gone)
            self._screen.note(
                f"not in use any more: {names}" if gone else "no such skill is in use"
            )
        elif word == "cost":
            self.cost()
        elif word == "compact":
            if not await self._conversation.shorten():
                self._screen.note("there is nothing to leave out")
        elif word == "stop":
            self._screen.error(
                "the tier policy takes no `/stop` from a chat; `skillhouse stop` stops everything"
            )

    def start_line(self, where: str) -> str:
        """Return the first note; `where` is the model, with its address if one was given."""
        talk = self._conversation
        agent = f" as agent {one_line(talk.agent)}" if talk.agent != "default" else ""
        lines = [f"chat {talk.session_id} with {one_line(where)}{agent}", self._weight()]
        if talk.history:
            prompt = cut(one_line(last_prompt(talk.history)), _PROMPT_COLUMNS)
            lines.append(f"it goes on after {counted(len(talk.history), 'message')}: {prompt}")
        lines.append("`/help` says what a line can be; Ctrl-D ends the chat")
        return "\n".join(lines)

    def _weight(self) -> str:
        view = self._house.view(self._conversation.agent)
        catalog = view.catalog(None)
        return (
            f"{counted(len(view.visible.skills), 'skill')}, catalog about {catalog.tokens:,} "
            f"tokens; all tools and instructions about {self._conversation.overhead_tokens:,}"
        )

    def cost(self) -> None:
        talk = self._conversation
        self._screen.note(self._weight())
        for one in talk.skills.activations.newest():
            self._screen.note(f"  in use: {one_line(one.name)}, about {one.tokens:,} tokens")
        total = talk.history_tokens + talk.overhead_tokens
        self._screen.note(
            f"conversation about {talk.history_tokens:,} tokens; a request about {total:,} of "
            f"{talk.context_tokens:,}"
        )
        self._screen.note(str(talk.spent))

    def _skills(self) -> None:
        in_use = {one.file for one in self._conversation.skills.activations.newest()}
        for skill in self._house.view(self._conversation.agent).visible.skills:
            mark = "*" if skill.file in in_use else " "
            text = f"{mark} {one_line(skill.name)}: {one_line(skill.description)}"
            self._screen.note(cut(text, self._screen.width or _COLUMNS))
        self._screen.note("* in use; `/NAME` starts one")

    async def _reload(self) -> None:
        agent = self._conversation.agent
        before = {one.id: one for one in self._house.view(agent).visible.skills}
        self._house.refresh()
        await self._house.services.skill_code.reload()
        after = {one.id: one for one in self._house.view(agent).visible.skills}
        lines = [f"  new: {one_line(name)}" for name in after if name not in before]
        lines += [f"  gone: {one_line(name)}" for name in before if name not in after]
        changed = (name for name in after if name in before and after[name] != before[name])
        lines += [f"  changed: {one_line(name)}" for name in changed]
        self._screen.note("\n".join([counted(len(after), "skill"), *lines]))

    def _stop(self, typed: str) -> None:
        try:
            report = self._house.services.enforcement.stop(OWNER, f"chat: {typed}")
        except SkillhouseError as error:
            self._screen.error(f"{error}; the tools of this program are stopped all the same")
            return
        ended = counted(report.ended, "call")
        self._screen.note(
            f"everything is stopped, {ended} ended; `skillhouse resume` lets the tools go on"
        )
        for pid in report.silent:
            self._screen.error(f"process {pid} did not end every call within 1 s")
        for name, why in report.failed:
            self._screen.error(f"{name} failed: {one_line(why)}")


PROMPT = "> "
QUIT = ("/quit", "/exit")


def talk(loop: Loop, commands: Commands, screen: Screen, read: Callable[[str], str]) -> None:
    """Handle lines until `/quit` or Ctrl-D; Ctrl-C ends only the current answer."""
    while True:
        try:
            line = read(PROMPT)
            while line.endswith("\\"):
                line = f"{line[:-1]}\n{read('. ')}"
        except EOFError:
            screen.note("")
            return
        except KeyboardInterrupt:
            screen.note("\n`/quit` or Ctrl-D ends the chat")
            continue
        if line.strip() in QUIT:
            return
        if not line.strip():
            continue
        try:
            show(loop.run(lambda: commands.take(line)), screen)  # noqa: B023 - it runs at once
        except StoppedError:
            screen.end_line()
            screen.note("stopped; the conversation goes on")


def show(answered: Answered | None, screen: Screen) -> None:
    """Show the reason of a failure, and the pending approvals."""
    if answered is None:
        return
    if answered.reason:
        screen.error(answered.reason)
    for approval in answered.pending:
        screen.note(f"waits for approval: skillhouse approvals approve {approval}")


def line_reader(commands: Commands) -> Callable[[str], str]:
    """Return a function that reads a line, with history and completion if readline is there."""
    try:
        import readline  # noqa: PLC0415 - not on every platform
    except ImportError:
        return input

    def complete(text: str, state: int) -> str | None:
        # The words begin with the commands.
        lines = [f"/{word} " for word in commands.words if f"/{word}".startswith(text)]
        matches = list(dict.fromkeys(lines)) if text.startswith("/") else []
        return matches[state] if state < len(matches) else None

    readline.set_completer_delims(" \n")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    return input


T = TypeVar("T")


class StoppedError(Exception):
    """The user stopped the current answer."""


class Loop:
    """One event loop on one thread for the whole chat.

    Sandboxed processes end with the thread that started them (decision 10), so all answers share
    one; the main thread waits for it and for the user.
    """

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function to its end; raises StoppedError if Ctrl-C cancelled it."""
        running = _RunningTurn(function)
        future = self._portal.start_task_soon(running.run)
        while True:
            try:
                future.result()
            except KeyboardInterrupt:
                self._portal.start_task_soon(running.stop)
            else:
                break
        if not running.results:
            raise StoppedError
        return running.results[0]


class _RunningTurn(Generic[T]):
    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._scope: anyio.CancelScope | None = None
        self._is_stopped = False
        self.results: list[T] = []

    async def run(self) -> None:
        with anyio.CancelScope() as self._scope:
            if self._is_stopped:
                self._scope.cancel()
            self.results.append(await self._function())

    async def stop(self) -> None:
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()

"""The terminal loop: lines are sent or are commands, on one event loop that Ctrl-C interrupts."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from skillhouse.answers.service import failures, loaded_names, untried_names
from skillhouse.approval import OWNER
from skillhouse.extensions.chat.marks import is_cut, last_prompt, stored_prompts
from skillhouse.extensions.chat.pending_build import PendingBuild
from skillhouse.extensions.chat.screen import CHANNEL, Screen
from skillhouse.extensions.chat.transcript import StoredTranscript
from skillhouse.floor import SkillhouseError, nearest
from skillhouse.manage import reload_code
from skillhouse.presentation.library import unlisted
from skillhouse.presentation.text import counted, cut, one_line
from skillhouse.tiers import is_stop_command

if TYPE_CHECKING:
    # The library of the models takes a second to load, and the prompt does not wait for it.
    from skillhouse.extensions.chat.conversation import Answered, ChatConversation

COMMANDS = {
    "help": "this list",
    "skills": "the skills, and which are in use",
    "reload-skills": "look for skills again, and load their code",
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
        self.conversation = conversation
        self._house = conversation.house
        self._screen = screen

    @property
    def words(self) -> list[str]:
        names = (entry.name for entry in self._house.invocable(self.conversation.agent))
        return [*COMMANDS, *names]

    def stopped(self, line: str) -> bool:
        """Stop everything if the line is a command that does; return whether it is one."""
        if not is_stop_command(line, self._house.services.enforcement.policy, channel=CHANNEL):
            return False
        self._stop(line.strip())
        return True

    def is_skill(self, line: str) -> bool:
        word = line[1:].strip().partition(" ")[0]
        named = word in self.words or (":" in word and "/" not in word)
        return line.startswith("/") and word not in COMMANDS and named

    async def take(self, line: str, more: str = "") -> Answered | None:
        """Run or send what the user typed; None if the model was not asked.

        `more` is sent with it, but not as arguments of a skill, which may become parts of commands.
        """
        if self.stopped(line):
            return None
        if not line.startswith("/"):
            return await self.conversation.ask(line)
        word, _, rest = line[1:].strip().partition(" ")
        if word in COMMANDS:
            await self._do(word, rest.strip())
            return None
        if self.is_skill(line):
            return await self.conversation.start(word, rest.strip(), more=more)
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
            gone = self.conversation.unload(rest)
            names = ", ".join(one_line(one.name) for one in gone)
            self._screen.note(
                f"not in use any more: {names}" if gone else "no such skill is in use"
            )
        elif word == "cost":
            self.cost()
        elif word == "compact":
            if not await self.conversation.shorten():
                self._screen.note("there is nothing to leave out")
        elif word == "stop":
            self._screen.error(
                "the tier policy takes no `/stop` from a chat; `skillhouse stop` stops everything"
            )

    def _weight(self) -> str:
        view = self._house.view(self.conversation.agent)
        catalog = view.catalog(None)
        return (
            f"{counted(len(view.visible.skills), 'skill')}, catalog about {catalog.tokens:,} "
            f"tokens; all tools and instructions about {self.conversation.overhead_tokens:,}"
        )

    def cost(self) -> None:
        talk = self.conversation
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
        in_use = {one.file for one in self.conversation.skills.activations.newest()}
        view = self._house.view(self.conversation.agent)
        for skill in view.visible.skills:
            sign = "*" if skill.file in in_use else " "
            marks = "".join(f"[{mark}] " for mark in unlisted(view.mark(skill)))
            text = f"{sign} {one_line(skill.name)}: {marks}{one_line(skill.description)}"
            self._screen.note(cut(text, self._screen.width or _COLUMNS))
        self._screen.note("* in use; `/NAME` starts one")

    async def _reload(self) -> None:
        agent = self.conversation.agent
        before = {one.id: one for one in self._house.view(agent).visible.skills}
        try:
            done = await reload_code(self._house, agent=agent)
        except (SkillhouseError, OSError) as error:
            self._screen.error(f"skills' code was not loaded: {one_line(str(error))}")
            return
        after = {one.id: one for one in self._house.view(agent).visible.skills}
        lines = [f"  new: {one_line(name)}" for name in after if name not in before]
        lines += [f"  gone: {one_line(name)}" for name in before if name not in after]
        changed = (name for name in after if name in before and after[name] != before[name])
        lines += [f"  changed: {one_line(name)}" for name in changed]
        if self._house.runs_code:
            untried = untried_names(done.loaded)
            lines += [f"  tool: {one_line(name)}" for name in loaded_names(done.loaded)]
            lines += [f"  tool: {one_line(name)} (not loaded)" for name in untried]
            failed = failures(done.loaded, self._house.services.skill_code.problems)
            lines += [f"  failed: {one_line(name)}: {one_line(why)}" for name, why in failed]
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


def start_lines(where: str, session: str, agent: str, before: StoredTranscript | None) -> str:
    """Return the first notes; `where` is the model, with its address if one was given."""
    as_agent = f" as agent {one_line(agent)}" if agent != "default" else ""
    lines = [f"chat {session} with {one_line(where)}{as_agent}"]
    if before is not None and before.messages:
        prompt = cut(one_line(last_prompt(stored_prompts(before.messages))), _PROMPT_COLUMNS)
        lines.append(f"it goes on after {counted(len(before.messages), 'message')}: {prompt}")
        if is_cut(before.messages):
            lines.append("its last answer is not whole; `go on` asks for the rest")
    lines.append("`/help` says what a line can be; Ctrl-D ends the chat")
    return "\n".join(lines)


class TypedLines:
    """What the user types: at the prompt, or at a question without being an answer to it."""

    def __init__(self, screen: Screen, read: Callable[[str], str]) -> None:
        self.commands: Commands | None = None
        """What can take a command at a question; None before a call can be asked about."""
        self._screen = screen
        self._read = read
        self._kept: deque[str] = deque()

    def question(self) -> AbstractContextManager[None]:
        return self._screen.question()

    def keep(self, text: str) -> bool:
        """Keep a text for the next prompt; a command that stops everything acts at once."""
        if self.commands is not None and self.commands.stopped(text):
            return False
        self._kept.append(text)
        return True

    def next(self) -> str:
        """Return the next message: one that was kept, or else what is typed now."""
        if self._kept:
            text = self._kept.popleft()
            self._screen.note(f"{PROMPT}{text}")
            return text
        line = self._read(PROMPT)
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{self._read('. ')}"
        return line

    def forget(self) -> None:
        """Drop what was kept: the user stopped the turn that it was to follow."""
        for text in self._kept:
            self._screen.note(f"not sent: {text}")
        self._kept.clear()


def talk(loop: Loop, opening: PendingBuild[Commands], screen: Screen, lines: TypedLines) -> None:
    """Handle lines until `/quit`, Ctrl-D, or a second Ctrl-C; the first ends the current answer.

    Raises what went wrong in the opening, which interrupts the prompt.
    """
    is_second = False
    while True:
        try:
            line = lines.next()
            if line.strip() in QUIT:
                return
            if not line.strip():
                continue
            if not opening.is_done:
                screen.working("loading the model's package")
            commands = lines.commands = opening.result()
            is_second = False
        except EOFError:
            screen.note("")
            return
        except KeyboardInterrupt:
            screen.idle()
            if opening.has_failed:
                screen.note("")
                opening.result()
            if is_second:
                screen.note("")
                return
            screen.note("\nCtrl-C again, `/quit` or Ctrl-D ends the chat")
            is_second = True
            continue
        finally:
            screen.idle()
        try:
            show(loop.run(lambda: commands.take(line)), screen)  # noqa: B023 - it runs at once
        except StoppedError as stopped:
            screen.end_line()
            if stopped.leaves:
                return
            screen.note("stopped; the conversation goes on, and another Ctrl-C ends the chat")
            lines.forget()
            is_second = True


def show(answered: Answered | None, screen: Screen) -> None:
    """Show the reason of a failure, and the pending approvals."""
    if answered is None:
        return
    if answered.reason:
        screen.error(answered.reason)
    for approval in answered.pending:
        screen.note(f"waits for approval: skillhouse approvals approve {approval}")


def line_reader(opening: PendingBuild[Commands]) -> Callable[[str], str]:
    """Return a function that reads a line, with history and completion if readline is there."""
    try:
        import readline  # noqa: PLC0415 - not on every platform
    except ImportError:
        return input

    def complete(text: str, state: int) -> str | None:
        # The words begin with the commands.
        words = opening.result().words if opening.is_done else list(COMMANDS)
        lines = [f"/{word} " for word in words if f"/{word}".startswith(text)]
        matches = list(dict.fromkeys(lines)) if text.startswith("/") else []
        return matches[state] if state < len(matches) else None

    readline.set_completer_delims(" \n")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    return input


T = TypeVar("T")


class StoppedError(Exception):
    """The user stopped the current answer, and `leaves` the chat if that took a second Ctrl-C."""

    def __init__(self, *, leaves: bool) -> None:
        super().__init__("stopped")
        self.leaves = leaves


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
        interrupts = 0
        while True:
            try:
                future.result()
            except KeyboardInterrupt:
                interrupts += 1
                self._portal.start_task_soon(running.stop)
            else:
                break
        if not running.results:
            raise StoppedError(leaves=interrupts > 1)
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

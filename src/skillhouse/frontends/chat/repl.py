"""Reads lines from a person until they end it."""

from __future__ import annotations

from collections.abc import Callable

from skillhouse.frontends.chat.commands import COMMANDS, Commands
from skillhouse.frontends.chat.conversation import Answered
from skillhouse.frontends.chat.loop import Loop, StoppedError
from skillhouse.frontends.chat.screen import Screen

PROMPT = "> "
QUIT = ("/quit", "/exit")


def talk(loop: Loop, commands: Commands, screen: Screen, read: Callable[[str], str]) -> None:
    """Take lines until `/quit` or Ctrl-D; Ctrl-C ends the answer that is coming, and no more."""
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
    """Tell what is left to say when an answer has ended."""
    if answered is None:
        return
    if answered.reason:
        screen.error(answered.reason)
    for approval in answered.pending:
        screen.note(f"waits for a yes: skillhouse approvals approve {approval}")


def line_reader(commands: Commands) -> Callable[[str], str]:
    """Return what reads a line, with its own history and completion where there is readline."""
    try:
        import readline  # noqa: PLC0415 - not on every platform
    except ImportError:
        return input

    def complete(text: str, state: int) -> str | None:
        found = [
            f"/{word} " for word in (*COMMANDS, *commands.words) if f"/{word}".startswith(text)
        ]
        found = list(dict.fromkeys(found)) if text.startswith("/") else []
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" \n")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    return input

"""Output to the user's terminal, and the tools whose calls are shown there."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from pydantic_ai import RunContext
from pydantic_ai.toolsets import ToolsetTool

from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.adapters.pydantic_ai import SkillhouseToolset
from skillhouse.frontends.presentation.text import cut, one_line, shown, wrapped
from skillhouse.tools import Progress, ToolResult

_JOINERS = "\u200c\u200d"
"""Scripts and emoji need them between letters; next to ASCII they could only hide text."""
_NOTE_COLUMNS = 400


class Stream:
    """Escapes a text that arrives in arbitrary pieces."""

    def __init__(self) -> None:
        self._before = " "

    def safe(self, piece: str) -> str:
        """Return a piece with control characters escaped, except line feeds and tabs.

        >>> Stream().safe("a\\x1b[2Jb\\r\\n\\u202ec")
        'a\\\\x1b[2Jb\\\\r\\n\\\\u202ec'
        """
        made = []
        for character in piece:
            is_joiner = character in _JOINERS and not self._before.isascii()
            made.append(character if character in "\n\t" or is_joiner else shown(character))
            self._before = character
        return "".join(made)


class Screen:
    """Writes answers to one stream and notes to another."""

    def __init__(
        self, output: TextIO, errors: TextIO, *, quiet: bool = False, width: int | None = None
    ) -> None:
        """Store the streams, for answers and for notes.

        `quiet` hides answers, progress and outcomes; notes are wrapped at `width` columns, if any.
        """
        self.width = width
        self._output = output
        self._errors = errors
        self._quiet = quiet
        self._coloured = errors.isatty()
        self._stream = Stream()
        self._line_is_open = False
        self.answer_text = ""
        """The answer so far, unescaped."""

    def begin(self) -> None:
        self.answer_text = ""
        self._stream = Stream()

    def answer(self, piece: str) -> None:
        if not piece:
            return
        self.answer_text += piece
        if self._quiet:
            return
        self._output.write(self._stream.safe(piece))
        self._output.flush()
        self._line_is_open = not piece.endswith("\n")

    def end_line(self) -> None:
        if self._line_is_open:
            self._output.write("\n")
            self._output.flush()
            self._line_is_open = False

    def progress(self, text: str) -> None:
        if not self._quiet:
            self.note(cut(shown(f"· {text}"), self.width or _NOTE_COLUMNS), dim=True)

    def outcome(self, text: str) -> None:
        if not self._quiet:
            self.note(f"    {text}", dim=True)

    def note(self, text: str, *, dim: bool = False) -> None:
        self.end_line()
        for line in self._lines(text):
            self._errors.write(f"\x1b[2m{line}\x1b[0m\n" if dim and self._coloured else f"{line}\n")
        self._errors.flush()

    def _lines(self, text: str) -> list[str]:
        lines = [cut(shown(line), _NOTE_COLUMNS) for line in text.split("\n")]
        return wrapped("\n".join(lines), self.width) if self.width else lines

    def error(self, text: str) -> None:
        self.note(f"skillhouse: {cut(one_line(text), _NOTE_COLUMNS)}")


@contextmanager
def shown_logs(screen: Screen) -> Iterator[None]:
    """Show logged errors in one escaped line each.

    Without a handler Python writes them unescaped, with a provider's text and a traceback.
    """
    handler = _Shown(screen)
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)


class _Shown(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.ERROR)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        why = f" ({kind.__name__})" if kind is not None else ""
        self._screen.progress(one_line(f"{record.getMessage()}{why}"))


CHANNEL = "chat"
"""The channel of a chat's calls, for rules, questions and the audit log."""
_LINE = 100
_REASON_COLUMNS = 300


class ChatTools(SkillhouseToolset):
    """Shows each call and its progress, and passes its result to `on_result`."""

    def __init__(
        self,
        bridge: FrameworkBridge,
        screen: Screen,
        session_id: str,
        on_result: Callable[[ToolResult], None],
    ) -> None:
        super().__init__(bridge)
        self._screen = screen
        self._session_id = session_id
        self._on_result = on_result

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, all sequential: the terminal asks one question at a time."""
        tools = await super().get_tools(ctx)
        return {
            name: dataclasses.replace(
                tool, tool_def=dataclasses.replace(tool.tool_def, sequential=True)
            )
            for name, tool in tools.items()
        }

    async def result_of(self, name: str, given: dict[str, Any], ctx: RunContext[Any]) -> ToolResult:
        self._screen.progress(described(name, given))
        result = await self._bridge.call(
            name,
            given,
            listener=self._show,
            session_id=self._session_id,
            message_id=ctx.run_id or "",
            call_id=ctx.tool_call_id or "",
        )
        if result.is_error:
            reason = result.content.split("\n", 1)[0]
            self._screen.outcome(f"{result.status}: {cut(one_line(reason), _REASON_COLUMNS)}")
        self._on_result(result)
        return result

    async def _show(self, progress: Progress) -> None:
        of = f" of {progress.total:g}" if progress.total is not None else ""
        message = f" {one_line(progress.message)}" if progress.message else ""
        self._screen.progress(cut(f"  {progress.progress:g}{of}{message}", _LINE))


def described(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in one line, safe to show.

    >>> described("exec", {"command": "git", "params": ["log"]})
    'exec command=git params=[log]'
    """
    shown = " ".join(f"{one_line(str(key))}={_brief(value)}" for key, value in arguments.items())
    return cut(one_line(f"{name} {shown}".rstrip()), _LINE)


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(one_line(str(item)) for item in value)}]"
    return one_line(str(value))

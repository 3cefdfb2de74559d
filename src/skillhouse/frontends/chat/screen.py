"""Output to the user's terminal; a model's text cannot control the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from skillhouse.frontends.presentation.text import cut, one_line, shown, wrapped

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
        """Store the streams.

        Args:
            output: For answers.
            errors: For notes.
            quiet: Whether answers, progress and outcomes are not shown.
            width: Columns for wrapping notes; None does not wrap.
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
        """Show an outcome, uncut."""
        if not self._quiet:
            self.note(f"    {text}", dim=True)

    def note(self, text: str, *, dim: bool = False) -> None:
        """Show a note, with each line escaped."""
        self.end_line()
        for line in self._lines(text):
            self._errors.write(f"\x1b[2m{line}\x1b[0m\n" if dim and self._coloured else f"{line}\n")
        self._errors.flush()

    def _lines(self, text: str) -> list[str]:
        lines = [cut(shown(line), _NOTE_COLUMNS) for line in text.split("\n")]
        return wrapped("\n".join(lines), self.width) if self.width else lines

    def error(self, text: str) -> None:
        """Show an error, in one line."""
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

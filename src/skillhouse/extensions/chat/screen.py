"""Output to the user's terminal, with a sign of life while something runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from skillhouse.extensions.chat.markdown import MarkdownStream
from skillhouse.presentation.text import cut, one_line, shown, wrapped

FRAMES = "|/-\\"
BEGIN_SECONDS = 0.3
"""What is done sooner needs no sign."""
FRAME_SECONDS = 0.15


class Indicator:
    """Draws over its own line while something runs, unless another line is open.

    Whoever writes to the same terminal holds `lock`, and calls `clear` before.
    """

    def __init__(self, stream: TextIO) -> None:
        """Store the stream, which has to be a terminal; no thread is started before `begin`."""
        self.lock = threading.RLock()
        self.is_hidden = False
        """Whether another line is open, such as an answer's or a question's."""
        self._stream = stream
        self._text = ""
        self._since = 0.0
        self._is_drawn = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, text: str) -> None:
        """Show a text from now on, until `end`; its time begins again if the text is another."""
        with self.lock:
            if text != self._text:
                self._text, self._since = text, time.monotonic()
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(target=self._draw, daemon=True)
                self._thread.start()

    def end(self) -> None:
        with self.lock:
            thread, self._thread, self._text = self._thread, None, ""
            self._wake.set()
            self.clear()
        if thread is not None:
            thread.join()

    def clear(self) -> None:
        """Take the line away, so that other text can be written in its place."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False

    def _draw(self) -> None:
        frame = 0
        while not self._wake.wait(FRAME_SECONDS):
            with self.lock:
                seconds = time.monotonic() - self._since
                if not self._text or self.is_hidden or seconds < BEGIN_SECONDS:
                    continue
                frame += 1
                sign = FRAMES[frame % len(FRAMES)]
                line = f"{sign} {self._text}, {seconds:.0f} s (Ctrl-C stops)"
                self._stream.write(f"\r\x1b[2m{line}\x1b[0m\x1b[K")
                self._stream.flush()
                self._is_drawn = True


_JOINERS = "\u200c\u200d"
"""Scripts and emoji need them between letters; next to ASCII they could only hide text."""
_NOTE_COLUMNS = 400
_WORKING_COLUMNS = 40
_COLUMNS = 80
CHANNEL = "chat"
"""The channel of a chat's calls, for rules, questions and the audit log."""


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
        self,
        output: TextIO,
        errors: TextIO,
        *,
        quiet: bool = False,
        width: int | None = None,
        is_styled: bool = False,
        is_watched: bool = False,
    ) -> None:
        """Store the streams, for answers and for notes.

        `quiet` hides answers, progress and outcomes; notes are wrapped at `width` columns, if any.
        `is_styled` renders the Markdown of answers, and `is_watched` shows that something runs:
        both are for terminals only.
        """
        self.width = width
        self._output = output
        self._errors = errors
        self._quiet = quiet
        self._coloured = is_styled and errors.isatty()
        self._stream = Stream()
        self._markdown = MarkdownStream(width or _COLUMNS) if is_styled else None
        self._indicator = Indicator(errors) if is_watched else None
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
        text = self._stream.safe(piece)
        if self._markdown is None:
            self._write(text, is_open=not piece.endswith("\n"))
        elif text := self._markdown.feed(text):
            self._write(text, is_open=self._markdown.line_is_open)

    def end_line(self) -> None:
        """Show what waits for the end of its line, and end the line."""
        if self._markdown is not None:
            if text := self._markdown.close():
                self._write(text, is_open=False)
        elif self._line_is_open:
            self._write("\n", is_open=False)

    def _write(self, text: str, *, is_open: bool) -> None:
        with self._above():
            self._output.write(text)
            self._output.flush()
            self._line_is_open = is_open
            if self._indicator is not None:
                self._indicator.is_hidden = is_open

    @contextmanager
    def _above(self) -> Iterator[None]:
        """Write where the indicator was."""
        if self._indicator is None:
            yield
            return
        with self._indicator.lock:
            self._indicator.clear()
            yield

    def working(self, what: str) -> None:
        """Show that something runs, until `idle`; what it is in one safe line."""
        if self._indicator is not None:
            self._indicator.begin(cut(what, _WORKING_COLUMNS))

    def idle(self) -> None:
        if self._indicator is not None:
            self._indicator.end()

    @contextmanager
    def question(self) -> Iterator[None]:
        """Leave the terminal to a question and its answer."""
        self.end_line()
        if self._indicator is None:
            yield
            return
        with self._indicator.lock:
            self._indicator.clear()
            self._indicator.is_hidden = True
        try:
            yield
        finally:
            self._indicator.is_hidden = False

    def progress(self, text: str) -> None:
        if not self._quiet:
            self.note(cut(shown(f"· {text}"), self.width or _NOTE_COLUMNS), dim=True)

    def outcome(self, text: str) -> None:
        if not self._quiet:
            self.note(f"    {text}", dim=True)

    def note(self, text: str, *, dim: bool = False) -> None:
        self.end_line()
        with self._above():
            for line in self._lines(text):
                styled = dim and self._coloured
                self._errors.write(f"\x1b[2m{line}\x1b[0m\n" if styled else f"{line}\n")
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

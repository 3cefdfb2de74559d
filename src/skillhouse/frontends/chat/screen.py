"""What the person at the terminal sees; nothing that a model says can act on the terminal."""

from __future__ import annotations

from typing import TextIO

from skillhouse.frontends.presentation.text import cut, one_line, shown, wrapped

_JOINERS = "\u200c\u200d"
"""Scripts and emoji need them between letters; between ASCII they could only hide something."""
_NOTE_COLUMNS = 400


class Stream:
    """Makes a text safe that arrives in pieces, cut anywhere."""

    def __init__(self) -> None:
        self._before = " "

    def safe(self, piece: str) -> str:
        """Return a piece with its controls as escapes; lines and tabs stay.

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
    """Writes answers to one stream and talk to another."""

    def __init__(
        self, output: TextIO, errors: TextIO, *, quiet: bool = False, width: int | None = None
    ) -> None:
        """Take the streams; a quiet screen shows no progress, only what must be known.

        Args:
            output: For answers.
            errors: For talk.
            quiet: Whether progress is passed over.
            width: Columns that talk is fitted into; None leaves its lines as they are.
        """
        self.width = width
        self._output = output
        self._errors = errors
        self._quiet = quiet
        self._coloured = errors.isatty()
        self._stream = Stream()
        self._line_is_open = False
        self.said = ""
        """The text of the answer so far, as the model gave it."""

    def begin(self) -> None:
        """Forget the answer before."""
        self.said = ""
        self._stream = Stream()

    def answer(self, piece: str) -> None:
        """Show a piece of the answer at once."""
        if not piece:
            return
        self.said += piece
        if self._quiet:
            return
        self._output.write(self._stream.safe(piece))
        self._output.flush()
        self._line_is_open = not piece.endswith("\n")

    def end_line(self) -> None:
        """Leave the line of the answer, if it is on one."""
        if self._line_is_open:
            self._output.write("\n")
            self._output.flush()
            self._line_is_open = False

    def progress(self, text: str) -> None:
        """Show what is going on, in one line."""
        if not self._quiet:
            self.note(cut(shown(f"· {text}"), self.width or _NOTE_COLUMNS), dim=True)

    def outcome(self, text: str) -> None:
        """Show what came of something, all of it."""
        if not self._quiet:
            self.note(f"    {text}", dim=True)

    def note(self, text: str, *, dim: bool = False) -> None:
        """Tell the person something; each line of it is made safe."""
        self.end_line()
        for line in self._lines(text):
            self._errors.write(f"\x1b[2m{line}\x1b[0m\n" if dim and self._coloured else f"{line}\n")
        self._errors.flush()

    def _lines(self, text: str) -> list[str]:
        lines = [cut(shown(line), _NOTE_COLUMNS) for line in text.split("\n")]
        return wrapped("\n".join(lines), self.width) if self.width else lines

    def error(self, text: str) -> None:
        """Tell of a fault, in one line."""
        self.note(f"skillhouse: {cut(one_line(text), _NOTE_COLUMNS)}")

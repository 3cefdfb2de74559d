"""Where a conversation of the bot writes: an answer and notes, kept until they are sent."""

from __future__ import annotations

import io

import anyio

from skillhouse.extensions.chat.screen import Screen


class ChannelScreen(Screen):
    """Keeps the answer and the notes of one message."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), io.StringIO(), quiet=True)
        self.notes: list[str] = []
        self.begun = anyio.Event()
        """Set with the first text of an answer."""

    def begin(self) -> None:
        super().begin()
        self.notes = []
        self.begun = anyio.Event()

    def answer(self, piece: str) -> None:
        super().answer(piece)
        if piece:
            self.begun.set()

    def note(self, text: str, *, dim: bool = False) -> None:
        """Keep a note; what is dim is progress, which the service shows in its own way."""
        if not dim:
            self.notes.append(text)

    def take_notes(self) -> str:
        """Return the notes so far, once."""
        notes, self.notes = self.notes, []
        return "\n".join(notes)

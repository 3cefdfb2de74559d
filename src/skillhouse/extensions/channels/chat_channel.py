"""What a chat service is to the bot: `ChatChannel`, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from skillhouse.floor import SkillhouseError


class ChannelError(SkillhouseError):
    """The service did not take a request, and would not take it later."""


class BusyChannelError(ChannelError):
    """The service cannot be reached or has no time."""

    def __init__(self, message: str, *, seconds: float, is_unknown: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        """How long to wait before the next try."""
        self.is_unknown = is_unknown
        """Whether the request may have been carried out all the same."""


class ChatFile(Struct, frozen=True, kw_only=True):
    """A file that a person sent; it is fetched later."""

    id: str
    """By which the service gives it."""
    name: str = ""
    """As its sender called it; untrusted."""
    size: int = 0
    """Bytes, as the service says; 0 where it does not."""


class OutgoingFile(Struct, frozen=True, kw_only=True):
    """A file of the bot that waits to be sent, as a copy in the state."""

    path: str
    name: str
    size: int


class ChatUpdate(Struct, frozen=True, kw_only=True):
    """One message or one pressed button; every text is untrusted."""

    key: str
    """The same whenever the service delivers it again, and of no other."""
    chat: str
    user: str
    """The service's id of who wrote or pressed."""
    name: str = ""
    """What that person is called there."""
    text: str = ""
    message: str = ""
    """Its id within the chat, for a reply."""
    is_private: bool = True
    is_for_us: bool = True
    """Whether a message of a group mentions the bot or replies to it."""
    button: str = ""
    """The data of the button that was pressed; empty for a message."""
    press: str = ""
    """The service's id of the press."""
    moved_from: str = ""
    """The chat's id before the service gave it another one, which this says; else empty."""
    files: tuple[ChatFile, ...] = ()


Buttons = tuple[tuple[str, str], ...]
"""Label and data of each."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """One message of the bot."""

    chat: str
    text: str
    """Markdown, unless `is_plain`."""
    is_plain: bool = False
    reply_to: str = ""
    """The message that it answers; empty for none."""
    buttons: Buttons = ()
    file: OutgoingFile | None = None
    """Goes with the text, which may be empty then; for a `FileChannel` alone."""


TakeUpdates = Callable[[Sequence[ChatUpdate]], Awaitable[None]]
"""Stores what came; the service may forget it once this returned."""


@runtime_checkable
class ChatChannel(Protocol):
    """A service in which people write to the bot.

    Methods raise `BusyChannelError` where a later try may succeed, else `ChannelError`.
    """

    name: str
    """As in rules, the log and the allow-list: a-z."""
    text_max: int
    """Characters of a message at most."""
    marks_repeats: bool
    """Whether a message that was cut off while it was sent may come twice, and has to say so."""

    async def start(self) -> str:
        """Connect, and return what the bot is called there."""
        ...

    async def listen(self, take: TakeUpdates) -> None:
        """Pass on what people write, until it is cancelled."""
        ...

    async def send(self, message: Outgoing, key: str) -> str:
        """Send a message and return its id; the same `key` is the same message."""
        ...

    async def edit(self, chat: str, message: str, text: str) -> None:
        """Replace a plain text of the bot, and take its buttons away."""
        ...

    async def show_progress(self, chat: str, text: str, *, number: int, is_private: bool) -> None:
        """Show that an answer is made, and how it begins where the service can."""
        ...

    async def say_to_presser(self, press: str, text: str) -> None:
        """Say a few words to who pressed a button."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class FileChannel(ChatChannel, Protocol):
    """A service by which files come and go too: updates may have them, and so may messages."""

    received_max: int
    """Bytes of a file that can be fetched."""
    sent_max: int
    """Bytes of one that can be sent."""

    async def fetch(self, file: ChatFile, write: Callable[[bytes], None]) -> None:
        """Pass the bytes of a file on, in their order; what `write` raises ends it."""
        ...

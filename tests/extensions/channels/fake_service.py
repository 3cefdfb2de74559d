"""What the loopback chat services have in common: what the bot did, and waiting for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from skillhouse.extensions.channels.chat_channel import ChatChannel
from skillhouse.house import Skillhouse

Json = dict[str, Any]
S = TypeVar("S", bound="FakeService")


@dataclass
class FakeService:
    """A service: what the bot asked of it, and what it shows."""

    calls: list[tuple[str, Json]] = field(default_factory=list)
    messages: list[Json] = field(default_factory=list)
    """What the bot sent, as it is shown now; an edit changes it."""
    faults: dict[str, deque[int | str]] = field(default_factory=dict)
    """By method, for the requests to come: a status, `before`, `after`, or `slow` (Telegram)."""
    lock: threading.Condition = field(default_factory=threading.Condition)

    def channel(self, house: Skillhouse, webhook: str = "") -> ChatChannel:
        """Return what the bot talks with; with a webhook where the service has such a thing."""
        raise NotImplementedError

    def wait(self: S, wanted: Callable[[S], Any], seconds: float = 30) -> Any:
        """Wait until something is so, and return it."""
        end = time.monotonic() + seconds
        with self.lock:
            while not (found := wanted(self)):
                left = end - time.monotonic()
                assert left > 0, f"not seen in {seconds} s; sent: {self.texts()}"
                self.lock.wait(left)
        return found

    def texts(self, chat: int | None = None) -> list[str]:
        return [one["text"] for one in self.messages if chat is None or one["chat"]["id"] == chat]

    def said(self, part: str, *, chat: int | None = None, seconds: float = 30) -> Json:
        """Wait for a message of the bot with a text in it, and return the newest."""
        found = self.wait(
            lambda one: [
                message
                for message in one.messages
                if part in message["text"] and chat in (None, message["chat"]["id"])
            ],
            seconds,
        )
        made: Json = found[-1]
        return made

    def of(self, method: str) -> list[Json]:
        return [payload for name, payload in self.calls if name == method]

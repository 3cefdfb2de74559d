"""The chats that a Discord bot knows, and up to which message each was read."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

import discord

from skillhouse.extensions.channels.discord_connection import DiscordClient
from skillhouse.floor.regex import regex
from skillhouse.floor.threads import in_thread

CHANNEL = "discord"
CHAT_ID = regex(r"[0-9]{1,20}")
KEEP_SECONDS = 60.0
"""How often positions are stored that moved by messages to others."""
DIRECT_MAX = 20
"""People of the allow-list whose direct chats are opened before anything else at a start."""
SINCE = "@"
"""Among the positions: when a bot of this state was started first."""

logger = logging.getLogger(__name__)


class KnownChats(Protocol):
    """Keeps up to where each chat was read; a mailbox does."""

    def positions(self, channel: str) -> dict[str, str]: ...

    def keep_positions(self, channel: str, positions: Mapping[str, str]) -> None: ...


class KnownPositions:
    """The last message that was stored of each chat, also where people may write first."""

    def __init__(self, chats: KnownChats, allow: frozenset[str]) -> None:
        """Take where they are kept, and the entries of `allow`."""
        self._chats = chats
        self._people = _ids(allow, "discord:")
        self._allowed = _ids(allow, "discord:chat:")
        self._kept: dict[str, str] = {}
        self._unkept: dict[str, str] = {}
        """Those that are in memory alone."""
        self._kept_at = time.monotonic()

    async def begin(self, client: DiscordClient) -> None:
        """Read them, and know where allowed people may write first, so that it may be in a gap.

        The service has no list of a bot's direct chats.
        """
        self._kept = await in_thread(lambda: self._chats.positions(CHANNEL))
        now = str(discord.utils.time_snowflake(datetime.now(UTC)))
        new = [chat for chat in self._allowed if chat not in self._kept]
        self._unkept = {**dict.fromkeys(new, now), SINCE: self._kept.get(SINCE, now)}
        for user in self.unknown()[:DIRECT_MAX]:
            await self.open_direct(client, user)
        await self.keep()

    def unknown(self) -> list[str]:
        """Return the people whose direct chat is not known."""
        return [user for user in self._people if f"@{user}" not in self]

    async def open_direct(self, client: DiscordClient, user: str) -> str:
        """Open the direct chat with a person; return its id if nothing was known of it."""
        try:
            chat = str((await client.create_dm(discord.Object(int(user)))).id)
        except discord.HTTPException as error:
            logger.info("no direct chat with %s: status %s", user, error.status)
            return ""
        is_known = chat in self
        self._unkept[f"@{user}"] = chat
        if is_known:
            return ""
        # Whoever wrote there since there is a bot may have done so while none ran.
        self._unkept[chat] = self.position(SINCE)
        return chat

    def __contains__(self, chat: object) -> bool:
        return chat in self._kept or chat in self._unkept

    def position(self, chat: str) -> str:
        """Return the last message of a chat; empty where it is not known."""
        return self._unkept.get(chat) or self._kept.get(chat, "")

    def all(self) -> dict[str, str]:
        """Return them by chat."""
        return {**self._kept, **self._unkept}

    def move(self, chat: str, message: int) -> None:
        """Note that a message of a chat was stored; none goes back."""
        self._unkept[chat] = str(max(int(self.position(chat) or 0), message))

    @property
    def is_due(self) -> bool:
        """Whether those that moved by messages to others are to be kept."""
        return time.monotonic() - self._kept_at > KEEP_SECONDS

    async def keep(self) -> None:
        kept, self._unkept = self._unkept, {}
        self._kept_at = time.monotonic()
        self._kept |= kept
        if kept:
            await in_thread(lambda: self._chats.keep_positions(CHANNEL, kept))


def _ids(allow: frozenset[str], prefix: str) -> list[str]:
    found = [entry.removeprefix(prefix) for entry in sorted(allow) if entry.startswith(prefix)]
    return [one for one in found if CHAT_ID.fullmatch(one)]

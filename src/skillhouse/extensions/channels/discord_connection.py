"""The connection to Discord: the client of discord.py, its server, and what its faults are."""

from __future__ import annotations

import asyncio
import enum
import ssl
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import discord
from aiohttp.abc import AbstractResolver, ResolveResult

from skillhouse.extensions.channels.chat_channel import BusyChannelError, ChannelError
from skillhouse.floor import ConfigError

LIMIT_MAX_SECONDS = 30.0
"""A longer wait at a limit is an error of the library, which waits itself for a shorter one."""
RETRY_SECONDS = 3.0
"""How long to wait after a fault of the network or the service."""
WAIT_MAX_SECONDS = 3_600.0
"""Longest wait that the service may ask for."""
FILE_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")
"""Where Discord has attachments."""
FAULTS = (discord.DiscordException, aiohttp.ClientError, OSError)
_HOSTS = ("discord.com", "discord.gg", *FILE_HOSTS)
_TOO_LARGE = 413


class SessionMark(enum.Enum):
    """What is between two messages."""

    NEW = enum.auto()
    """The history of all known chats is to be read."""
    SAME = enum.auto()
    """What could not be read of it is to be tried again."""


class DiscordClient(discord.Client):
    """Passes on what comes: messages and gaps in their order, and presses beside them."""

    def __init__(self, *, connector: aiohttp.TCPConnector, **more: Any) -> None:
        super().__init__(connector=connector, **more)
        self.connector = connector
        """Connects with the certificates, and to the server, of all else; the client closes it."""
        self.came: asyncio.Queue[discord.Message | SessionMark] = asyncio.Queue()
        self.pressed: asyncio.Queue[discord.Interaction[Any]] = asyncio.Queue()

    async def on_connect(self) -> None:
        """Note that a session began; there is none before it, or one that was not resumed."""
        self.came.put_nowait(SessionMark.NEW)

    def read_gaps_in(self, seconds: float) -> None:
        self.loop.call_later(seconds, self.came.put_nowait, SessionMark.SAME)

    async def on_message(self, message: discord.Message) -> None:
        self.came.put_nowait(message)

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        self.pressed.put_nowait(interaction)


def discord_client(place: tuple[str, int] | None) -> DiscordClient:
    """Return a client, which connects to this host and port in place of Discord's."""
    # Else the library warns that it has nothing for voice, which is not used here.
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    intents.message_content = True
    resolver = None if place is None else _OneServer(*place)
    # The certificates of this machine, with those of `SSL_CERT_FILE`.
    context = ssl.create_default_context()
    return DiscordClient(
        intents=intents,
        connector=aiohttp.TCPConnector(limit=0, ssl=context, resolver=resolver),
        max_messages=None,
        member_cache_flags=discord.MemberCacheFlags.none(),
        chunk_guilds_at_startup=False,
        # A server that comes later is asked for by its chat.
        guild_ready_timeout=0.5,
        allowed_mentions=discord.AllowedMentions.none(),
        max_ratelimit_timeout=LIMIT_MAX_SECONDS,
    )


class _OneServer(AbstractResolver):
    """Finds one server behind every name of Discord; its certificate has to be that name's."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        if not any(host == one or host.endswith(f".{one}") for one in _HOSTS):
            return await self._resolver.resolve(host, port, family)
        found = await self._resolver.resolve(self._host, self._port, family)
        return [{**one, "hostname": host, "port": self._port} for one in found]

    async def close(self) -> None:
        await self._resolver.close()


def server_place(server: str) -> tuple[str, int]:
    """Return host and port of an address; ConfigError: it is not one with https."""
    try:
        parts = urlsplit(server)
        place = parts.hostname or "", parts.port or 443
    except ValueError:
        parts, place = urlsplit(""), ("", 0)
    if parts.scheme != "https" or not place[0] or parts.path not in ("", "/"):
        raise ConfigError(
            "expected an address with https in `server` of `[bot.discord]`, such as "
            "`https://gateway.example:8443`",
            key="bot.discord.server",
        )
    return place


def channel_error(error: Exception, text: str, *, is_sending: bool = False) -> ChannelError:
    """Return the error of the channel for one of `FAULTS`, with a text that has no secret."""
    if isinstance(error, discord.RateLimited):
        return BusyChannelError(text, seconds=min(error.retry_after, WAIT_MAX_SECONDS))
    if isinstance(error, discord.HTTPException) and error.status == 429:
        return BusyChannelError(text, seconds=_seconds(error))
    if isinstance(error, discord.HTTPException) and error.status == _TOO_LARGE:
        return ChannelError("it is larger than what Discord takes in this chat")
    is_refused = isinstance(error, discord.DiscordException)
    if is_refused and not isinstance(error, discord.DiscordServerError):
        return ChannelError(text)
    is_unknown = is_sending and not isinstance(error, aiohttp.ClientConnectorError)
    return BusyChannelError(text, seconds=RETRY_SECONDS, is_unknown=is_unknown)


def _seconds(error: discord.HTTPException) -> float:
    """Return how long a refusal at a limit says to wait, in bounds."""
    try:
        given = float(error.response.headers.get("Retry-After", ""))
    except ValueError:
        given = RETRY_SECONDS
    return min(max(given, 1.0), WAIT_MAX_SECONDS)

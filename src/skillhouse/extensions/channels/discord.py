"""Discord as a channel: its gateway and REST API by discord.py.

The gateway has no acknowledgement: a message counts as taken once it is stored here. What came
while there was no session is read from the history of each known chat, after the last message that
was taken there.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio
import discord
from discord.abc import Messageable

from skillhouse.extensions.channels.chat_channel import (
    BusyChannelError,
    ChannelError,
    ChatFile,
    ChatUpdate,
    Outgoing,
    TakeUpdates,
)
from skillhouse.extensions.channels.chat_text import discord_code, discord_markdown, discord_text
from skillhouse.extensions.channels.discord_chats import CHAT_ID, KnownChats, KnownPositions
from skillhouse.extensions.channels.discord_connection import (
    FAULTS,
    RETRY_SECONDS,
    DiscordClient,
    SessionMark,
    channel_error,
    discord_client,
    server_place,
)
from skillhouse.extensions.channels.discord_files import (
    FILE_SECONDS,
    RECEIVED_MAX,
    SENT_MAX,
    fetch_attachment,
    file_to_send,
    files_of,
    place_of,
)
from skillhouse.floor import ConfigError
from skillhouse.floor.regex import regex

SERVICE_MAX = 2_000
"""Characters of a message at most, for the service."""
TEXT_MAX = 1_900
"""The same of a text before its special characters are escaped."""
TYPING_SECONDS = 8.0
"""How often the typing indication is renewed, which ends after ten."""
SEND_SECONDS = 15.0
"""How long one message may hold the others up, with the waiting of the library at a limit."""
HISTORY_DAYS = 7
"""How old a message may be that is read from the history."""
GAP_MAX_SECONDS = 60.0
"""Longest time until the history is asked for again where the service has faults."""
PAGE = 100
RECENT_MAX = 5_000
"""Messages of this process that are known again, as those of history that come live too."""
DIRECT_SECONDS = 10.0
"""Between the direct chats of two further people."""
NONCE_MAX = 25
CLOSING_SECONDS = 0.25
_TOKEN = regex(r"[A-Za-z0-9_-]{4,100}\.[A-Za-z0-9_-]{4,100}\.[A-Za-z0-9_-]{4,200}")
INTENT_ADVICE = (
    "Discord refuses the message content intent: in the developer portal open your application, "
    "page Bot, switch on `Message Content Intent` under Privileged Gateway Intents, save, and "
    "start the bot again"
)
_CLOSED = {
    4004: "Discord does not know the bot's token; page Bot of the developer portal gives a new one",
    4011: "this bot is in too many servers for one connection (sharding), which is not built",
}
"""What the gateway says when it closes for good (Gateway close event codes)."""

logger = logging.getLogger(__name__)


class DiscordChannel:
    """One bot of Discord; its token is in no message, log or error."""

    name = "discord"
    text_max = TEXT_MAX
    marks_repeats = False
    received_max = RECEIVED_MAX
    sent_max = SENT_MAX

    def __init__(
        self, token: str, *, server: str = "", chats: KnownChats, allow: frozenset[str]
    ) -> None:
        """Store the token, an address to connect to in place of Discord's, and what is known.

        ConfigError: the token has not the form of one, or the address is not one with https.
        """
        if not _TOKEN.fullmatch(token):
            raise ConfigError(
                "expected a token as page Bot of the developer portal gives it: three parts with "
                "dots between, and no `Bot` before it",
                key="bot.discord.token",
            )
        self._server = server_place(server) if server else None
        self._token = token
        self._known = KnownPositions(chats, allow)
        self._gaps: dict[str, str] = {}
        """Chats whose history was not read to its end since the session began, and from where."""
        self._gap_seconds = RETRY_SECONDS
        self._recent: dict[int, None] = {}
        self._presses: dict[str, discord.Interaction[Any]] = {}
        self._shown: dict[str, float] = {}
        """When progress was shown in a chat last."""
        self._client: DiscordClient | None = None

    async def start(self) -> str:
        """Connect, and return `@name`. ConfigError: Discord does not know the token."""
        client = self._client = discord_client(self._server)
        try:
            await client.login(self._token)
            await self._known.begin(client)
        except discord.LoginFailure as error:
            raise ConfigError(_CLOSED[4004], key="bot.discord") from error
        except FAULTS as error:
            # A later try makes a client of its own.
            await client.close()
            raise self._problem(error) from error
        return f"@{client.user.name}" if client.user else "@"

    async def _know_others(self, client: DiscordClient) -> None:
        """Open the direct chats of further people slowly: the service stops who opens many."""
        for user in self._known.unknown():
            await anyio.sleep(DIRECT_SECONDS)
            try:
                chat = await self._known.open_direct(client, user)
            except FAULTS as error:
                logger.info("no direct chat with %s: %s", user, self._problem(error))
                continue
            if chat:
                self._gaps[chat] = self._known.position(chat)
                client.read_gaps_in(0)
            await self._known.keep()

    async def listen(self, take: TakeUpdates) -> None:
        client = self._connected()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._store_messages, client, take)
            tasks.start_soon(self._stay_connected, client)
            tasks.start_soon(self._know_others, client)
            # At once and side by side: the service waits three seconds for what is said to one.
            while True:
                tasks.start_soon(self._take_press, take, await client.pressed.get())

    async def _stay_connected(self, client: DiscordClient) -> None:
        while True:
            try:
                # It resumes sessions, and waits longer and longer between its tries.
                await client.connect()
            except discord.PrivilegedIntentsRequired as error:
                raise ConfigError(INTENT_ADVICE, key="bot.discord") from error
            except discord.ConnectionClosed as error:
                why = _CLOSED.get(error.code or 0, f"Discord closed the gateway ({error.code})")
                raise ConfigError(why, key="bot.discord") from error
            except AttributeError:
                # The library reads the state of a first connection that was never made.
                if cast("Any", client).ws is not None:
                    raise
                logger.warning("no connection to Discord; it is tried again")
                await anyio.sleep(RETRY_SECONDS)
            else:
                raise ChannelError("the connection to Discord was closed")

    async def _store_messages(self, client: DiscordClient, take: TakeUpdates) -> None:
        """Store what comes, in order; where there was a gap, what came in it first."""
        while True:
            batch = [await client.came.get()]
            while len(batch) < PAGE and not client.came.empty():
                batch.append(client.came.get_nowait())
            messages: list[discord.Message] = []
            for one in batch:
                if isinstance(one, SessionMark):
                    await self._take(take, messages)
                    messages = []
                    if one is SessionMark.NEW:
                        self._gaps = self._known.all()
                        self._gap_seconds = RETRY_SECONDS
                    await self._read_gaps(client, take)
                # The history of its chat has it too, in its place; a stop waits for nothing.
                elif str(one.channel.id) not in self._gaps or self._is_command(one):
                    messages.append(one)
            await self._take(take, messages)

    async def _take_press(self, take: TakeUpdates, pressed: discord.Interaction[Any]) -> None:
        if (one := _press(pressed)) is None:
            return
        self._presses[one.press] = pressed
        try:
            await take([one])
        finally:
            del self._presses[one.press]

    async def _take(self, take: TakeUpdates, messages: Sequence[discord.Message]) -> None:
        new = [one for one in messages if one.id not in self._recent]
        if not new:
            return
        updates = [update for one in new if (update := self._incoming(one))]
        await take(updates)
        called = {update.chat for update in updates if update.is_for_us}
        for message in new:
            self._recent[message.id] = None
            chat = str(message.channel.id)
            # A chat is known from when the bot was called in it.
            if chat not in self._gaps and (chat in called or chat in self._known):
                self._known.move(chat, message.id)
        while len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        # INVARIANT: what is before a position was stored.
        if called or self._known.is_due:
            await self._known.keep()

    async def _read_gaps(self, client: DiscordClient, take: TakeUpdates) -> None:
        """Take what was written in the known chats while there was no session."""
        await client.wait_until_ready()
        for chat in list(self._gaps):
            try:
                if CHAT_ID.fullmatch(chat):
                    await self._read_chat(client, take, chat)
            except FAULTS as error:
                problem = self._problem(error)
                if isinstance(problem, BusyChannelError):
                    seconds = max(problem.seconds, self._gap_seconds)
                    logger.warning("no history of chat %s yet: %s", chat, problem)
                    # At the end, so that it holds no other chat up.
                    self._gaps[chat] = self._gaps.pop(chat)
                    client.read_gaps_in(seconds)
                    self._gap_seconds = min(self._gap_seconds * 2, GAP_MAX_SECONDS)
                    return
                logger.warning("chat %s has no history for the bot: %s", chat, problem)
            del self._gaps[chat]
        await self._known.keep()

    async def _read_chat(self, client: DiscordClient, take: TakeUpdates, chat: str) -> None:
        oldest = discord.utils.time_snowflake(datetime.now(UTC) - timedelta(days=HISTORY_DAYS))
        after = max(oldest, int(self._gaps[chat]))
        with anyio.fail_after(SEND_SECONDS):
            channel = client.get_channel(int(chat)) or await client.fetch_channel(int(chat))
        # A direct chat does not say which its last one is.
        last = getattr(channel, "last_message_id", math.inf) or 0
        if last <= after or not isinstance(channel, Messageable):
            return
        # The library asks for a hundred at a time.
        found = channel.history(limit=None, after=discord.Object(after), oldest_first=True)
        while True:
            with anyio.fail_after(SEND_SECONDS):
                page = [one async for one in _first(found, PAGE)]
            await self._take(take, page)
            if not page:
                return
            # Where a later page fails, this one is not read again.
            self._gaps[chat] = str(page[-1].id)
            self._known.move(chat, page[-1].id)

    async def send(self, message: Outgoing, key: str) -> str:
        self._shown.pop(message.chat, None)
        write = discord_text if message.is_plain else discord_markdown
        # A file may come without a text.
        text = _fitting(write(message.text), message.text) if message.text else None
        more: dict[str, Any] = {}
        if message.buttons:
            view = more["view"] = discord.ui.View(timeout=None)
            for label, data in message.buttons:
                view.add_item(discord.ui.Button(label=label, custom_id=data))
            # The library keeps no view that is stopped: presses are looked up here.
            view.stop()
        chat = self._chat(message.chat)
        if message.reply_to:
            more["reference"] = chat.get_partial_message(int(message.reply_to)).to_reference(
                fail_if_not_exists=False
            )
        seconds = SEND_SECONDS
        if message.file is not None:
            more["file"], seconds = await file_to_send(message.file), FILE_SECONDS
        try:
            with anyio.fail_after(seconds):
                sent = await chat.send(
                    text,
                    # The service returns the message that has it already (`enforce_nonce`).
                    nonce=key[:NONCE_MAX] or secrets.token_urlsafe(12),
                    suppress_embeds=True,
                    allowed_mentions=discord.AllowedMentions.none(),
                    **more,
                )
        except FAULTS as error:
            raise self._problem(error, is_sending=True) from error
        return str(sent.id)

    async def fetch(self, file: ChatFile, write: Callable[[bytes], None]) -> None:
        chat, number, attachment = place_of(file)
        try:
            with anyio.fail_after(SEND_SECONDS):
                message = await self._chat(chat).fetch_message(number)
        except FAULTS as error:
            raise self._problem(error) from error
        await fetch_attachment(message, attachment, write, self._connected().connector)

    async def edit(self, chat: str, message: str, text: str) -> None:
        try:
            await (
                self._chat(chat)
                .get_partial_message(int(message))
                .edit(
                    content=_fitting(discord_text(text), text),
                    view=None,
                    allowed_mentions=discord.AllowedMentions.none(),
                )
            )
        except FAULTS as error:
            raise self._problem(error) from error

    async def show_progress(self, chat: str, text: str, *, number: int, is_private: bool) -> None:
        """Show that the bot types.

        Not how the answer begins: a message that is edited while the answer is made would be there
        half made when the bot ends, and the answer once more.
        """
        del text, number, is_private
        now = time.monotonic()
        if now - self._shown.get(chat, -math.inf) < TYPING_SECONDS:
            return
        self._shown[chat] = now
        try:
            with anyio.fail_after(SEND_SECONDS):
                await self._chat(chat).typing()
        except FAULTS as error:
            # The answer itself comes all the same.
            logger.info("no progress was shown: %s", self._hidden(error))

    async def say_to_presser(self, press: str, text: str) -> None:
        interaction = self._presses.get(press)
        if interaction is None:
            raise ChannelError("the press of this button is too old")
        try:
            await interaction.response.defer()
            await interaction.followup.send(
                discord_text(text),
                ephemeral=True,
                suppress_embeds=True,
                allowed_mentions=discord.AllowedMentions.none(),
            )
        except FAULTS as error:
            # Whoever has the token of a press may say things as the bot for 15 minutes.
            raise self._problem(error, hidden=interaction.token) from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            await self._known.keep()
            # Connections with TLS end some rounds of the loop later (aiohttp, "Graceful shutdown").
            await anyio.sleep(CLOSING_SECONDS)

    def _connected(self) -> DiscordClient:
        if self._client is None:
            raise ChannelError("the bot of Discord was not started")
        return self._client

    def _chat(self, chat: str) -> discord.PartialMessageable:
        return self._connected().get_partial_messageable(int(chat))

    def _incoming(self, message: discord.Message) -> ChatUpdate | None:
        is_said = message.type in (discord.MessageType.default, discord.MessageType.reply)
        files = files_of(message)
        if not is_said or message.author.bot or message.webhook_id:
            return None
        if not message.content and not files:
            return None
        is_private = message.guild is None
        return ChatUpdate(
            key=str(message.id),
            chat=str(message.channel.id),
            user=str(message.author.id),
            name=message.author.display_name,
            text=self._without_name(message),
            message=str(message.id),
            is_private=is_private,
            is_for_us=is_private or self._is_for_us(message),
            files=files,
        )

    def _is_command(self, message: discord.Message) -> bool:
        return self._without_name(message).startswith("/")

    def _is_for_us(self, message: discord.Message) -> bool:
        us = self._connected().user
        replied = message.reference.resolved if message.reference else None
        is_reply = isinstance(replied, discord.Message) and replied.author == us
        return is_reply or any(name in message.content for name in self._names(message))

    def _names(self, message: discord.Message) -> tuple[str, ...]:
        """Return what calls the bot: its mention, and that of the role that is its own."""
        us = self._connected().user
        if us is None:
            return ()
        roles = [one for one in message.role_mentions if one.tags and one.tags.bot_id == us.id]
        return f"<@{us.id}>", f"<@!{us.id}>", *(role.mention for role in roles)

    def _without_name(self, message: discord.Message) -> str:
        """Return a text without what calls the bot at its beginning."""
        text = message.content.strip()
        for name in self._names(message):
            text = text.removeprefix(name).strip()
        return text

    def _problem(
        self, error: Exception, *, is_sending: bool = False, hidden: str = ""
    ) -> ChannelError:
        """Return what a fault of the library or the network is to the gateway."""
        text = self._hidden(error)
        if hidden:
            text = text.replace(hidden, "[token]")
        return channel_error(error, text, is_sending=is_sending)

    def _hidden(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        return text.replace(self._token, "[token]")


def _fitting(written: str, text: str) -> str:
    """Return what was written of a text, or else a block of code, which needs no escapes."""
    is_fitting = written.strip() and len(written) <= SERVICE_MAX
    return written if is_fitting else discord_code(text)[:SERVICE_MAX]


async def _first(
    found: AsyncIterator[discord.Message], count: int
) -> AsyncIterator[discord.Message]:
    """Yield the next of them, at most so many."""
    for _ in range(count):
        try:
            yield await anext(found)
        except StopAsyncIteration:
            return


def _press(interaction: discord.Interaction[Any]) -> ChatUpdate | None:
    data = cast("dict[str, Any]", interaction.data or {})
    button = str(data.get("custom_id") or "")
    if interaction.type is not discord.InteractionType.component or not button:
        return None
    message = interaction.message
    return ChatUpdate(
        key=f"press.{interaction.id}",
        chat=str(interaction.channel_id or ""),
        user=str(interaction.user.id),
        name=interaction.user.display_name,
        message=str(message.id) if message is not None else "",
        is_private=interaction.guild_id is None,
        button=button,
        press=str(interaction.id),
    )

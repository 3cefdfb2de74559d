"""Telegram as a channel: the Bot API by python-telegram-bot, with long polling of our own.

The library's `Updater` confirms updates that it only has in memory; here an update is confirmed by
the next `getUpdates` after it was stored (Bot API, `getUpdates`, `offset`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import httpx
from telegram import (
    Bot,
    BotCommand,
    CallbackQuery,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    Message,
    ReplyParameters,
    Update,
)
from telegram.constants import ChatAction, ChatType, FileSizeLimit, MessageLimit, ParseMode
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import HTTPXRequest

from skillhouse.extensions.channels.chat_channel import (
    BusyChannelError,
    ChannelError,
    ChatFile,
    ChatUpdate,
    Outgoing,
    OutgoingFile,
    TakeUpdates,
)
from skillhouse.extensions.channels.chat_text import telegram_html
from skillhouse.extensions.chat.model_choice import is_loopback
from skillhouse.floor import ConfigError, needs_extra
from skillhouse.floor.regex import regex
from skillhouse.floor.threads import in_thread

if TYPE_CHECKING:
    from skillhouse.extensions.channels.telegram_webhook import TelegramWebhook

SERVER = "https://api.telegram.org"
POLL_SECONDS = 50
"""How long a request for updates waits for one."""
RETRY_SECONDS = 3.0
"""How long to wait after a fault of the network."""
PROGRESS_SECONDS = 1.0
"""Least time between two drafts of an answer (Bot FAQ: about one message a second a chat)."""
TYPING_SECONDS = 4.0
"""How often the typing indication is renewed, which ends after five (`sendChatAction`)."""
SENDING_MAX = 32
"""Requests at once: progress of many conversations must not hold up what is sent."""
FILE_SECONDS = 300.0
"""How long sending a file may take."""
TEXT_MAX = int(MessageLimit.MAX_TEXT_LENGTH)
_TOKEN = regex(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
ALLOWED_UPDATES = ["message", "callback_query"]

logger = logging.getLogger(__name__)


class TelegramChannel:
    """One bot of Telegram; its token is in no message, log or error."""

    name = "telegram"
    text_max = TEXT_MAX
    marks_repeats = True
    received_max = int(FileSizeLimit.FILESIZE_DOWNLOAD)
    sent_max = int(FileSizeLimit.FILESIZE_UPLOAD)

    def __init__(
        self,
        token: str,
        *,
        base_url: str = "",
        commands: Mapping[str, str],
        webhook: str = "",
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        """Store the token, the address of another Bot API server, and the menu of commands.

        With `webhook`, Telegram brings updates to that address, which leads to `listen`.

        ConfigError: the token has not the form of one, or would go over a network in the clear.
        """
        if not _TOKEN.fullmatch(token):
            raise ConfigError(
                "expected a token as BotFather gives it, such as `123456:ABC-DEF`",
                key="bot.telegram.token",
            )
        if base_url and not (base_url.startswith("https://") or is_loopback(base_url)):
            raise ConfigError(
                "expected an address with https, or of this machine, in `server` of "
                "`[bot.telegram]`: the token is part of each request",
                key="bot.telegram.server",
            )
        if webhook and not (webhook.startswith("https://") or is_loopback(webhook)):
            raise ConfigError(
                "expected an address with https in `webhook` of `[bot.telegram]`",
                key="bot.telegram.webhook",
            )
        self._webhook: TelegramWebhook | None = None
        if webhook:
            with needs_extra("server"):
                from skillhouse.extensions.channels.telegram_webhook import (  # noqa: PLC0415
                    TelegramWebhook,
                )
            self._webhook = TelegramWebhook(webhook, listen)
        # Else the library warns, at each limit, of the type that it will have one day.
        os.environ.setdefault("PTB_TIMEDELTA", "true")
        self._token = token
        self._commands = [BotCommand(name, what) for name, what in commands.items()]
        self._own = frozenset(commands)
        server = base_url or SERVER
        polling = HTTPXRequest(
            connection_pool_size=2, read_timeout=POLL_SECONDS + 10, http_version="1.1"
        )
        # What waits for a connection and gives up may take it along: nothing gives up early.
        sending = HTTPXRequest(
            connection_pool_size=SENDING_MAX,
            http_version="1.1",
            pool_timeout=120,
            connect_timeout=30,
            read_timeout=30,
        )
        self._bot = Bot(
            token,
            base_url=f"{server}/bot",
            base_file_url=f"{server}/file/bot",
            request=sending,
            get_updates_request=polling,
        )
        self._files = f"{server}/file/bot{token}"
        self._http = httpx.AsyncClient(timeout=30, follow_redirects=False)
        self._username = ""
        self._id = 0
        self._shown: dict[str, tuple[float, str]] = {}
        """When progress was shown in a chat last, and what."""

    async def start(self) -> str:
        """Connect, and return `@name`. ConfigError: Telegram does not know the token."""
        try:
            await self._bot.initialize()
            me = await self._bot.get_me()
            if self._commands:
                await self._bot.set_my_commands(self._commands)
            if self._webhook is None:
                # With a webhook there are no updates to ask for.
                await self._bot.delete_webhook()
        except InvalidToken as error:
            raise ConfigError(
                "Telegram does not know the bot's token; BotFather gives it", key="bot.telegram"
            ) from error
        except TelegramError as error:
            self._raise(error, is_sending=False)
        self._username, self._id = me.username or "", me.id
        return f"@{self._username}"

    async def listen(self, take: TakeUpdates) -> None:
        if self._webhook is not None:
            await self._listen_for(self._webhook, take)
            return
        offset: int | None = None
        while True:
            try:
                updates = await self._bot.get_updates(
                    offset=offset,
                    timeout=timedelta(seconds=POLL_SECONDS),
                    allowed_updates=ALLOWED_UPDATES,
                )
            except RetryAfter as error:
                await anyio.sleep(_seconds(error))
                continue
            except TelegramError as error:
                logger.warning("no updates from Telegram: %s", self._hidden(error))
                await anyio.sleep(RETRY_SECONDS)
                continue
            if updates:
                await take([one for update in updates if (one := self._incoming(update))])
                # INVARIANT: what is confirmed was stored.
                offset = updates[-1].update_id + 1

    async def _listen_for(self, webhook: TelegramWebhook, take: TakeUpdates) -> None:
        async def take_one(given: dict[str, Any]) -> None:
            update = Update.de_json(given, self._bot)
            if (one := self._incoming(update)) is not None:
                await take([one])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(webhook.serve, take_one)
            while True:
                try:
                    # One at a time: several would come out of their order.
                    await self._bot.set_webhook(
                        webhook.url,
                        secret_token=webhook.secret,
                        allowed_updates=ALLOWED_UPDATES,
                        max_connections=1,
                    )
                    break
                except TelegramError as error:
                    try:
                        self._raise(error, is_sending=False)
                    except BusyChannelError as busy:
                        logger.warning("no webhook at Telegram: %s", busy)
                        await anyio.sleep(busy.seconds)

    async def send(self, message: Outgoing, key: str) -> str:
        self._shown.pop(message.chat, None)
        markup = None
        if message.buttons:
            row = [InlineKeyboardButton(text, callback_data=data) for text, data in message.buttons]
            markup = InlineKeyboardMarkup([row[:2], row[2:]] if len(row) > 2 else [row])
        more: dict[str, Any] = {
            "reply_markup": markup,
            "link_preview_options": LinkPreviewOptions(is_disabled=True),
        }
        if message.reply_to:
            more["reply_parameters"] = ReplyParameters(
                int(message.reply_to), allow_sending_without_reply=True
            )
        try:
            try:
                sent = await self._send_text(int(message.chat), message, more)
            except ChatMigrated as error:
                # The group became a supergroup since.
                sent = await self._send_text(error.new_chat_id, message, more)
        except TelegramError as error:
            self._raise(error, is_sending=True)
        return str(sent.message_id)

    async def _send_text(self, chat: int, message: Outgoing, more: dict[str, Any]) -> Message:
        if message.file is not None:
            return await self._send_file(chat, message, message.file, more)
        if message.is_plain:
            return await self._bot.send_message(chat, message.text, **more)
        try:
            text = telegram_html(message.text)
            return await self._bot.send_message(chat, text, parse_mode=ParseMode.HTML, **more)
        except BadRequest as error:
            if "entit" not in str(error).lower():
                raise
            # What Telegram cannot read as HTML goes as it was written.
            return await self._bot.send_message(chat, message.text, **more)

    async def _send_file(
        self, chat: int, message: Outgoing, file: OutgoingFile, more: dict[str, Any]
    ) -> Message:
        try:
            data = await in_thread(Path(file.path).read_bytes)
        except OSError as error:
            raise ChannelError(f"the file to send is gone: {error.strerror}") from error
        more = {name: value for name, value in more.items() if name != "link_preview_options"}
        return await self._bot.send_document(
            chat,
            data,
            caption=message.text or None,
            filename=file.name,
            disable_content_type_detection=True,
            write_timeout=FILE_SECONDS,
            **more,
        )

    async def fetch(self, file: ChatFile, write: Callable[[bytes], None]) -> None:
        try:
            found = await self._bot.get_file(file.id)
        except TelegramError as error:
            self._raise(error, is_sending=False)
        place = found.file_path or ""
        # A server of one's own may name a file of its machine; the library would take ours.
        if not place.startswith(f"{self._files}/"):
            raise ChannelError("the service gives this file by no address")
        try:
            async with self._http.stream("GET", place) as answer:
                if answer.status_code != 200:
                    raise BusyChannelError(
                        f"a file was answered with status {answer.status_code}",
                        seconds=RETRY_SECONDS,
                    )
                async for part in answer.aiter_bytes():
                    write(part)
        except httpx.HTTPError as error:
            # Its text may have the address, and so the token.
            message = f"a file could not be fetched ({type(error).__name__})"
            raise BusyChannelError(message, seconds=RETRY_SECONDS) from None

    async def edit(self, chat: str, message: str, text: str) -> None:
        try:
            await self._bot.edit_message_text(
                text, chat_id=int(chat), message_id=int(message), reply_markup=None
            )
        except TelegramError as error:
            if "not modified" not in str(error).lower():
                self._raise(error, is_sending=False)

    async def show_progress(self, chat: str, text: str, *, number: int, is_private: bool) -> None:
        """Show a draft in a private chat (`sendMessageDraft`), elsewhere that the bot types."""
        at, before = self._shown.get(chat, (0.0, ""))
        now = time.monotonic()
        is_draft = is_private and bool(text)
        is_first = is_draft and not before
        least = PROGRESS_SECONDS if is_draft and text != before else TYPING_SECONDS
        if now - at < least and not is_first:
            return
        self._shown[chat] = (now, text)
        try:
            if is_draft:
                await self._bot.send_message_draft(int(chat), number, text[:TEXT_MAX])
            else:
                await self._bot.send_chat_action(int(chat), ChatAction.TYPING)
        except TelegramError as error:
            # The answer itself comes all the same.
            logger.info("no progress was shown: %s", self._hidden(error))

    async def say_to_presser(self, press: str, text: str) -> None:
        try:
            await self._bot.answer_callback_query(press, text[:200])
        except TelegramError as error:
            self._raise(error, is_sending=False)

    async def close(self) -> None:
        if self._webhook is not None:
            # Telegram keeps what comes for a day, and brings it after the next start.
            self._webhook.close()
        await self._http.aclose()
        await self._bot.shutdown()

    def _incoming(self, update: Update) -> ChatUpdate | None:
        if (query := update.callback_query) is not None:
            return _pressed(update, query)
        message = update.message
        if message is None or message.from_user is None or message.from_user.is_bot:
            return None
        is_private = message.chat.type == ChatType.PRIVATE
        text = message.text or message.caption or ""
        moved = message.migrate_from_chat_id
        files = _files_of(message)
        if not text and not moved and not files:
            return None
        return ChatUpdate(
            key=_key(update, message),
            chat=str(message.chat.id),
            user=str(message.from_user.id),
            name=message.from_user.full_name,
            text=self._without_name(text),
            message=str(message.message_id),
            is_private=is_private,
            is_for_us=is_private or self._is_for_us(message),
            moved_from=str(moved) if moved else "",
            files=files,
        )

    def _is_for_us(self, message: Message) -> bool:
        replied = message.reply_to_message
        writer = None if replied is None else replied.from_user
        is_reply = writer is not None and writer.id == self._id
        mention = f"@{self._username}".lower()
        kinds: list[str | None] = ["mention", "bot_command"]
        captioned = message.parse_caption_entities(kinds).values() if message.caption else ()
        named = (*message.parse_entities(kinds).values(), *captioned)
        # One that is ours by its name alone, such as a stop; the service passes on few of these.
        word = (message.text or "").partition(" ")[0].lower()
        if word.startswith("/") and word[1:].replace("-", "_") in self._own:
            return True
        # A command with the bot's name, as in `/new@house_bot`, or the name alone.
        return is_reply or any(
            found.lower().endswith(mention) and found[0] in "/@" for found in named
        )

    def _without_name(self, text: str) -> str:
        """Return a text without the bot's name at its beginning or behind a command."""
        mention = f"@{self._username}"
        if text.lower().startswith(f"{mention.lower()} "):
            return text[len(mention) :].strip()
        head, _, rest = text.partition(" ")
        if head.startswith("/") and head.lower().endswith(mention.lower()):
            return f"{head[: -len(mention)]} {rest}".strip()
        return text

    def _raise(self, error: TelegramError, *, is_sending: bool) -> NoReturn:
        text = self._hidden(error)
        if isinstance(error, RetryAfter):
            raise BusyChannelError(text, seconds=_seconds(error)) from error
        # BadRequest is a NetworkError to the library, and would never be taken.
        if isinstance(error, BadRequest | Forbidden | InvalidToken):
            raise ChannelError(text) from error
        if isinstance(error, NetworkError):
            is_unknown = is_sending and not _was_refused(error)
            raise BusyChannelError(text, seconds=RETRY_SECONDS, is_unknown=is_unknown) from error
        raise ChannelError(text) from error

    def _hidden(self, error: TelegramError) -> str:
        text = str(error).replace(self._token, "[token]")
        return text.replace(self._webhook.secret, "[secret]") if self._webhook else text


def _pressed(update: Update, query: CallbackQuery) -> ChatUpdate | None:
    message = query.message
    if message is None or not query.data:
        return None
    return ChatUpdate(
        key=f"{update.update_id}.{query.id}",
        chat=str(message.chat.id),
        user=str(query.from_user.id),
        name=query.from_user.full_name,
        message=str(message.message_id),
        is_private=message.chat.type == ChatType.PRIVATE,
        button=query.data,
        press=query.id,
    )


def _files_of(message: Message) -> tuple[ChatFile, ...]:
    """Return the one file of a message; those of an album are messages of their own."""
    if message.photo:
        photo = max(message.photo, key=lambda one: one.width * one.height)
        return (ChatFile(id=photo.file_id, name="photo.jpg", size=photo.file_size or 0),)
    named = message.document or message.audio or message.video
    if named is not None:
        name = named.file_name or ""
        return (ChatFile(id=named.file_id, name=name, size=named.file_size or 0),)
    spoken = message.voice or message.video_note
    if spoken is None:
        return ()
    name = "voice.ogg" if message.voice else "video.mp4"
    return (ChatFile(id=spoken.file_id, name=name, size=spoken.file_size or 0),)


def _key(update: Update, message: Message) -> str:
    """Return what no other message has; after a quiet week the numbers of updates may repeat."""
    return f"{update.update_id}.{message.chat.id}.{message.message_id}"


def _seconds(error: RetryAfter) -> float:
    given = error.retry_after
    return given.total_seconds() if isinstance(given, timedelta) else float(given)


def _was_refused(error: NetworkError) -> bool:
    """Whether the request surely did nothing: no connection was made."""
    cause = error.__cause__
    return not isinstance(error, TimedOut) and type(cause).__name__ == "ConnectError"

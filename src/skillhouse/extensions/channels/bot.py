"""Makes the bot of its configuration, and runs it."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TextIO

import anyio

from skillhouse.approval import OWNER
from skillhouse.extensions.channels.bot_lock import BotError, BotLock, only_bot, show_alive
from skillhouse.extensions.channels.channel_questions import ChannelQuestions
from skillhouse.extensions.channels.channel_session import (
    INSTRUCTIONS,
    MENU,
    ChannelScreen,
    ChannelSession,
)
from skillhouse.extensions.channels.chat_channel import ChatChannel, ChatUpdate
from skillhouse.extensions.channels.gateway import Gateway
from skillhouse.extensions.channels.mailbox import Mailbox, SessionKey
from skillhouse.extensions.channels.received_files import ReceivedFiles
from skillhouse.extensions.channels.send_file import FOLDER, SEND_FILE, SendFileTool
from skillhouse.extensions.chat.conversation import ChatConversation
from skillhouse.extensions.chat.model_choice import Wanted, choose_model
from skillhouse.extensions.chat.models import UsableModel, model_of
from skillhouse.extensions.chat.stored_messages import known_secrets
from skillhouse.extensions.chat.transcript import (
    ChatError,
    StoredTranscript,
    Transcript,
    Transcripts,
)
from skillhouse.floor import ConfigError, SkillhouseError, StateError, needs_extra
from skillhouse.floor.regex import regex
from skillhouse.floor.threads import in_thread
from skillhouse.house import BotSettings, Skillhouse, read_secret
from skillhouse.house.config import DiscordSettings, TelegramSettings, callback_of
from skillhouse.presentation.text import counted, one_line
from skillhouse.tiers import is_stop_command

AGAIN_SECONDS = 5.0
"""Between two looks at whether the process that serves the channels has ended."""
_KEY_VARIABLE = "SKILLHOUSE_BOT_KEY"
"""What names the key of a file to the models; it is in no environment of a process."""
RESUME_HERE = (
    "This is not done in a chat: type `skillhouse resume` at a terminal, or use the page of "
    "`skillhouse up`."
)
WANTS_CHANNEL = (
    "no channel is configured; write a table `[bot.telegram]` or `[bot.discord]` with a `token`, "
    "as `skillhouse bot --help` shows"
)
WANTS_MODEL = (
    'no model is named; write `model = "openai:gpt-5"` in `[bot]`, with `base_url` for one of this '
    "machine, or set SKILLHOUSE_CHAT_MODEL"
)

_NAME = regex("[a-z]{1,20}")

logger = logging.getLogger(__name__)


class NoChannelError(ConfigError):
    """No service is configured in which people could write."""


def run_bot(
    house: Skillhouse,
    questions: ChannelQuestions,
    send_file: SendFileTool,
    note: Callable[[str], object],
    errors: TextIO,
) -> int:
    """Serve the channels of the configuration until SIGINT or SIGTERM.

    Args:
        house: Asks through `questions`.
        questions: Gets the channels that are made here.
        send_file: A tool of `house`, which gets them likewise.
        note: Shows a line to the person who started it.
        errors: Where what is logged goes, a line each.

    Raises:
        ConfigError: no channel is configured, or a token or the model cannot be used.
        BotError: another process serves the channels of this state.
    """
    with ExitStack() as stack:
        lock = stack.enter_context(only_bot(house.config.state_directory))
        channels, model = _parts(house)
        stack.enter_context(_logged(errors, house.audit_log.clean))
        _note_strangers(house, note)
        try:
            gateway = gateway_of(house, questions, channels, model, send_file)
            anyio.run(_serve, house, gateway, note, lock)
        except BaseExceptionGroup as group:
            raise _first(group) from group
    return 0


@asynccontextmanager
async def bot_beside(
    house: Skillhouse, send_file: SendFileTool, note: Callable[[str], object]
) -> AsyncIterator[None]:
    """Run the bot meanwhile, beside what serves the same `house` on this event loop.

    What keeps it from running is a line of `note`, and ends nothing else. While another process of
    the state serves the channels, or the state is away, it tries again.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run_beside, house, send_file, note)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _run_beside(
    house: Skillhouse, send_file: SendFileTool, note: Callable[[str], object]
) -> None:
    noted = ""
    while True:
        try:
            return await _run_once(house, send_file, note)
        except (BotError, StateError) as error:
            # Of several servers one is the bot, and another one after it. A state that is away
            # comes back.
            line = f"the bot is not served here: {one_line(str(error))}"
            if line != noted:
                note(line)
            noted = line
        await anyio.sleep(AGAIN_SECONDS)


async def _run_once(
    house: Skillhouse, send_file: SendFileTool, note: Callable[[str], object]
) -> None:
    """Be the bot until its end; BotError if another process is, StateError without the state."""
    questions = ChannelQuestions()
    with ExitStack() as stack:
        try:
            locked = only_bot(house.config.state_directory)
            lock = await in_thread(lambda: stack.enter_context(locked))
            # The models take a second to import, which the page does not wait for.
            channels, model = await in_thread(lambda: _parts(house))
            _note_strangers(house, note)
            house.approvals.channels.append(questions)
            stack.callback(house.approvals.channels.remove, questions)
            gateway = gateway_of(house, questions, channels, model, send_file)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(show_alive, lock)
                await gateway.run(partial(_ready, house, note))
        except NoChannelError:
            return  # Extensions that could bring one have none configured.
        except Exception as error:
            first = _first(error)
            if isinstance(first, BotError | StateError):
                raise first from error
            if not isinstance(first, SkillhouseError):
                logger.exception("the bot ended")
            note(f"the bot is not served here: {one_line(str(first))}")


def _parts(house: Skillhouse) -> tuple[dict[str, ChatChannel], UsableModel]:
    settings = house.config.bot
    house.view(settings.agent)
    model = _model(settings, house)
    return _channels(settings, house), model


def _note_strangers(house: Skillhouse, note: Callable[[str], object]) -> None:
    if not house.config.bot.allow:
        note("`allow` in `[bot]` is empty: people only hear which id to put there")


def _first(error: BaseException) -> BaseException:
    """Return what ended the first task; the others were cancelled by it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def gateway_of(
    house: Skillhouse,
    questions: ChannelQuestions,
    channels: Mapping[str, ChatChannel],
    model: UsableModel,
    send_file: SendFileTool | None = None,
) -> Gateway:
    """Return the gateway of the configuration's `[bot]` for these channels, by name."""
    settings = house.config.bot
    questions.channels = channels
    questions.approvers = frozenset(settings.approvers)
    questions.page = house.config.approvals.page_url
    gateway = Gateway(
        channels,
        Mailbox(house.config.state_directory),
        questions,
        allowed=frozenset(settings.allow),
        make_session=lambda key, known: _session(house, model, key, known),
        at_once=lambda name, one: _at_once(house, name, one),
        received=ReceivedFiles(house.config.places.start),
        files=house.config.state_directory / FOLDER,
        absence=house.services.companion.warning,
        assignees=frozenset(house.config.assignees),
    )
    if send_file is not None:
        send_file.house, send_file.gateway = house, gateway
    return gateway


async def _serve(
    house: Skillhouse, gateway: Gateway, note: Callable[[str], object], lock: BotLock
) -> None:
    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

            async def end() -> None:
                async for _ in signals:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            tasks.start_soon(show_alive, lock)
            try:
                await gateway.run(partial(_ready, house, note))
            finally:
                tasks.cancel_scope.cancel()
    await house.release_loop()


def _ready(house: Skillhouse, note: Callable[[str], object], name: str, called: str) -> None:
    entries = counted(len(house.config.bot.allow), "entry", "entries")
    note(f"{name}: {one_line(called)} answers ({entries} in `allow`); Ctrl-C ends it")


def _channels(settings: BotSettings, house: Skillhouse) -> dict[str, ChatChannel]:
    """Return the channels of the configuration, and those of extensions, by name."""
    found: dict[str, ChatChannel] = {}
    if settings.telegram is not None:
        found["telegram"] = _telegram(settings.telegram, house)
    if settings.discord is not None:
        found["discord"] = _discord(settings.discord, house, settings.allow)
    house.use_extensions()
    for one in house.services.extensions.chat_channels(house.config):
        if isinstance(one, ChatChannel) and _NAME.fullmatch(one.name) and one.name not in found:
            found[one.name] = one
            _hide(house, *getattr(one, "secrets", ()))
        else:
            logger.error("a channel of an extension is not used: %r", one)
    if not found:
        raise NoChannelError(WANTS_CHANNEL, key="bot")
    return found


def _telegram(settings: TelegramSettings, house: Skillhouse) -> ChatChannel:
    with needs_extra("telegram"):
        from skillhouse.extensions.channels.telegram import TelegramChannel  # noqa: PLC0415
    return TelegramChannel(
        _token(settings.token, house, key="bot.telegram.token"),
        base_url=settings.server.rstrip("/"),
        commands=MENU,
        webhook=settings.webhook,
        listen=callback_of(settings.listen),
    )


def _discord(settings: DiscordSettings, house: Skillhouse, allow: Iterable[str]) -> ChatChannel:
    with needs_extra("discord"):
        from skillhouse.extensions.channels.discord import DiscordChannel  # noqa: PLC0415
    return DiscordChannel(
        _token(settings.token, house, key="bot.discord.token"),
        server=settings.server,
        chats=Mailbox(house.config.state_directory),
        allow=frozenset(allow),
    )


def _token(place: str, house: Skillhouse, *, key: str) -> str:
    token = read_secret(place, "the bot's token", house.config.places.environment, key=key)
    _hide(house, token)
    return token


def _hide(house: Skillhouse, *secrets: str) -> None:
    """Keep secrets out of every log, error and record."""
    enforcement = house.services.enforcement
    enforcement.also_secret = (*enforcement.also_secret, *secrets)


def _model(settings: BotSettings, house: Skillhouse) -> UsableModel:
    environment = house.config.places.environment
    variable = settings.key_variable
    if settings.key:
        key = read_secret(settings.key, "the model's key", environment, key="bot.key")
        variable = variable or _KEY_VARIABLE
        environment = {**environment, variable: key}
    named = Wanted(model=settings.model, base_url=settings.base_url, key_variable=variable)
    wanted = choose_model(named, None, environment)
    if not wanted.model:
        raise ConfigError(WANTS_MODEL, key="bot.model")
    model = model_of(wanted, environment)
    _hide(house, *model.secrets)
    return model


def _session(house: Skillhouse, model: UsableModel, key: SessionKey, known: str) -> ChannelSession:
    """Return the conversation of a session: the one with this id, or a new one."""
    kept = Transcripts(house.config.state_directory)
    place = str(house.config.places.start)
    transcript, before = None, None
    if known:
        try:
            transcript, before = kept.resume(kept.find(known, place=place))
        except (ChatError, StateError, OSError) as error:
            logger.warning("a conversation is begun again: %s", error)
    if transcript is None:
        transcript = kept.begin(
            place=place,
            agent=house.config.bot.agent,
            model=model.where,
            base_url="",
            key_variable="",
        )
    try:
        return _opened(house, model, key, transcript, before)
    except BaseException:
        transcript.close()
        raise


def _opened(
    house: Skillhouse,
    model: UsableModel,
    key: SessionKey,
    transcript: Transcript,
    before: StoredTranscript | None,
) -> ChannelSession:
    screen = ChannelScreen()
    environment = house.config.places.environment
    conversation = ChatConversation(
        house,
        model,
        screen,
        session_id=transcript.id,
        agent=house.config.bot.agent,
        user=f"{key.channel}:{key.user}",
        channel=key.channel,
        instructions=INSTRUCTIONS,
        transcript=transcript,
        known=known_secrets(environment, house.services.enforcement.secret_values),
        also=(SEND_FILE,),
    )
    if before is not None:
        conversation.restore(before)
    return ChannelSession(conversation, screen, transcript=transcript.id, close=transcript.close)


async def _at_once(house: Skillhouse, name: str, one: ChatUpdate) -> str:
    """Stop everything where a message says so, whatever else waits; return what to answer."""
    enforcement = house.services.enforcement
    if is_stop_command(one.text, enforcement.policy, channel=name):
        by = f"{name}:{one.user}"
        try:
            report = await in_thread(lambda: enforcement.stop(OWNER, f"{by}: {one.text.strip()}"))
        except SkillhouseError as error:
            return f"The stop could not be written ({error}); the tools of the bot are stopped."
        ended = counted(report.ended, "call")
        return f"Everything is stopped, {ended} ended. It goes on after `skillhouse resume`."
    if one.text.strip().lower() == "/stop":
        return "The tier policy takes no /stop from here; `skillhouse stop` stops everything."
    return RESUME_HERE if one.text.strip().lower() == "/resume" else ""


@contextmanager
def _logged(errors: TextIO, clean: Callable[[str], str]) -> Iterator[None]:
    """Write warnings and errors, a line each, without secrets."""
    handler = _LineHandler(errors, clean)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _LineHandler(logging.Handler):
    def __init__(self, errors: TextIO, clean: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._errors = errors
        self._clean = clean

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        why = f" ({kind.__name__})" if kind is not None else ""
        with suppress(OSError, ValueError):  # The terminal is gone, and there is no other place.
            self._errors.write(f"{one_line(self._clean(record.getMessage()))}{why}\n")
            self._errors.flush()

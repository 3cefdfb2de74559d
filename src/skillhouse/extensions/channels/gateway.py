"""Brings what people write to their conversations, in order, and the answers back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from skillhouse.extensions.channels.channel_questions import ChannelQuestions
from skillhouse.extensions.channels.channel_session import AnswerPart, ChannelSession, SessionAnswer
from skillhouse.extensions.channels.chat_channel import (
    BusyChannelError,
    ChannelError,
    ChatChannel,
    ChatUpdate,
    FileChannel,
    Outgoing,
    OutgoingFile,
)
from skillhouse.extensions.channels.chat_text import messages_of
from skillhouse.extensions.channels.mailbox import (
    AnswerToSend,
    Mailbox,
    SessionKey,
    WaitingUpdate,
)
from skillhouse.extensions.channels.received_files import ReceivedFiles
from skillhouse.extensions.channels.send_file import forget_copies
from skillhouse.floor import StateError
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.presentation.text import one_line

IDLE_SESSIONS_MAX = 50
"""Conversations without a message that are kept in memory."""
PROGRESS_SECONDS = 0.5
STRANGER = "I work for a few people only, and you are not on their list. Your id here is {user}."
TOO_MANY = "Too many of your messages wait for an answer; this one was not taken."
REPEATED = "(perhaps sent twice, as I was interrupted)"
FAILED = "Something failed inside while I answered this; the log has more. Try it again."
KEY_SECONDS = 120.0
"""How long after its first try a service knows a message again: Discord says "a few minutes"."""
ABSENCE_LOOK_SECONDS = 30.0
"""How often it is looked whether the companion app is away."""
AWAY_SOON = (
    "No companion app was open for a while: in {minutes} min only reads go on. Open it to go on."
)
AWAY = "No companion app was open for 30 minutes: only reads go on until one is opened."
WHY_CHARACTERS = 200
UNDONE_MAX = 20
"""Times that an answer is tried again where the service has faults, and not a limit."""
UNDONE_WAIT_MAX = 300.0
"""Longest time until such a try; after the fifth each waits twice as long as the one before."""

STATE_WAITS = (1, 2, 5, 15, 30, 60, 120, 240)
"""Seconds between tries to use the state, when another process holds it or the disk is full."""

T = TypeVar("T")

logger = logging.getLogger(__name__)

MakeSession = Callable[[SessionKey, str], ChannelSession]
"""Makes the conversation of a session, from the id of its transcript, or a new one."""
Immediate = Callable[[str, ChatUpdate], "Awaitable[str]"]
"""Does at once what a message says, if it is one that does not wait; returns what to answer."""


class Gateway:
    """The message router of all channels; one process runs one."""

    def __init__(
        self,
        channels: Mapping[str, ChatChannel],
        mailbox: Mailbox,
        questions: ChannelQuestions,
        *,
        allowed: frozenset[str],
        make_session: MakeSession,
        at_once: Immediate,
        received: ReceivedFiles | None = None,
        files: Path | None = None,
        absence: Callable[[], int | None] = lambda: None,
        assignees: frozenset[str] = frozenset(),
    ) -> None:
        """Store the parts.

        Args:
            channels: By name.
            mailbox: Where messages and answers wait.
            questions: Asks in the chats.
            allowed: Who may write, as `channel:user` or `channel:chat:CHAT`.
            make_session: Makes a conversation.
            at_once: Does what stops everything; it waits for no answer before it.
            received: Stores what people send; None takes no files.
            files: Where the copies are that wait to be sent.
            absence: Returns the minutes until only reads go on since no companion app was open, 0
                once that is so; None where there is nothing to say (S000-110).
            assignees: Who hears of that, as `channel:user`, where they wrote last.
        """
        self._channels = channels
        self._mailbox = mailbox
        self._questions = questions
        self._allowed = allowed
        self._make_session = make_session
        self._at_once = at_once
        self._received = received
        self._files = files
        self._absence = absence
        self._assignees = assignees
        self._sessions: dict[SessionKey, ChannelSession] = {}
        self._working: set[SessionKey] = set()
        self._woken: set[SessionKey] = set()
        self._answers = {name: anyio.Event() for name in channels}
        questions.session_of = self._session_of
        questions.post = self._post

    async def run(self, ready: Callable[[str, str], None] = lambda *_: None) -> None:
        """Serve all channels until it is cancelled; `ready` gets each channel's name and its bot's.

        Raises what makes a channel impossible, such as ConfigError for a token.
        """
        if self._files is not None:
            folder = self._files
            await in_thread(lambda: forget_copies(folder, self._mailbox.waiting_files()))
        try:
            async with anyio.create_task_group() as tasks:
                for name, channel in self._channels.items():
                    tasks.start_soon(self._serve, name, channel, tasks, ready)
                tasks.start_soon(self._warn_of_absence)
        finally:
            with anyio.CancelScope(shield=True):
                for session in self._sessions.values():
                    session.close()
                for channel in self._channels.values():
                    await channel.close()

    async def _serve(
        self,
        name: str,
        channel: ChatChannel,
        tasks: TaskGroup,
        ready: Callable[[str, str], None],
    ) -> None:
        while True:
            try:
                called = await channel.start()
                break
            except BusyChannelError as error:
                logger.warning("%s: %s; it is tried again", name, error)
                await anyio.sleep(error.seconds)
        ready(name, called)
        tasks.start_soon(self._send_all, name, channel)
        for session in await _in_state(lambda: self._mailbox.sessions(name)):
            self._wake(session, tasks)
        await channel.listen(partial(self._take, name, tasks))

    async def _take(self, name: str, tasks: TaskGroup, messages: Sequence[ChatUpdate]) -> None:
        """Store what came, and return; only then the service may forget it."""
        kept, pressed = [], []
        for one in messages:
            if one.moved_from:
                await self._move(name, one)
            approves = one.button and f"{name}:{one.user}" in self._questions.approvers
            if not (approves or self._may_write(name, one)):
                if one.button:
                    pressed.append((one, "This is not for you."))
                else:
                    await self._answer_stranger(name, one)
            elif one.button:
                pressed.append((one, self._questions.press(name, one)))
            elif one.is_for_us and (one.text.strip() or one.files):
                if said := await self._at_once(name, one):
                    await self._post(name, Outgoing(chat=one.chat, text=said, is_plain=True))
                else:
                    kept.append(one)
        # None of them is woken meanwhile: only this does it.
        idle = {SessionKey(name, one.chat, one.user) for one in kept} - self._working
        for taken in await _in_state(lambda: self._mailbox.take(name, kept, idle)):
            chat = taken.message.chat
            if taken.waits:
                self._wake(SessionKey(name, chat, taken.message.user), tasks, taken.begun)
            else:
                await self._post(name, Outgoing(chat=chat, text=TOO_MANY, is_plain=True))
        # At the end: neither a stop nor a message waits for the service to take these.
        for one, said in pressed:
            await self._say(name, one, said)

    async def _move(self, name: str, one: ChatUpdate) -> None:
        """Keep the conversations of a chat that got another id."""
        old, new = f"{name}:chat:{one.moved_from}", f"{name}:chat:{one.chat}"
        if old in self._allowed and new not in self._allowed:
            logger.warning("the chat `%s` of `allow` is `%s` now: write that there", old, new)
        await _in_state(partial(self._mailbox.move_chat, name, one.moved_from, one.chat))
        before = [
            key for key in self._sessions if (key.channel, key.chat) == (name, one.moved_from)
        ]
        for key in before:
            self._sessions[SessionKey(name, one.chat, key.user)] = self._sessions.pop(key)
        self._questions.move_chat(name, one.moved_from, one.chat)

    def _may_write(self, name: str, one: ChatUpdate) -> bool:
        return bool(self._allowed & {f"{name}:{one.user}", f"{name}:chat:{one.chat}"})

    async def _answer_stranger(self, name: str, one: ChatUpdate) -> None:
        if not one.is_for_us or not (one.text or one.files):
            return
        if await _in_state(lambda: self._mailbox.may_answer_stranger(name, one.user)):
            # Once a day as well: who writes all day fills no log.
            logger.warning("%s: user %s is not on the list of `allow`", name, one.user)
            text = STRANGER.format(user=f"{name}:{one.user}")
            await self._post(name, Outgoing(chat=one.chat, text=text, is_plain=True))

    async def _say(self, name: str, one: ChatUpdate, text: str) -> None:
        try:
            await self._channels[name].say_to_presser(one.press, text)
        except ChannelError as error:
            logger.info("%s: nothing was said to who pressed a button: %s", name, error)

    def _wake(self, key: SessionKey, tasks: TaskGroup, begun: WaitingUpdate | None = None) -> None:
        """Have a session's messages answered; one of a session at a time, sessions side by side.

        `begun` is the first of them where it is begun already.
        """
        self._woken.add(key)
        if key not in self._working:
            self._working.add(key)
            tasks.start_soon(self._work, key, begun)

    async def _work(self, key: SessionKey, update: WaitingUpdate | None) -> None:
        try:
            while update is not None or key in self._woken:
                if update is None:
                    # A message may come while the mailbox is found empty.
                    self._woken.discard(key)
                else:
                    made = await self._answered(key, update)
                    await self._end(key, update.number, update.message, made)
                    if made.is_over and (session := self._sessions.pop(key, None)) is not None:
                        session.close()
                update = await _in_state(partial(self._mailbox.begin_next, key))
        finally:
            self._working.discard(key)
            self._forget_idle()

    async def _answered(self, key: SessionKey, update: WaitingUpdate) -> SessionAnswer:
        """Return what comes back for a message; what fails in one ends no other."""
        try:
            session = await self._session(key)
            # The progress of this message begins with no text of the one before.
            session.screen.begin()
            async with anyio.create_task_group() as watch:
                watch.start_soon(self._show_progress, key, session, update.message)
                begun_ms = update.begun_ms if update.was_begun else None
                message = update.message
                if message.files and self._received is not None:
                    channel = self._channels[key.channel]
                    message = await self._received.described(channel, key, message)
                made = await session.answer(message, begun_ms=begun_ms)
                watch.cancel_scope.cancel()
        except Exception:
            logger.exception("%s: a message was not answered", key.channel)
            return SessionAnswer(parts=(AnswerPart(text=FAILED, is_plain=True),))
        return made

    async def _session(self, key: SessionKey) -> ChannelSession:
        session = self._sessions.pop(key, None)
        if session is None:
            known = await _in_state(lambda: self._mailbox.transcript(key))
            session = await in_thread(lambda: self._make_session(key, known))
            if session.transcript != known:
                kept = session.transcript
                await _in_state(lambda: self._mailbox.keep_transcript(key, kept))
        # The last in the order is the one that was used last.
        self._sessions[key] = session
        return session

    async def _end(
        self, key: SessionKey, number: int, message: ChatUpdate, made: SessionAnswer
    ) -> None:
        channel = self._channels[key.channel]
        reply_to = "" if message.is_private else message.message
        # Where a message comes again, it has to have room to say so.
        length_max = channel.text_max - len(REPEATED) - 2
        answers = [
            Outgoing(
                chat=key.chat,
                text=text,
                is_plain=part.is_plain,
                reply_to=reply_to if at == 0 else "",
            )
            for part in made.parts
            for at, text in enumerate(messages_of(part.text, length_max))
        ]

        def keep() -> None:
            if made.is_over:
                self._mailbox.keep_transcript(key, "")
            self._mailbox.end(key.channel, number, answers)

        await _in_state(keep)
        self._answers[key.channel].set()

    async def _show_progress(
        self, key: SessionKey, session: ChannelSession, message: ChatUpdate
    ) -> None:
        channel = self._channels[key.channel]
        number = max(1, int(message.message) if message.message.isdecimal() else 1)
        while True:
            # Not before the first text, which is here at once where the model is quick.
            if not session.screen.answer_text:
                with anyio.move_on_after(PROGRESS_SECONDS):
                    await session.screen.begun.wait()
            text = session.screen.answer_text
            # Not cut off when the answer is there: its connection would be lost to all others.
            with anyio.CancelScope(shield=True):
                await channel.show_progress(
                    key.chat, text, number=number, is_private=message.is_private
                )
            if text:
                await anyio.sleep(PROGRESS_SECONDS)

    async def _warn_of_absence(self) -> None:
        """Say once before only reads go on, and once when they do."""
        said = None
        while True:
            minutes = await _in_state(self._absence)
            text = {None: "", 0: AWAY}.get(minutes, AWAY_SOON)
            if text and text != said:
                for person in sorted(self._assignees):
                    name, _, user = person.partition(":")
                    if name in self._channels:
                        await self._write_to(name, user, text.format(minutes=minutes))
            said = text
            await anyio.sleep(ABSENCE_LOOK_SECONDS)

    async def _write_to(self, name: str, user: str, text: str) -> None:
        """Write to a person in the chat in which they wrote last, if they ever did."""
        if chat := await _in_state(lambda: self._mailbox.chat_of(name, user)):
            await self._post(name, Outgoing(chat=chat, text=text, is_plain=True))

    async def _post(self, name: str, message: Outgoing) -> None:
        await _in_state(lambda: self._mailbox.post(name, message))
        self._answers[name].set()

    async def _send_all(self, name: str, channel: ChatChannel) -> None:
        """Send what waits, in the order of each chat; a chat that has a limit holds no other up."""
        later: dict[str, float] = {}
        tries: dict[int, int] = {}
        while True:
            now = anyio.current_time()
            later = {chat: at for chat, at in later.items() if at > now}
            event = self._answers[name] = anyio.Event()
            skipped = frozenset(later)
            answer = await _in_state(partial(self._mailbox.next_answer, name, skipped))
            if answer is None:
                with anyio.move_on_after(min(later.values()) - now if later else None):
                    await event.wait()
                continue
            wait = await self._send(name, channel, answer, tries)
            if wait:
                later[answer.message.chat] = anyio.current_time() + wait

    async def _send(
        self, name: str, channel: ChatChannel, answer: AnswerToSend, tries: dict[int, int]
    ) -> float:
        """Send one answer; return how long its chat has to wait, 0 when it is done."""
        message = answer.message
        is_forgotten = channel.marks_repeats or answer.age_seconds > KEY_SECONDS
        if answer.was_sending and is_forgotten:
            message = _marked(message)
        try:
            await channel.send(message, answer.key)
        except BusyChannelError as error:
            done = tries.get(answer.number, 0)
            # What was surely not taken, at a limit or without a network, waits as long as it takes.
            if not error.is_unknown or done < UNDONE_MAX:
                logger.warning("%s: an answer waits: %s", name, error)
                if not error.is_unknown and not answer.was_sending:
                    await _in_state(lambda: self._mailbox.unsent(answer.number))
                if not error.is_unknown:
                    return error.seconds
                tries[answer.number] = done + 1
                return float(min(error.seconds * 2 ** max(0, done - 4), UNDONE_WAIT_MAX))
            logger.error("%s: an answer was given up: %s", name, error)
            await self._say_unsent(name, message, error)
        except ChannelError as error:
            logger.error("%s: an answer cannot be sent: %s", name, error)
            await self._say_unsent(name, message, error)
        tries.pop(answer.number, None)
        await _in_state(lambda: self._mailbox.sent(answer.number))
        if message.file is not None:
            copy = Path(message.file.path)
            await in_thread(lambda: copy.unlink(missing_ok=True))
        return 0

    async def _say_unsent(self, name: str, message: Outgoing, error: ChannelError) -> None:
        """Say that a file does not come, which an answer may speak of."""
        if message.file is not None:
            why = one_line(str(error))[:WHY_CHARACTERS]
            text = f"The file {message.file.name} could not be sent: {why}"
            await self._post(name, Outgoing(chat=message.chat, text=text, is_plain=True))

    def file_max(self, session_id: str) -> int:
        """Return how large a file may be that is sent in a conversation; 0 where none can be."""
        session = self._session_of(session_id)
        channel = self._channels.get(session.channel) if session else None
        return channel.sent_max if isinstance(channel, FileChannel) else 0

    async def send_file(self, session_id: str, file: OutgoingFile) -> None:
        """Have a file sent in the chat of a conversation, after what waits there."""
        session = self._session_of(session_id)
        if session is None:
            raise ChannelError("the conversation has ended")
        message = Outgoing(chat=session.chat, text="", is_plain=True, file=file)
        await self._post(session.channel, message)

    def _session_of(self, session_id: str) -> SessionKey | None:
        return next(
            (key for key, one in self._sessions.items() if one.session_id == session_id), None
        )

    def _forget_idle(self) -> None:
        idle = [key for key in self._sessions if key not in self._working]
        for key in idle[: max(0, len(self._sessions) - IDLE_SESSIONS_MAX)]:
            self._sessions.pop(key).close()


async def _in_state(work: Callable[[], T]) -> T:
    """Do a piece of work on the state; where it is held or full, wait and try it again.

    Meanwhile nothing is confirmed to a service. Raises StateError when the last try fails.
    """
    for seconds in STATE_WAITS:
        try:
            return await in_thread(work)
        except StateError as error:
            logger.error("%s; it is tried again in %d s", error, seconds)
            await anyio.sleep(seconds)
    return await in_thread(work)


def _marked(message: Outgoing) -> Outgoing:
    text = (
        f"{REPEATED}\n{message.text}".strip()
        if message.is_plain
        else f"{REPEATED}\n\n{message.text}"
    )
    return replace(message, text=text)

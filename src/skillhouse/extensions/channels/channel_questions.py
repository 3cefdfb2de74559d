"""Questions of the gate in the chat where the call was asked for, answered with buttons."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping

import anyio
from msgspec import Struct, field

from skillhouse.approval import Answer, ApprovalRequest, Reply
from skillhouse.extensions.channels.chat_channel import (
    BusyChannelError,
    ChannelError,
    ChatChannel,
    ChatUpdate,
    Outgoing,
)
from skillhouse.extensions.channels.mailbox import SessionKey
from skillhouse.presentation.question import (
    answered_at,
    question_lines,
    question_of,
    standing_line,
)
from skillhouse.presentation.text import cut, one_line

TOKEN_BYTES = 12
"""Randomness of a button's token; Telegram takes 64 bytes with the rest."""
TEXT_MAX = 3_000
"""Characters of a question; the page has all of it."""
_SEND_SECONDS = 30
"""For the service to take a question, also after its answer is not waited for any more."""
_LABELS = {
    Answer.ONCE: "Approve",
    Answer.SESSION: "Approve for this chat",
    Answer.ALWAYS: "Always",
    Answer.NO: "Deny",
}
"""In the order of the buttons."""
_OUTCOMES = {Answer.NO: "denied", Answer.ONCE: "approved"}

logger = logging.getLogger(__name__)


class _Open(Struct, kw_only=True):
    """A question that is shown, and its answer once there is one."""

    session: SessionKey
    request: ApprovalRequest
    answers: Mapping[str, Answer]
    answered: anyio.Event = field(default_factory=anyio.Event)
    reply: Reply | None = None
    by_name: str = ""


class ChannelQuestions:
    """An approval channel: it asks whoever the call was made for, in the same chat."""

    def __init__(self) -> None:
        """Ask nothing yet: what asks through this is made before the channels."""
        self.channels: Mapping[str, ChatChannel] = {}
        """Where to ask, by name."""
        self.approvers: frozenset[str] = frozenset()
        """Who else may answer, as `channel:user`."""
        self.page = ""
        """Address of the page that decides what is not decided in a chat; empty if unknown."""
        self.session_of: Callable[[str], SessionKey | None] = lambda _: None
        """Returns whose conversation has an id; the gateway sets it."""
        self.post: Callable[[str, Outgoing], Awaitable[None]] = _posted_nowhere
        """Has a message sent after what waits in its chat; the gateway sets it."""
        self._open: dict[str, _Open] = {}

    async def ask(self, request: ApprovalRequest) -> Reply | None:
        """Show the question and wait for a button; None where it is not decided in a chat."""
        session = self.session_of(request.session_id)
        channel = self.channels.get(session.channel) if session else None
        if session is None or channel is None:
            return None
        question = question_of(request)
        # With room for what a cut and an outcome add.
        length_max = min(TEXT_MAX, channel.text_max - 200)
        title = cut(one_line(request.title), length_max)
        if request.out_of_band_only:
            where = answered_at(question, self.page)
            text = f"{title}\nThis is not decided in a chat: {where}"
            await self.post(session.channel, Outgoing(chat=session.chat, text=text, is_plain=True))
            return None
        lines = [*question_lines(question), *filter(None, [standing_line(question)])]
        text = cut_text("\n".join(lines), length_max)
        offered = [one for one in _LABELS if one.value in question.answers]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        asked = _Open(session=session, request=request, answers={one.value: one for one in offered})
        # Before it is sent: the press may be here before the answer of the service.
        self._open[token] = asked
        try:
            buttons = tuple((_LABELS[one], f"q.{token}.{one.value}") for one in offered)
            shown = Outgoing(chat=session.chat, text=text, is_plain=True, buttons=buttons)
            message = await _sent(channel, shown, token)
            ending = "answered elsewhere, or too late"
            try:
                await asked.answered.wait()
                ending = self._ending(asked)
            finally:
                # Also where another answer was faster: the buttons would do nothing.
                with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                    await _edit(channel, session.chat, message, f"{title}\n— {ending}")
        finally:
            del self._open[token]
        return asked.reply

    def move_chat(self, channel: str, before: str, now: str) -> None:
        """Take the buttons of a chat's open questions under the id that it has now."""
        for asked in self._open.values():
            if (asked.session.channel, asked.session.chat) == (channel, before):
                asked.session = SessionKey(channel, now, asked.session.user)

    def press(self, channel: str, pressed: ChatUpdate) -> str:
        """Take a pressed button; return what to say to who pressed it."""
        mark, _, rest = pressed.button.partition(".")
        token, _, word = rest.rpartition(".")
        asked = self._open.get(token) if mark == "q" else None
        if asked is None or asked.reply is not None:
            return "This question is not open any more."
        who = f"{channel}:{pressed.user}"
        is_here = (asked.session.channel, asked.session.chat) == (channel, pressed.chat)
        is_asker = pressed.user == asked.session.user
        if not is_here or not (is_asker or who in self.approvers):
            logger.warning("%s pressed a button of a question to another person", who)
            return "Only the person who asked may answer this."
        answer = asked.answers.get(word)
        if answer is None:
            return "This question has no such answer."
        request = asked.request
        asked.by_name = one_line(pressed.name)
        asked.reply = Reply(
            answer=answer,
            by=request.user,
            channel=request.channel,
            device_name="" if is_asker else who,
        )
        asked.answered.set()
        return "Denied." if answer is Answer.NO else "Approved."

    def _ending(self, asked: _Open) -> str:
        answer = asked.reply.answer if asked.reply else Answer.NO
        outcome = _OUTCOMES.get(answer, f"approved ({_LABELS[answer].lower()})")
        return f"{outcome} by {cut(asked.by_name, 60) or 'you'}"


async def _posted_nowhere(channel: str, message: Outgoing) -> None:
    raise ChannelError(f"no gateway serves {channel} for the chat {message.chat}")


async def _sent(channel: ChatChannel, message: Outgoing, key: str) -> str:
    """Send a question as soon as the service takes it; return the message.

    Who waits for its answer ends this only between two attempts: of a message that is cut off
    while it is sent, the id would not be known, and its buttons would stay.
    """
    while True:
        try:
            with anyio.move_on_after(_SEND_SECONDS, shield=True):
                return await channel.send(message, key)
            raise ChannelError(f"{channel.name} did not take a question in {_SEND_SECONDS} s")
        except BusyChannelError as error:
            logger.warning("%s: a question waits: %s", channel.name, error)
            await anyio.sleep(error.seconds)


async def _edit(channel: ChatChannel, chat: str, message: str, text: str) -> None:
    try:
        await channel.edit(chat, message, text)
    except ChannelError as error:
        # The answer counts all the same; its message keeps buttons that say so.
        logger.warning("the message of a question was not changed: %s", error)


def cut_text(text: str, length: int) -> str:
    """Return a text that is cut at its end, which says so.

    >>> cut_text("abcdef", 4)
    'abcd\\n… 2 characters more; all of it is on the page'
    """
    if len(text) <= length:
        return text
    return f"{text[:length]}\n… {len(text) - length} characters more; all of it is on the page"

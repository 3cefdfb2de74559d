"""What came and what goes out, in the state: nothing is lost when the bot ends at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from skillhouse.extensions.channels.chat_channel import ChatUpdate, Outgoing
from skillhouse.floor.structs import replace
from skillhouse.store import STATE, STATE_FILE, StateConnection, pooled, state_clock

KEPT_MS = 14 * 86_400_000
"""How long the keys of what was answered are kept; Telegram delivers for a day."""
STRANGER_MS = 86_400_000
"""A stranger is answered once in this time."""
WAITING_MAX = 100
"""Messages of one session that wait; further ones are refused."""


class SessionKey(Struct, frozen=True, order=True):
    """Whose conversation it is: one for each person in each chat."""

    channel: str
    chat: str
    user: str


class WaitingUpdate(Struct, frozen=True, kw_only=True):
    """A message that waits for its answer."""

    number: int
    message: ChatUpdate
    was_begun: bool
    """Whether the bot ended while it answered it."""
    begun_ms: int
    """When it was begun first."""


class TakenUpdate(Struct, frozen=True, kw_only=True):
    """A message that was not there before."""

    message: ChatUpdate
    waits: bool
    """Whether it waits for its answer; it does not where `WAITING_MAX` of its session do."""
    begun: WaitingUpdate | None
    """Where it is being answered already."""


class AnswerToSend(Struct, frozen=True, kw_only=True):
    """A message of the bot that waits to be sent."""

    number: int
    message: Outgoing
    was_sending: bool
    """Whether the bot ended while it was sent, so that it may be there already."""
    key: str
    """The same for all tries that may have reached the service, and of no other message."""
    age_seconds: float
    """How long ago the first of these tries was."""


class Mailbox:
    """The tables `channel_message`, `channel_answer` and `channel_session`."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = state_directory / STATE_FILE
        self._clock = state_clock(self._path, clock)

    def take(
        self, channel: str, messages: Sequence[ChatUpdate], idle: Collection[SessionKey] = ()
    ) -> list[TakenUpdate]:
        """Store messages, and return those that were not there: a service delivers some twice.

        The first of an idle session is begun with it, which saves `begin_next` and its commit.
        """
        new = []
        now = self._now()
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "DELETE FROM channel_message WHERE state = 'done' AND at_ms < ?", (now - KEPT_MS,)
            )
            for one in messages:
                waiting = connection.execute(
                    "SELECT count(*) FROM channel_message WHERE channel = ? AND chat = ? "
                    "AND sender = ? AND state <> 'done'",
                    (channel, one.chat, one.user),
                ).fetchone()[0]
                is_next = not waiting and SessionKey(channel, one.chat, one.user) in idle
                state = "begun" if is_next else "waiting" if waiting < WAITING_MAX else "done"
                content = _json(one) if state != "done" else ""
                added = connection.execute(
                    "INSERT INTO channel_message (channel, key, chat, sender, content, state, "
                    "at_ms) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (channel, key) DO NOTHING "
                    "RETURNING seq",
                    (channel, one.key, one.chat, one.user, content, state, now),
                ).fetchone()
                if added:
                    begun = None
                    if is_next:
                        begun = WaitingUpdate(
                            number=added[0], message=one, was_begun=False, begun_ms=now
                        )
                    new.append(TakenUpdate(message=one, waits=state != "done", begun=begun))
        return new

    def sessions(self, channel: str) -> list[SessionKey]:
        """Return the sessions for which messages wait."""
        with pooled(self._path, STATE) as store:
            rows = store.rows(
                "SELECT DISTINCT chat, sender FROM channel_message "
                "WHERE channel = ? AND state <> 'done' ORDER BY chat, sender",
                (channel,),
            )
        return [SessionKey(channel, chat, user) for chat, user in rows]

    def chat_of(self, channel: str, user: str) -> str:
        """Return the chat in which a person wrote last; empty if they never did."""
        with pooled(self._path, STATE) as store:
            rows = store.rows(
                "SELECT chat FROM channel_message WHERE channel = ? AND sender = ? "
                "ORDER BY seq DESC LIMIT 1",
                (channel, user),
            )
        return rows[0][0] if rows else ""

    def begin_next(self, session: SessionKey) -> WaitingUpdate | None:
        """Return the oldest message of a session that waits, and note that it is being answered."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            row = connection.execute(
                "SELECT seq, content, state, at_ms FROM channel_message WHERE channel = ? "
                "AND chat = ? AND sender = ? AND state <> 'done' ORDER BY seq LIMIT 1",
                (session.channel, session.chat, session.user),
            ).fetchone()
            if row is None:
                return None
            number, content, state, at = row
            if state == "waiting":
                at = self._now()
                connection.execute(
                    "UPDATE channel_message SET state = 'begun', at_ms = ? WHERE seq = ?",
                    (at, number),
                )
        message = msgspec.json.decode(content, type=ChatUpdate)
        was_begun = state == "begun"
        return WaitingUpdate(number=number, message=message, was_begun=was_begun, begun_ms=at)

    def end(self, channel: str, number: int, answers: Sequence[Outgoing]) -> None:
        """Store the answers of a message, which is done; its text is kept no longer."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            ended = connection.execute(
                "UPDATE channel_message SET state = 'done', content = '' "
                "WHERE seq = ? AND state = 'begun'",
                (number,),
            ).rowcount
            if not ended:
                return
            for one in answers:
                self._add_answer(connection, channel, one)

    def post(self, channel: str, message: Outgoing) -> None:
        """Store a message that answers none of those that were stored."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            self._add_answer(connection, channel, message)

    def next_answer(self, channel: str, skipped: frozenset[str]) -> AnswerToSend | None:
        """Return the oldest answer to send, and note that it is being sent.

        `skipped` are chats that take none now.
        """
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            rows = connection.execute(
                "SELECT seq, chat, content, state, at_ms FROM channel_answer "
                "WHERE channel = ? ORDER BY seq",
                (channel,),
            )
            for number, chat, content, state, tried in rows:
                if chat in skipped:
                    continue
                was_sending, now = state == "sending", self._now()
                at = tried if was_sending else now
                connection.execute(
                    "UPDATE channel_answer SET state = 'sending', at_ms = ? WHERE seq = ?",
                    (at, number),
                )
                message = msgspec.json.decode(content, type=Outgoing)
                return AnswerToSend(
                    number=number,
                    # The chat may have another id since.
                    message=replace(message, chat=chat),
                    was_sending=was_sending,
                    key=f"{number}.{at}",
                    age_seconds=(now - at) / 1000,
                )
        return None

    def sent(self, number: int) -> None:
        """Forget an answer that the service has, or will never take."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute("DELETE FROM channel_answer WHERE seq = ?", (number,))

    def unsent(self, number: int) -> None:
        """Note that an answer was surely not taken, and waits again."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "UPDATE channel_answer SET state = 'waiting' WHERE seq = ?", (number,)
            )

    def waiting_files(self) -> list[str]:
        """Return the paths of the copies with which messages wait."""
        with pooled(self._path, STATE) as store:
            rows = store.rows("SELECT content FROM channel_answer", ())
        found = (msgspec.json.decode(content, type=Outgoing).file for (content,) in rows)
        return [file.path for file in found if file is not None]

    def transcript(self, session: SessionKey) -> str:
        """Return the id of a session's transcript; empty if it has none."""
        with pooled(self._path, STATE) as store:
            rows = store.rows(
                "SELECT transcript FROM channel_session "
                "WHERE channel = ? AND chat = ? AND sender = ?",
                (session.channel, session.chat, session.user),
            )
        return rows[0][0] if rows else ""

    def keep_transcript(self, session: SessionKey, transcript: str) -> None:
        """Note a session's transcript; with an empty one the next message begins another."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "INSERT INTO channel_session (channel, chat, sender, transcript, answered_ms) "
                "VALUES (?, ?, ?, ?, 0) ON CONFLICT (channel, chat, sender) "
                "DO UPDATE SET transcript = excluded.transcript",
                (session.channel, session.chat, session.user, transcript),
            )

    def positions(self, channel: str) -> dict[str, str]:
        """Return up to which message each chat was read, of a service that keeps them itself."""
        # The row of a chat that no sender has; see `keep_positions`.
        with pooled(self._path, STATE) as store:
            rows = store.rows(
                "SELECT chat, transcript FROM channel_session WHERE channel = ? "
                "AND chat <> '' AND sender = ''",
                (channel,),
            )
        return dict(rows)

    def keep_positions(self, channel: str, positions: Mapping[str, str]) -> None:
        """Note up to which message chats were read."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany(
                "INSERT INTO channel_session (channel, chat, sender, transcript, answered_ms) "
                "VALUES (?, ?, '', ?, 0) ON CONFLICT (channel, chat, sender) "
                "DO UPDATE SET transcript = excluded.transcript",
                [(channel, chat, position) for chat, position in positions.items()],
            )

    def may_answer_stranger(self, channel: str, user: str) -> bool:
        """Whether a stranger was not answered today; asking counts as an answer."""
        now = self._now()
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.execute(
                "DELETE FROM channel_session WHERE channel = ? AND chat = '' AND answered_ms < ?",
                (channel, now - STRANGER_MS),
            )
            added = connection.execute(
                "INSERT INTO channel_session (channel, chat, sender, transcript, answered_ms) "
                "VALUES (?, '', ?, '', ?) ON CONFLICT (channel, chat, sender) DO NOTHING",
                (channel, user, now),
            ).rowcount
        return bool(added)

    def move_chat(self, channel: str, before: str, now: str) -> None:
        """Give what waits in a chat, and its sessions, the chat's new id."""
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            moved = (now, channel, before)
            # Not where it came before: then what is there are the sessions that moved.
            connection.execute(
                "DELETE FROM channel_session WHERE chat = ? AND channel = ? AND sender IN "
                "(SELECT sender FROM channel_session WHERE channel = ? AND chat = ?)",
                (now, channel, channel, before),
            )
            connection.execute(
                "UPDATE channel_session SET chat = ? WHERE channel = ? AND chat = ?", moved
            )
            connection.execute(
                "UPDATE channel_message SET chat = ? WHERE channel = ? AND chat = ?", moved
            )
            connection.execute(
                "UPDATE channel_answer SET chat = ? WHERE channel = ? AND chat = ?", moved
            )

    def _add_answer(self, connection: StateConnection, channel: str, message: Outgoing) -> None:
        connection.execute(
            "INSERT INTO channel_answer (channel, chat, content, state, at_ms) "
            "VALUES (?, ?, ?, 'waiting', ?)",
            (channel, message.chat, _json(message), self._now()),
        )

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _json(value: Struct) -> str:
    return msgspec.json.encode(value).decode()

"""The question that a person is asked, who asks it, and what may come back."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skillhouse.floor import Digest, SkillhouseError, digest

Level = Literal["read", "write", "sign"]
"""What a call can do: look, change something, or sign (seeds.md section 1.2)."""


class Answer(enum.StrEnum):
    """What a person said; silence is a no."""

    ONCE = "once"
    SESSION = "session"
    """Also for what is like it, until the client's connection ends."""
    PROJECT = "project"
    """Also later, in this place."""
    ALWAYS = "always"
    """Also later, in every place of this user."""
    NO = "no"


LASTING = frozenset({Answer.SESSION, Answer.PROJECT, Answer.ALWAYS})
"""The answers that also allow what comes later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What a lasting yes would allow."""

    action: str
    pattern: str
    skill_digest: str = ""
    """Tree digest of the skill it is about; empty when no skill is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A permission that a person is asked about."""

    action: str
    resource: str
    skill_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that needs a yes, described by the house and never by a skill."""

    id: str = ""
    """Given by the broker, like the nonce and the times."""
    tool: str
    agent: str
    user: str
    title: str
    """What would happen, in one line."""
    facts: tuple[tuple[str, str], ...]
    """Labels and values that a person should see; all values are untrusted text."""
    reasons: tuple[str, ...]
    """Why a person is asked."""
    content_digest: Digest
    """Digest of `content`: what a yes is about."""
    content: str = ""
    """Canonical JSON of the exact call (decision 8); channels show from it."""
    always: tuple[str, ...] = ()
    """What a lasting yes would allow, in words; empty when there can be none."""
    channel: str = "library"
    """Where the call came from."""
    client: str = ""
    """Name of the client that asks, as it gives it itself."""
    connection: str = ""
    """Which connection of that client; only it, or its successor, can use an approval."""
    place: str = ""
    """Real path of the workspace."""
    level: Level = "write"
    on_page: bool = False
    """Whether it is decided on the transaction page or a paired device only, whatever its level."""
    wait_seconds: float = 0
    """How long the call waits for an answer; 0 is as long as the house's settings say."""
    asked: tuple[Asked, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    """The same as `always`, for keeping."""
    nonce: str = ""
    """Known only to those who were shown this very question."""
    opened_ms: int = 0
    """Milliseconds since 1970, as all times of this room."""
    expires_ms: int = 0
    session_id: str = ""
    """The caller's ids of the conversation, the message and the call (S004-48); they bind
    nothing."""
    message_id: str = ""
    call_id: str = ""

    @property
    def session(self) -> str:
        """Agent, user and channel: nobody else's call can use an answer to them."""
        return session_key(self.agent, self.user, self.channel)

    @property
    def connection_key(self) -> str:
        """The same with the client's connection: what `session` answers are about."""
        return session_key(self.agent, self.user, self.channel, self.client, self.connection)

    @property
    def out_of_band_only(self) -> bool:
        """Whether only the transaction page and paired devices decide it."""
        return self.on_page or self.level == "sign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer with who gave it and where."""

    answer: Answer
    by: str
    channel: str
    message: str = ""
    """What the person would have instead; goes back to the model with a no."""
    device: str = ""
    """Id of the paired device that gave it; empty when none did."""
    device_name: str = ""


class ApprovalError(SkillhouseError):
    """A question or an answer is not taken; `code` says why.

    Codes: unknown, ambiguous, answered, expired, used, wrong-nonce, not-allowed, not-offered,
    another-call, another-client, denied, open, queue-full, too-many, clock, wrong-token.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Channel(Protocol):
    """A way to reach a person."""

    async def ask(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Return the person's answer.

        A bare `Answer` is one of the request's user on the request's own channel. None means that
        nobody can answer here and now: the question stays open for an answer from elsewhere.
        """
        ...


NOBODY = "nobody"
"""The channel of a no that no person said; it counts, and makes nobody tired."""


class Unattended:
    """The channel of a house that nobody watches: every answer is no."""

    async def ask(self, request: ApprovalRequest) -> Reply:
        """Return a no that nobody said."""
        return Reply(answer=Answer.NO, by="", channel=NOBODY, message="nobody watches this house")


def session_key(agent: str, user: str, channel: str, client: str = "", connection: str = "") -> str:
    """Return one text for who calls, with or without the client's connection.

    >>> session_key("default", "local", "mcp")
    '["default", "local", "mcp"]'
    """
    whose = [client, connection] if client or connection else []
    return json.dumps([agent, user, channel, *whose])


def canonical(content: Mapping[str, Any]) -> str:
    """Return the JSON text that a digest is taken of: sorted, without blanks, ASCII only.

    Raises:
        ValueError: a number is no JSON number.

    >>> canonical({"b": [1], "a": "é"})
    '{"a":"\\\\u00e9","b":[1]}'
    """
    return json.dumps(dict(content), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_digest(content: str) -> Digest:
    """Return the digest of a canonical text."""
    return digest(content.encode())

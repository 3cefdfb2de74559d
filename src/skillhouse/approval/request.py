"""A question to a person: its fields and bounds, who may answer it how, and its state."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skillhouse.floor import Digest, SkillhouseError, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """How long is waited, how much is asked, and how long a yes lasts."""

    wait_seconds: float = 60.0
    """How long a call waits where somebody was asked (seeds.md C25); silence is a no."""
    expires_seconds: int = 3_600
    """How long a question can be answered, and a yes be used, from when it was asked."""
    unattended: Literal["pending", "deny"] = "pending"
    """What happens when nobody can be asked here: the question stays open for the inbox and the
    command line, or the call waits `wait_seconds` and is refused."""
    reject_all: bool = False
    """Whether a no also answers the other open questions of that conversation (opencode)."""
    grant_days: int = 30
    """How long a lasting yes is kept (reference/security.md section 4.3)."""
    open_max: int = 100
    """Open questions of a house; further ones are refused (security.md section 6, item 69)."""
    user_open_max: int = 25
    """Open questions of one user."""
    user_rate: int = 60
    """Questions that one user's calls may ask in `RATE_SECONDS`."""
    webhook_url: str = ""
    """Where each question is sent as well: https, or http on this machine."""
    webhook_secret_env: str = ""
    """Variable of the process that holds the secret which signs what is sent there."""
    page_url: str = ""
    """Address of the page that `skillhouse up` serves, for a link in what is sent."""
    elicitation: bool = True
    """Whether the answer that an MCP client brings from its user counts (decision 0141)."""


RATE_SECONDS = 600
DENIAL_COOLDOWN_AFTER = 3
"""Noes in a row to one kind of call in a conversation, after which it is not asked about."""
DENIAL_COOLDOWN_SECONDS = 300
"""How long that lasts from the latest no; then a person is asked again, so nobody is locked out."""
KEPT_SECONDS = 30 * 86_400
"""How long closed questions are kept."""
CONTENT_SECONDS = 86_400
"""How long a closed question keeps the text of its call, which may hold secrets."""
KEPT_MAX = 5_000
"""Questions that are kept at most; the oldest closed ones go first."""
CLOCK_BACK_SECONDS = 300
"""How far the clock may have gone back since a question was asked (security.md section 4.3)."""
YES_SECONDS = 600
"""How long a yes can be used at least, however late it came."""


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


class ApprovalState(enum.StrEnum):
    """Where a question stands; it only moves down this list."""

    OPEN = "open"
    APPROVED = "approved"
    """A person said yes, and the call has not run yet."""
    USED = "used"
    """The yes was taken by a call."""
    DENIED = "denied"
    EXPIRED = "expired"
    """Nobody answered in time, or nobody used the yes in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One question and its answer."""

    request: ApprovalRequest
    state: ApprovalState
    answer: str = ""
    """once, session, project, always or no; empty before."""
    by: str = ""
    channel: str = ""
    """Where it was answered."""
    message: str = ""
    closed_ms: int = 0
    """When it was answered or expired; 0 before."""
    device: str = ""
    """Id of the paired device that answered; empty when none did."""
    device_name: str = ""

    @property
    def id(self) -> str:
        """The question's id."""
        return self.request.id


def closed(found: Approval) -> tuple[str, str]:
    """Return the code of a question that is not open any more, and what became of it, in words."""
    said = f": {found.message}" if found.message else ""
    if found.state is ApprovalState.EXPIRED:
        return "expired", found.message or "nobody answered in time, or the answer was not used"
    if found.state is ApprovalState.USED:
        return "used", f"approval `{found.id}` was used already"
    if found.state is ApprovalState.DENIED:
        return ("answered", f"refused{said}") if found.by else ("denied", found.message)
    if found.state is ApprovalState.OPEN:
        return "open", f"approval `{found.id}` waits for an answer"
    return "answered", f"approval `{found.id}` was answered already"


def another_client(found: Approval) -> ApprovalError:
    """Return the error of a client that comes with another one's approval."""
    return ApprovalError("another-client", f"approval `{found.id}` belongs to another client")


OWNER = "local"
"""The user to whom the state directory belongs: who can read it could change it as well."""

OWNER_CHANNELS = frozenset({"terminal", "cli", "page", "device"})
"""Ways to answer that are behind the house's own access control: the terminal it runs in, the
command line over its state, the page with its token, and a device that was paired."""

SIGN_CHANNELS = frozenset({"page", "device"})
"""Where a call that signs or is of tier 1 is decided: on the transaction page, or on a paired
device."""


def rejection(request: ApprovalRequest, reply: Reply) -> str:
    """Return why this answer does not count, or nothing when it does.

    On a channel of the owner, the owner and the user whom the call is for may answer; on any other,
    such as a chat, only that user on that very channel (S000-78, S000-79).
    """
    if reply.channel == NOBODY:
        return "" if reply.answer is Answer.NO else "nobody can say yes"
    if request.out_of_band_only and reply.channel not in SIGN_CHANNELS:
        return "such a call is decided on the transaction page or a paired device only"
    if reply.channel in OWNER_CHANNELS:
        if reply.by in (OWNER, request.user):
            return ""
        return "only the owner of this house or the user of the call may answer"
    if reply.channel != request.channel:
        return "this is not the channel that the call came from"
    if reply.by != request.user:
        return "only the user of the call may answer"
    return ""


def allowed_answers(request: ApprovalRequest) -> tuple[Answer, ...]:
    """Return the answers that the question has; one for the page is never allowed for good."""
    if request.patterns and not request.out_of_band_only:
        return tuple(Answer)
    return tuple(answer for answer in Answer if answer not in LASTING)

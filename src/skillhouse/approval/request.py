"""A question to a person: its fields and bounds, who may answer it how, and its state."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from skillhouse.floor import Digest, SkillhouseError, digest


class ApprovalSettings(Struct, frozen=True, kw_only=True):
    """Bounds of waiting, of questions and of standing approvals."""

    wait_seconds: float = 60.0
    """How long a call waits for an answer; without one it is denied."""
    expires_seconds: int = 3_600
    """How long after it was asked a question can be answered and its approval be used."""
    unattended: Literal["profile", "pending", "deny"] = "profile"
    """When no channel can ask, the question stays open, or the call waits `wait_seconds` and is
    refused; else as the profile says, `pending` without one."""
    reject_all: bool = False
    """Whether a denial also answers the other open questions of that conversation (opencode)."""
    grant_days: int = 30
    """How long a standing approval is kept."""
    open_max: int = 100
    """Open questions in all; further ones are refused."""
    user_open_max: int = 25
    """Open questions of one user."""
    user_rate: int = 60
    """Questions that one user's calls may ask in ten minutes (`RATE_SECONDS`)."""
    webhook_url: str = ""
    """Address to which each question is sent as well: https, or http on this machine."""
    webhook_secret_env: str = ""
    """Environment variable with the secret that signs the messages to it."""
    page_url: str = ""
    """Address of the page that `skillhouse up` serves, for a link in these messages."""
    elicitation: bool = True
    """Whether an answer through the user's MCP client counts (decision 0141)."""


RATE_SECONDS = 600
DENIAL_COOLDOWN_AFTER = 3
"""Consecutive denials of one tool in a conversation, after which its questions are refused."""
DENIAL_COOLDOWN_SECONDS = 300
"""How long that lasts from the latest denial; then the person is asked again."""
KEPT_SECONDS = 30 * 86_400
CONTENT_SECONDS = 86_400
"""How long a closed question keeps the text of its call, which may hold secrets."""
KEPT_MAX = 5_000
"""Questions that are kept at most; the oldest closed ones go first."""
CLOCK_BACK_SECONDS = 300
"""How far the clock may go back after a question was asked."""
APPROVAL_SECONDS = 600
"""How long an approval can be used at least, however late it was given."""


Facts = tuple[tuple[str, str], ...]
"""Labels and values that a person should see."""
Level = Literal["read", "write", "sign"]
"""The most that a call can do: read, change something, or sign (the published design)."""


FOUND_HEADING = "found by skillhouse:"
SENT_HEADING = "sent by the agent:"
"""The lines above the two blocks of facts in a text."""
ROW_COLUMNS = 72
"""Columns of a row where the window of the reader is not known."""
ROOM_MIN = 8
"""Columns of a row that has no room for more."""
WORD_MAX = 24
"""Characters from which a word is broken where a row ends."""


def rows_of(line: str, columns: int = ROW_COLUMNS) -> list[str]:
    """Return a line of a question in rows that fit; only the first begins where the line does.

    A window breaks a longer row itself, and what follows would begin at its first column, as only
    a line of ours does. Later rows are further in than any line of a question; nothing is left
    out. Outside of ASCII a character counts as two columns: its width depends on the window.

    >>> rows_of("  why: abcdef ghi", 18), rows_of("  why: abcdef ghi", 17)
    (['  why: abcdef ghi'], ['  why: abcdef ', '        ghi'])
    """
    room = columns - 1  # A window may begin a new row once its last column is filled.
    margin = " " * max(8, min(len(line) - len(line.lstrip(" ")), 8) + 4)
    rows = [""]
    for word in re.findall(r"[^ ]* ?", line):
        start = margin if len(rows) > 1 else ""
        if len(word) < WORD_MAX and _width(rows[-1] + word.rstrip()) > room > _width(margin + word):
            rows.append(margin)
        for character in word:
            if _width(rows[-1] + character) > max(room, len(start) + ROOM_MIN):
                rows.append(start := margin)
            rows[-1] += character
    return rows


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(1 if c.isascii() else 2 for c in text)


class Answer(enum.StrEnum):
    """A person's answer; without one a call is denied."""

    ONCE = "once"
    SESSION = "session"
    """Also for similar calls, until the client's connection ends."""
    PROJECT = "project"
    """Also later, in this place."""
    ALWAYS = "always"
    """Also later, in every place of this user."""
    NO = "no"


LASTING = frozenset({Answer.SESSION, Answer.PROJECT, Answer.ALWAYS})
"""The answers that also allow later calls."""


class Pattern(Struct, frozen=True, kw_only=True):
    """What a standing approval would allow."""

    action: str
    pattern: str
    """A command's rule or another resource. One that ends in `/` is a directory: it is about the
    files directly in it, and none below."""
    skill_digest: str = ""
    """Tree digest of the skill it is about; empty when no skill is."""

    @property
    def is_directory(self) -> bool:
        return is_directory(self.action, self.pattern)

    @property
    def text(self) -> str:
        """The rule that it would write, as a person sees it.

        >>> Pattern(action="write", pattern="/w/notes/").text
        'write /w/notes/ (files directly in it)'
        """
        return rule_text(self.action, self.pattern)


FILE_ACTIONS = frozenset({"read", "write", "list"})
"""Actions whose resources are paths."""
_DIRECTLY = " (files directly in it)"


def is_directory(action: str, pattern: str) -> bool:
    """Whether a standing approval is about the files directly in a directory."""
    return action in FILE_ACTIONS and pattern.endswith("/")


def rule_text(action: str, pattern: str) -> str:
    return f"{action} {pattern}{_DIRECTLY if is_directory(action, pattern) else ''}"


def covers_resource(action: str, pattern: str, resource: str) -> bool:
    """Whether a pattern is about a resource: a directory about what is directly in it.

    Patterns of standing approvals have no wildcards but that of a command's rule, which this does
    not apply.

    >>> covers_resource("write", "/w/a/", "/w/a/x"), covers_resource("write", "/w/a/", "/w/a/b/x")
    (True, False)
    """
    if is_directory(action, pattern):
        directory, _, name = resource.rpartition("/")
        return bool(name) and f"{directory}/" == pattern
    return pattern == resource


class Asked(Struct, frozen=True, kw_only=True):
    """A permission that a person is asked about."""

    action: str
    resource: str
    skill_digest: str = ""


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """One call that needs approval, described by skillhouse and never by a skill."""

    id: str = ""
    tool: str
    agent: str
    user: str
    title: str
    """What would happen, in one line."""
    found: Facts
    """What skillhouse found; the labels are its own, the values are untrusted text."""
    sent: Facts
    """What the call brought: its arguments and what a skill says; labels are untrusted too."""
    reasons: tuple[str, ...]
    content_digest: Digest
    """Digest of `content`, to which an approval is bound."""
    content: str = ""
    """Canonical JSON of the exact call (decision 8); channels show from it."""
    always: tuple[str, ...] = ()
    """What a standing approval would allow, in words; empty when none is possible."""
    channel: str = "library"
    """Where the call came from."""
    client: str = ""
    """The client's name for itself."""
    connection: str = ""
    """Which connection of that client; only it, or its successor, can use an approval."""
    place: str = ""
    """Real path of the workspace."""
    level: Level = "write"
    on_page: bool = False
    """Whether only the transaction page or a paired device decides it, whatever its level."""
    wait_seconds: float = 0
    """How long the call waits for an answer; 0 is `ApprovalSettings.wait_seconds`."""
    asked: tuple[Asked, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    """The machine-readable form of `always`."""
    nonce: str = ""
    """Known only to those who were shown this question."""
    opened_ms: int = 0
    """Milliseconds since 1970, as all times of this package."""
    expires_ms: int = 0
    session_id: str = ""
    """The caller's ids (S004-48); they bind nothing."""
    message_id: str = ""
    call_id: str = ""

    @property
    def session(self) -> str:
        """Agent, user and channel; an approval is valid for their calls only."""
        return session_key(self.agent, self.user, self.channel)

    @property
    def connection_key(self) -> str:
        """The same with the client's connection, for which a `session` answer holds."""
        return session_key(self.agent, self.user, self.channel, self.client, self.connection)

    @property
    def client_name(self) -> str:
        """The client's name for itself, or the coding agent whose own tool it is; empty where only
        the way is known on which the call came."""
        way, mark, name = self.client.partition(":")
        if way != self.channel:
            return self.client
        return name if mark and way == "hooks" else ""

    @property
    def out_of_band_only(self) -> bool:
        """Whether only the transaction page and paired devices decide it."""
        return self.on_page or self.level == "sign"


class Reply(Struct, frozen=True, kw_only=True):
    """An answer with who gave it and where."""

    answer: Answer
    by: str
    channel: str
    message: str = ""
    """What the person wants instead; the model gets it with a denial."""
    rules: tuple[str, ...] = ()
    """With a lasting answer: the rules to write instead of those that were offered, each of which
    must be covered by one of these; empty is what was offered."""
    device: str = ""
    """Id of the paired device that gave it; empty when none did."""
    device_name: str = ""


class ApprovalError(SkillhouseError):
    """A question or an answer is not taken; `code` says why.

    Codes: unknown, ambiguous, answered, expired, used, wrong-nonce, not-allowed, not-offered,
    too-wide, another-call, another-client, denied, open, queue-full, too-many, clock, wrong-token,
    wrong-code, wrong-phrase, no-push.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Channel(Protocol):
    """A way to reach a person."""

    async def ask(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Return an answer; a bare `Answer` is one of the request's user on the request's channel.
        None leaves the question open for another channel."""
        ...


NOBODY = "nobody"
"""The channel of a denial without a person; it counts, but not for the cooldown of denials."""


class Unattended:
    """The channel of an unattended installation: it denies every call."""

    async def ask(self, request: ApprovalRequest) -> Reply:
        return Reply(
            answer=Answer.NO, by="", channel=NOBODY, message="this installation is unattended"
        )


def session_key(agent: str, user: str, channel: str, client: str = "", connection: str = "") -> str:
    """Return a key for the caller, with or without the client's connection.

    >>> session_key("default", "local", "mcp")
    '["default", "local", "mcp"]'
    """
    whose = [client, connection] if client or connection else []
    return json.dumps([agent, user, channel, *whose])


def canonical(content: Mapping[str, Any]) -> str:
    """Return the JSON text that is digested: sorted, without spaces, ASCII only.

    Raises:
        ValueError: a number is no JSON number.

    >>> canonical({"b": [1], "a": "é"})
    '{"a":"\\\\u00e9","b":[1]}'
    """
    return json.dumps(dict(content), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_digest(content: str) -> Digest:
    return digest(content.encode())


class ApprovalState(enum.StrEnum):
    """State of a question; it only moves down this list."""

    OPEN = "open"
    APPROVED = "approved"
    """Approved, and the call has not run yet."""
    USED = "used"
    """A call has used the approval."""
    DENIED = "denied"
    EXPIRED = "expired"
    """Not answered in time, or the approval was not used in time."""


class Approval(Struct, frozen=True, kw_only=True):
    """A question with its answer, as the state keeps both."""

    request: ApprovalRequest
    state: ApprovalState
    answer: str = ""
    """An `Answer`; empty before."""
    by: str = ""
    channel: str = ""
    """Where it was answered."""
    message: str = ""
    closed_ms: int = 0
    """When it was answered or expired; 0 before."""
    device: str = ""
    """Id of the paired device that answered; empty when none did."""
    device_name: str = ""
    waits_for: str = ""
    """Id of the question inside its call that this approval was kept for, see `Ledger.keep`."""

    @property
    def id(self) -> str:
        return self.request.id


def why_closed(approval: Approval) -> tuple[str, str]:
    """Return why a question takes no answer, as a code of `ApprovalError` and in words."""
    said = f": {approval.message}" if approval.message else ""
    if approval.state is ApprovalState.EXPIRED:
        return "expired", approval.message or "no answer came in time, or the approval was not used"
    if approval.state is ApprovalState.USED:
        return "used", f"approval `{approval.id}` was used already"
    if approval.state is ApprovalState.DENIED:
        return ("answered", f"refused{said}") if approval.by else ("denied", approval.message)
    if approval.state is ApprovalState.OPEN:
        return "open", f"approval `{approval.id}` waits for an answer"
    return "answered", f"approval `{approval.id}` was answered already"


def another_client(approval: Approval) -> ApprovalError:
    return ApprovalError("another-client", f"approval `{approval.id}` belongs to another client")


OWNER = "local"
"""The user who owns the state directory, who could change it in any case."""

OWNER_CHANNELS = frozenset({"terminal", "cli", "page", "device", "api"})
"""Ways to answer that have access control of their own, such as the page with its token."""

SIGN_CHANNELS = frozenset({"page", "device"})
"""Channels that decide a call that signs or is of tier 1."""


def rejection(request: ApprovalRequest, reply: Reply) -> str:
    """Return why an answer does not count, or "". On a channel of the owner, the owner and the user
    whom the call is for may answer; on any other, such as a chat, only that user on that very
    channel (S000-78, S000-79)."""
    if reply.channel == NOBODY:
        return "" if reply.answer is Answer.NO else "only a person can approve"
    if request.out_of_band_only and reply.channel not in SIGN_CHANNELS:
        return "such a call is decided on the transaction page or a paired device only"
    if reply.channel in OWNER_CHANNELS:
        if reply.by in (OWNER, request.user):
            return ""
        return "only the owner of this installation or the user of the call may answer"
    if reply.channel != request.channel:
        return "this is not the channel that the call came from"
    if reply.by != request.user:
        return "only the user of the call may answer"
    return ""


def allowed_answers(request: ApprovalRequest) -> tuple[Answer, ...]:
    """A question for the page gets no lasting ones."""
    if request.patterns and not request.out_of_band_only:
        return tuple(Answer)
    return tuple(answer for answer in Answer if answer not in LASTING)

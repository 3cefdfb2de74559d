"""The fields of a record, its id and its time, and what a caller gives for it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, field

from skillhouse.floor import SkillhouseError

VERSION = 2
"""Version of the record's shape; a reader refuses every other."""
MAX_LINE = 64 * 1024
"""Bytes of a line with its newline; longer values are cut before it is written."""
ZEROS = "0" * 64
"""`prev` of the first record."""
KINDS = ("intent", "outcome", "refusal", "event", "repair", "rotation")
"""An event is no call: an emergency stop, a change of policy or trust, a key. The last two are the
log's own."""
PUBLISHED = {
    "success": "ok",
    "denied": "denied",
    "timeout": "timeout",
    "error": "error",
    "escalated": "escalated",
    "emergency-stopped": "emergency-stopped",
    "pending": "pending",
}
"""Results as the published design calls them, and our status for each (S000-120)."""
STATUSES = ("", *PUBLISHED.values(), "stopped", "unknown")
"""The last two are ours: a stop ended the call while it ran, or what ran it gave no answer. A call
that a stop kept from running is `emergency-stopped`."""
GATE_VERDICTS = (
    "",
    "approved",
    "denied",
    "timeout",
    "not_in_allowlist",
    "confirmation_disabled_allow",
)
"""Verdicts of the write gate as the published design calls them (S000-74, S000-83)."""
TIERS = ("", "none", "3", "2", "1")
LEVELS = ("", "read", "write", "sign")


class AuditError(SkillhouseError):
    """The log cannot be written or read; `code` says why, and nothing was recorded."""

    def __init__(self, code: str, message: str, path: Path, *, advice: str = "") -> None:
        super().__init__(f"{message}: `{path}`{f'; {advice}' if advice else ''}")
        self.code = code
        self.message = message
        self.path = path


class DecidedPermission(Struct, frozen=True, kw_only=True):
    """One permission of a call, with what was decided."""

    action: str
    resource: str
    effect: str
    """allow, ask or deny."""
    layer: str
    """Layer that decided; "default" when no rule matched."""
    rule_index: int | None = None
    """Place of the deciding rule in its layer, from 0; None when the default decided."""


class Confirmation(Struct, frozen=True, kw_only=True):
    """The question of a call, if a person was to confirm it."""

    required: bool = True
    channel: str = ""
    """inline, companion-app, notification, or the name of a channel."""
    requested_at: str = ""
    """UTC, as `AuditRecord.ts`; empty when no person was asked."""
    responded_at: str = ""
    approved: bool | None = None
    """None without an answer."""
    latency_ms: int = 0
    approval: str = ""
    """Id of the approval."""


class TransactionEntry(Struct, frozen=True, kw_only=True):
    """A transaction that was sent; amounts of gas are text, since they outgrow 64 bits."""

    tx_hash: str = ""
    chain_id: int = 0
    block_number: int = 0
    gas_used: str = ""
    gas_price: str = ""


class AuditRecord(Struct, frozen=True, kw_only=True):
    """One line of the log, or what it is to hold before it is written (`AuditDraft`)."""

    id: str = ""
    """ULID: 26 characters that sort as the lines of the log do."""
    seq: int = 0
    """Place in the log, from 1, over all its files."""
    ts: str = ""
    """UTC, ISO 8601 with milliseconds and Z."""
    version: int = VERSION
    kind: str
    """intent, outcome, refusal or event; "repair" and "rotation" are the log's own."""
    tool: str
    agent: str = ""
    user: str = ""
    channel: str = ""
    workspace: str = ""
    """Real path of the directory that the caller works in; empty for an event."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """In a line a preview of them without their secrets; see `redacted`."""
    argument_digest: str = ""
    """SHA-256 (hex) of the canonical JSON of the full arguments."""
    permissions: tuple[DecidedPermission, ...] = ()
    rules_digest: str = ""
    """Beginning of the SHA-256 (hex) of the rules that decided; empty for an outcome."""
    reason: str = ""
    status: str = ""
    """Empty for an intent; one of `STATUSES` for the others."""
    intent: str = ""
    """Id of the intent whose outcome this is."""
    duration_ms: int = 0
    detail: Mapping[str, object] = field(default_factory=dict)
    """exit_code, sandbox level, skill id and tree digest, answer of an approval, …"""
    prev: str = ""
    """Hash of the record before; zeros for the first."""
    hash: str = ""
    """HMAC-SHA-256 (hex) of the line up to this member; see docs/decisions/0110."""
    preview_digest: str = ""
    """SHA-256 (hex) of the members after the hash: the arguments and the detail. It stays when
    a record is summarised, so that its hash can still be checked."""
    monotonic_ns: int = 0
    """Monotonic clock of the machine, since `boot`."""
    boot: str = ""
    """Start of the boot id of the system."""
    is_summary: bool = False
    """Whether the arguments and detail were taken out after `Retention.summary_days`."""
    tier: str = ""
    """none, 3, 2 or 1; empty where no tier was asked for."""
    effective_tier: str = ""
    """The tier after escalation."""
    security_level: str = ""
    """read, write or sign."""
    error: str = ""
    """The fault of a call that ran; `reason` explains a refusal."""
    client: str = ""
    """Name and version of the client, as it gives them itself; empty where it gives none."""
    device: str = ""
    session: str = ""
    trace: str = ""
    """Id shared by the calls of one task."""
    request: str = ""
    call: str = ""
    """Ids of the message or HTTP request, and of the tool call: the model's, or the gate's."""
    amount_usd: str = ""
    """Decimal number as text."""
    session_key: str = ""
    """Id of the session key, never the key."""
    signer_tier: str = ""
    skill: str = ""
    skill_version: str = ""
    skill_digest: str = ""
    """Digest of the skill's tree, for a call that a skill made."""
    gate_verdict: str = ""
    """The write gate's, in its published word; empty for a call that it did not judge."""
    confirmation: Confirmation | None = None
    transaction: TransactionEntry | None = None
    profile: str = ""
    """Name of the profile under which the call was judged; empty for an outcome and an event."""
    result_chars: int = 0
    """Characters of what the tool returned, before a long text is cut; 0 where it returned none."""
    server: str = ""
    """Name of the server whose log this is; empty where it has none."""
    model: str = ""
    """Provider and name of the model that made the call; empty where the frontend knows none."""
    parent: str = ""
    """The `call` in which a skill's code or command made this one; empty for an agent's own."""
    waited_ms: int = 0
    """From when a call came to when it began: for decisions, a person, the workspace and the log;
    in the outcome, and 0 where nothing ran."""
    argument_bytes: int = 0
    """Bytes of that JSON of the full arguments of which `argument_digest` is; 0 without any."""


AuditDraft = AuditRecord
"""A record before it is written, with the full arguments: the log hides their secrets, and gives it
the fields of `SEAL`."""
SEAL = frozenset(
    "id seq ts version argument_digest prev hash preview_digest monotonic_ns boot "
    "is_summary server argument_bytes".split()
)


def client_name(client: str) -> str:
    """Return the client of a record without its version.

    >>> client_name("Visual Studio Code 1.106.2"), client_name("codex v2"), client_name("codex")
    ('Visual Studio Code', 'codex', 'codex')
    """
    name, _, version = client.rpartition(" ")
    return name if version.removeprefix("v")[:1].isdigit() and name else client


DAY_MILLISECONDS = 86_400_000
MAX_MILLISECONDS = 253_402_300_799_999
"""The last moment of the year 9999, beyond which a time has no text of this form."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(one + two for one in _ALPHABET for two in _ALPHABET)
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_FOLLOWING = dict(itertools.pairwise(_ALPHABET))
_RANDOM_BITS = 80


def ulid(milliseconds: int, random: bytes, *, after: str = "") -> str:
    """Return a ULID of this moment, greater than the ULID `after`.

    If the clock did not advance, it is the one that follows `after`, as the ULID
    specification says under "Monotonicity", so that ids sort as the lines of the log do.
    `ValueError` for a moment before 1970 or after 9999.

    >>> ulid(1469918176385, bytes(10))
    '01ARYZ6S410000000000000000'
    >>> ulid(0, bytes(10), after="01ARYZ6S410000000000000000")
    '01ARYZ6S410000000000000001'
    """
    begin = _begin(milliseconds)
    if begin > after[:10]:
        return begin + _encoded(int.from_bytes(random[:10]))
    # A text comparison is enough, as the alphabet is in the order of its values.
    following = _FOLLOWING.get(after[-1])
    if following is not None:
        return after[:-1] + following
    value = 0
    for character in after:
        value = value << 5 | _VALUES[character]
    value += 1
    return _begin_of(value >> _RANDOM_BITS) + _encoded(value & (1 << _RANDOM_BITS) - 1)


@lru_cache(maxsize=16)
def _begin(milliseconds: int) -> str:
    return _begin_of(_checked(milliseconds))


def _begin_of(milliseconds: int) -> str:
    return "".join(_PAIRS[milliseconds >> shift & 1023] for shift in (40, 30, 20, 10, 0))


def _encoded(value: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in (70, 60, 50, 40, 30, 20, 10, 0)])


def timestamp(milliseconds: int) -> str:
    """Return milliseconds since 1970 as UTC text; `ValueError` before 1970 or after 9999.

    >>> timestamp(1469918176385)
    '2016-07-30T22:36:16.385Z'
    """
    return f"{_second(_checked(milliseconds) // 1000)}.{milliseconds % 1000:03}Z"


def day_of(milliseconds: int) -> str:
    return timestamp(milliseconds)[:10]


def day_number(day: str) -> int:
    """Return the days from 1970 to a day, or raise `ValueError`.

    >>> day_number("1970-02-01")
    31
    """
    if len(day) != len("YYYY-MM-DD") or day[4] != "-" or day[7] != "-":
        raise ValueError(f"expected a day as YYYY-MM-DD, got {day!r}")
    return date.fromisoformat(day).toordinal() - _EPOCH


_EPOCH = date(1970, 1, 1).toordinal()


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _checked(milliseconds: int) -> int:
    if 0 <= milliseconds <= MAX_MILLISECONDS:
        return milliseconds
    raise ValueError(f"no time of a record: {milliseconds}")

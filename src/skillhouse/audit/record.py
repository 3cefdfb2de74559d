"""What one record says, and the values it is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from skillhouse.floor import SkillhouseError

VERSION = 1
"""Version of the record's shape; a reader refuses others."""
ZEROS = "0" * 64
"""`prev` of the first record."""
KINDS = ("intent", "outcome", "refusal", "repair")
STATUSES = ("", "ok", "error", "denied", "pending")

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS = 48
_RANDOM_BITS = 80


class AuditError(SkillhouseError):
    """The log cannot be written or read; `code` says why, and nothing was recorded."""

    def __init__(self, code: str, message: str, path: Path) -> None:
        super().__init__(f"{message}: `{path}`")
        self.code = code
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedPermission:
    """A permission that the call needed, and the answer it got."""

    action: str
    resource: str
    effect: str
    """allow, ask or deny."""
    layer: str
    """Layer that decided; "default" when none spoke."""
    rule_index: int | None = None
    """Place of the deciding rule in its layer, from 0; None when the default decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDraft:
    """What a caller wants remembered, with the full arguments: the log hides their secrets."""

    kind: str
    """intent, outcome, refusal; "repair" is the log's own."""
    tool: str
    agent: str = ""
    user: str = ""
    channel: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    permissions: tuple[DecidedPermission, ...] = ()
    reason: str = ""
    status: str = ""
    """Empty for an intent; ok, error, denied or pending for the others."""
    intent: str = ""
    """Id of the intent whose outcome this is."""
    duration_ms: int = 0
    detail: Mapping[str, object] = field(default_factory=dict)
    """exit_code, sandbox level, skill id and tree digest, answer of an approval, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One line of the log."""

    id: str
    """ULID: 26 characters that sort as the lines of the log do."""
    seq: int
    """Place in the log, from 1."""
    ts: str
    """When it happened: UTC, ISO 8601 with milliseconds and Z."""
    version: int = VERSION
    kind: str
    tool: str
    agent: str
    user: str
    channel: str
    arguments: Mapping[str, object]
    """Preview of the arguments without their secrets; see `redacted`."""
    argument_digest: str
    """SHA-256 (hex) of the canonical JSON of the full arguments."""
    permissions: tuple[DecidedPermission, ...]
    reason: str
    status: str
    intent: str
    duration_ms: int
    detail: Mapping[str, object]
    prev: str
    """Hash of the record before; zeros for the first."""
    hash: str
    """SHA-256 (hex) of the canonical JSON of the record without this field."""


def ulid(milliseconds: int, random: bytes, *, after: str = "") -> str:
    """Return a ULID of this moment, greater than the ULID `after`.

    Where the clock stands still or goes back, it is the one that follows `after`, as the ULID
    specification says under "Monotonicity", so that ids sort as the lines of the log do.

    Raises:
        ValueError: a moment before 1970, or one that needs more than 48 bits.

    >>> ulid(1469918176385, bytes(10))
    '01ARYZ6S410000000000000000'
    >>> ulid(0, bytes(10), after="01ARYZ6S410000000000000000")
    '01ARYZ6S410000000000000001'
    """
    if milliseconds >> _TIME_BITS:
        raise ValueError(f"no time of a ULID: {milliseconds}")
    value = milliseconds << _RANDOM_BITS | int.from_bytes(random[:10])
    if after:
        before = 0
        for character in after:
            before = before << 5 | _ALPHABET.index(character)
        if milliseconds <= before >> _RANDOM_BITS:
            value = before + 1
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def timestamp(milliseconds: int) -> str:
    """Return milliseconds since 1970 as UTC text.

    >>> timestamp(1469918176385)
    '2016-07-30T22:36:16.385Z'
    """
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"

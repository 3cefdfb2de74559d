"""A record as a line of bytes, sealed with the hash of its content.

A line is a JSON object whose bytes have three parts: the hashed members, the hash, and the preview
of the arguments and the detail. The hash covers the preview by its digest, so that a preview can be
removed after its time and the chain still be checked.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from skillhouse.audit.log_files import LogKeys, seal
from skillhouse.audit.record import (
    GATE_VERDICTS,
    LEVELS,
    MAX_LINE,
    TIERS,
    VERSION,
    AuditDraft,
    AuditRecord,
    DecidedPermission,
)
from skillhouse.audit.redaction import CUT, KnownSecrets, clean_text, clean_word, redacted
from skillhouse.floor import DecodeError, canonical_json
from skillhouse.floor.paths import sendable
from skillhouse.floor.structs import field_names, replace

MAX_REASON = 1_000
"""Characters of a reason, an error, or the resource of a permission."""
MAX_ID = 128
"""Characters of the further fields, which are ids and short words."""
MAX_PATH = 256
"""Characters of the workspace's path."""
MAX_FEW = 4
"""Entries of a map that stay when a record is too long for a line, and twice the permissions.

What is left then has at most 62,000 bytes, whatever its characters are (a test tries the longest).
"""

HASH = b',"hash":"'
"""Ends what is hashed. JSON escapes quotes, so these bytes stand in no text, and no map before
them has such a key: the first such mark is the record's."""
HEX = 64
_PLACE = 1_024
"""Bytes for id, time, place in the chain and hashes."""
_SHORT = tuple(
    "tier effective_tier security_level client device session trace request call amount_usd "
    "session_key signer_tier skill skill_version skill_digest gate_verdict rules_digest "
    "profile model parent".split()
)
_short_values = attrgetter(*_SHORT)
_NOTHING = ("",) * len(_SHORT)
_CHOICES = {
    "tier": TIERS,
    "effective_tier": TIERS,
    "security_level": LEVELS,
    "gate_verdict": GATE_VERDICTS,
}
_PLAIN = {str, int, bool, type(None)}
_encoded = msgspec.json.Encoder(order="sorted").encode


class EncodedRecord(NamedTuple):
    """What a draft puts into a record: secrets hidden, texts cut, arguments digested."""

    front: bytes
    """JSON members that are hashed."""
    behind: bytes
    """JSON members behind the hash, whose digest is hashed."""


def encode_record(draft: AuditDraft, known: KnownSecrets, *, boot: str = "") -> EncodedRecord:
    """Return what the draft puts into a record.

    Raises:
        TypeError, ValueError, AttributeError, RecursionError: it holds what no record can.
    """
    if type(draft.duration_ms) is not int:
        raise TypeError("a duration is a whole number of milliseconds")
    if type(draft.result_chars) is not int:
        raise TypeError("the characters of a result are a whole number")
    if type(draft.waited_ms) is not int:
        raise TypeError("a wait is a whole number of milliseconds")
    # Written by hand: a third of the time of an encoder that takes the record as a whole.
    quoted = encode_basestring
    intent = draft.intent and clean_word(draft.intent, known)
    reason = draft.reason and clean_text(
        draft.reason, limit=MAX_REASON, kept=MAX_REASON, known=known
    )
    arguments = _full_arguments(draft.arguments)
    size = f'"argument_bytes":{len(arguments)},' if draft.arguments else ""
    front = (
        f'"version":{VERSION},"kind":{quoted(draft.kind)},'
        f'"tool":{quoted(clean_word(draft.tool, known))},'
        f'"agent":{quoted(clean_word(draft.agent, known))},'
        f'"user":{quoted(clean_word(draft.user, known))},'
        f'"channel":{quoted(clean_word(draft.channel, known))},'
        f'"status":{quoted(draft.status)},"intent":{quoted(intent)},"reason":{quoted(reason)},'
        f'"duration_ms":{draft.duration_ms},'
        f'"argument_digest":"{hashlib.sha256(arguments).hexdigest()}",{size}'
        f'"monotonic_ns":{time.monotonic_ns()},"boot":"{boot}"{_further(draft, known)}'
    ).encode()
    permissions, behind = _fitted(draft, known, MAX_LINE - _PLACE - len(front))
    preview = hashlib.sha256(behind).hexdigest().encode()
    return EncodedRecord(
        b'%b,"permissions":%b,"preview_digest":"%b"' % (front, permissions, preview), behind
    )


def _further(draft: AuditDraft, known: KnownSecrets) -> str:
    """Return the members that most records lack."""
    found = ""
    values = _short_values(draft)
    others = draft.workspace or draft.error or draft.confirmation or draft.transaction
    if draft.result_chars:
        found = f',"result_chars":{draft.result_chars}'
    if draft.waited_ms:
        found += f',"waited_ms":{draft.waited_ms}'
    if values == _NOTHING and not others:
        return found
    for name, value in zip(_SHORT, values, strict=True):
        if value:
            if value not in _CHOICES.get(name, (value,)):
                raise ValueError(f"no such {name}: {value!r}")
            text = clean_text(value, limit=MAX_ID, kept=MAX_ID, known=known)
            found += f',"{name}":{encode_basestring(text)}'
    for name, text, most in (
        ("workspace", draft.workspace, MAX_PATH),
        ("error", draft.error, MAX_REASON),
    ):
        if text:
            text = clean_text(text, limit=most, kept=most, known=known)
            found += f',"{name}":{encode_basestring(text)}'
    for name, parts in (("confirmation", draft.confirmation), ("transaction", draft.transaction)):
        if parts is not None:
            found += f',"{name}":{_json(_cleaned(parts, known)).decode()}'
    return found


def sealed(
    encoded: EncodedRecord,
    keys: LogKeys,
    *,
    record_id: str,
    seq: int,
    ts: str,
    prev: str,
    server: str = "",
) -> tuple[bytes, str]:
    """Return the line of a record at its place in the chain, and its hash."""
    body = b'{"id":"%b","seq":%d,"ts":"%b",%b%b,"prev":"%b"' % (
        record_id.encode(),
        seq,
        ts.encode(),
        encoded.front,
        f',"server":"{server}"'.encode() if server else b"",
        prev.encode(),
    )
    found = seal(keys.records, body)
    return b'%b%b%b",%b}\n' % (body, HASH, found.encode(), encoded.behind), found


def unsealed(encoded: EncodedRecord, *, record_id: str, ts: str) -> AuditRecord:
    """Return a record that has no place in the chain yet."""
    line = b'{"id":"%b","seq":0,"ts":"%b",%b,"prev":"","hash":"",%b}'
    return record_of(line % (record_id.encode(), ts.encode(), encoded.front, encoded.behind))


def id_of(line: bytes) -> str:
    return line[7:33].decode()


def opened(line: bytes, keys: LogKeys | None, *, summaries: bool = False) -> AuditRecord:
    """Return the record of a line (without its newline) after checking its hash.

    A preview may have been taken out with `summaries`; elsewhere, that is a change. `LineError` is
    `record-unreadable`, `record-changed`, or `key-missing` where `keys` is None.
    """
    if len(line) >= MAX_LINE:
        raise LineError("record-unreadable", f"expected at most {MAX_LINE} bytes")
    if not line.startswith(b'{"id":"'):
        raise LineError("record-unreadable", "expected a record")
    if keys is None:
        raise LineError("key-missing", "the log was written with a key, which is gone")
    place = line.find(HASH)
    end = place + len(HASH) + HEX
    if place == -1 or line[end : end + 2] != b'",' or line[-1:] != b"}":
        raise LineError("record-unreadable", "expected a record")
    if seal(keys.records, line[:place]).encode() != line[place + len(HASH) : end]:
        raise LineError("record-changed", "the record does not fit its hash")
    try:
        record = record_of(line)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise LineError("record-unreadable", "expected a record as JSON") from error
    if record.version != VERSION:
        raise LineError("record-unreadable", f"expected version {VERSION}, got {record.version}")
    # What was taken out of a summary is no longer there to be digested.
    behind = line[end + 2 : -1]
    if (
        not (summaries and record.is_summary)
        and hashlib.sha256(behind).hexdigest() != record.preview_digest
    ):
        raise LineError("record-changed", "the arguments do not fit their digest")
    return record


def summary_of(line: bytes) -> bytes:
    """Return the line of a record without its arguments and detail."""
    record = record_of(line)
    if record.is_summary:
        return line
    kept = {
        "_summary": True,
        "_hash": record.argument_digest,
        "_keys": sorted(record.arguments),
    }
    end = line.find(HASH) + len(HASH) + HEX
    return b'%b","is_summary":true,"arguments":%b,"detail":{}}' % (line[:end], _encoded(kept))


record_of = msgspec.json.Decoder(AuditRecord).decode


def _full_arguments(arguments: Mapping[str, object]) -> bytes:
    """Return the canonical JSON of the full arguments."""
    for key, value in arguments.items():
        if type(value) not in _PLAIN or not key.isascii() or "\\" in key:
            break
    else:
        try:
            return _encoded(dict(arguments))
        except (ValueError, OverflowError):
            # A lone surrogate, or a number of more than 64 bits.
            pass
    return canonical_json(_plain(arguments))


def _fitted(draft: AuditDraft, known: KnownSecrets, room: int) -> tuple[bytes, bytes]:
    """Return the permissions and the preview as JSON, cut until they fit."""
    arguments = redacted(draft.arguments, known=known)
    detail = redacted(draft.detail, known=known) if draft.detail else {}
    permissions = [_permission(each, known) for each in draft.permissions]
    behind, needed = _preview(arguments, detail), _json(permissions)
    # Each step bounds a part; what is left after the last fits beside any other fields.
    if len(behind) + len(needed) > room:
        arguments = _few(arguments)
        behind = _preview(arguments, detail)
    if len(behind) + len(needed) > room:
        behind = _preview(arguments, _few(detail))
    if len(behind) + len(needed) > room:
        needed = _json(_first(permissions))
    return needed, behind


def _preview(arguments: dict[str, object], detail: dict[str, object]) -> bytes:
    return b'"arguments":%b,"detail":%b' % (_json(arguments), _json(detail))


def _json(value: object) -> bytes:
    try:
        return _encoded(value)
    except OverflowError:
        # The encoder knows 64 bits.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _few(values: dict[str, object]) -> dict[str, object]:
    """Return the first plain entries of a map, and how many bytes it had."""
    plain = [item for item in values.items() if not isinstance(item[1], dict | list)]
    return {**dict(plain[:MAX_FEW]), CUT: f"{len(_json(values))} bytes"}


def _first(permissions: list[DecidedPermission]) -> list[DecidedPermission]:
    """Return the first permissions and one that says how many there were."""
    more = DecidedPermission(
        action=CUT, resource=f"{len(permissions)} in all", effect="", layer="", rule_index=None
    )
    first = [
        replace(each, resource=each.resource[: MAX_REASON // 5])
        for each in permissions[: MAX_FEW // 2]
    ]
    return [*first, more]


def _permission(permission: DecidedPermission, known: KnownSecrets) -> DecidedPermission:
    if not (permission.rule_index is None or type(permission.rule_index) is int):
        raise TypeError("the place of a rule is a number")
    return DecidedPermission(
        action=clean_word(permission.action, known),
        resource=clean_text(permission.resource, limit=MAX_REASON, kept=MAX_REASON, known=known),
        effect=clean_word(permission.effect, known),
        layer=clean_word(permission.layer, known),
        rule_index=permission.rule_index,
    )


def _cleaned(parts: Any, known: KnownSecrets) -> dict[str, Any]:
    found = {}
    for name in field_names(parts):
        value = getattr(parts, name)
        if type(value) not in _PLAIN:
            raise TypeError(f"expected text, a number or nothing as `{name}`")
        found[name] = (
            clean_text(value, limit=MAX_ID, kept=MAX_ID, known=known)
            if type(value) is str
            else value
        )
    return found


def _plain(value: object) -> object:
    """Return `value` so that it has canonical JSON: floats as text, keys in ASCII."""
    if isinstance(value, Mapping):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        # A lone surrogate has no UTF-8; JSON from outside may hold one.
        return sendable(value)
    return value


def _plain_key(key: object) -> str:
    text = str(key)
    if text.isascii() and "\\" not in text:
        return text
    return text.encode("unicode_escape").decode()


class LineError(DecodeError):
    """A line is no record; `code` is that of the problem which `verify_log` reports."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

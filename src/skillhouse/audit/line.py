"""A record as a line of bytes, sealed with the hash of what it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NoReturn

from skillhouse.audit.record import VERSION, AuditDraft, AuditRecord, DecidedPermission
from skillhouse.audit.redaction import CUT, clean_text, redacted
from skillhouse.floor import DecodeError, canonical_json, shaped

MAX_LINE = 64 * 1024
"""Bytes of a line with its newline; longer values are cut before it is written."""
MAX_REASON = 1_000
"""Characters of a reason, or of the resource of a permission."""
MAX_FEW = 4
"""Entries of a map that stay when a record is too long for a line, and twice the permissions.

What is left then has at most 60,000 bytes, whatever its characters are (a test tries the longest).
"""

_KEYS = {each.name for each in fields(AuditRecord)}
_HASH = b',"hash":"'
_NEXT = b',"id":"'
_HEX = 64


class LineError(DecodeError):
    """A line is no record; `code` is that of the problem which `verify_log` reports."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def said(draft: AuditDraft) -> dict[str, object]:
    """Return what the draft puts into a record: secrets hidden, texts cut, arguments digested.

    Raises:
        TypeError, ValueError, RecursionError: the arguments are no JSON.
    """
    full = canonical_json(_plain(draft.arguments))
    return {
        "agent": clean_text(draft.agent),
        "argument_digest": hashlib.sha256(full).hexdigest(),
        "arguments": redacted(draft.arguments),
        "channel": clean_text(draft.channel),
        "detail": redacted(draft.detail),
        "duration_ms": draft.duration_ms,
        "intent": clean_text(draft.intent),
        "kind": draft.kind,
        "permissions": [_permission(each) for each in draft.permissions],
        "reason": clean_text(draft.reason, limit=MAX_REASON, kept=MAX_REASON),
        "status": draft.status,
        "tool": clean_text(draft.tool),
        "user": clean_text(draft.user),
        "version": VERSION,
    }


def sealed(record: dict[str, object]) -> tuple[AuditRecord, bytes]:
    """Return the record with its hash, and its line; what makes it too long is cut in place."""
    body = _fitted(record)
    record["hash"] = found = hashlib.sha256(body).hexdigest()
    # Keys are sorted and nothing behind `hash` has a key `id` but the record: this is its place.
    place = body.rindex(_NEXT)
    line = body[:place] + _HASH + found.encode() + b'"' + body[place:] + b"\n"
    return shaped(record, AuditRecord), line


def opened(line: bytes) -> AuditRecord:
    """Return the record of a line (without its newline) after checking its hash.

    Raises:
        LineError: `record-unreadable`, or `record-changed` where the hash does not fit.
    """
    if len(line) >= MAX_LINE:
        raise LineError("record-unreadable", f"expected at most {MAX_LINE} bytes")
    # Keys are sorted and only `permissions`, whose keys are fixed, is a map after `hash`: the
    # last such mark is the record's own. All other bytes go into the hash as they stand.
    start = line.rfind(_HASH)
    end = start + len(_HASH) + _HEX
    found = hashlib.sha256(line[:start] + line[end + 1 :]).hexdigest()
    claimed = line[start + len(_HASH) : end]
    try:
        text = line.decode("utf-8")
        value, behind = _DECODER.raw_decode(text)
        if behind != len(text) or type(value) is not dict or value.keys() != _KEYS:
            raise LineError("record-unreadable", "expected a record")
        record = shaped(value, AuditRecord)
    except LineError:
        raise
    except (ValueError, RecursionError, DecodeError) as error:
        raise LineError("record-unreadable", "expected a record as JSON") from error
    if record.version != VERSION:
        raise LineError("record-unreadable", f"expected version {VERSION}, got {record.version}")
    if found.encode() != claimed or record.hash != found:
        raise LineError("record-changed", "the record does not fit its hash")
    return record


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"canonical JSON has integers only, got {text}")


_DECODER = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)


def _fitted(record: dict[str, object]) -> bytes:
    """Return the canonical JSON of `record`, which is cut in place until it fits a line."""
    room = MAX_LINE - len(_HASH) - _HEX - len('"\n')
    body = canonical_json(record)
    # Each step bounds a field; what is left after the last is less than a line.
    for name, shorter in (("arguments", _few), ("detail", _few), ("permissions", _first)):
        if len(body) <= room:
            break
        record[name] = shorter(record[name])
        body = canonical_json(record)
    return body


def _few(values: Any) -> dict[str, object]:
    """Return the first plain entries of a map, and how many bytes it had."""
    plain = [item for item in values.items() if not isinstance(item[1], dict | list)]
    return {**dict(plain[:MAX_FEW]), CUT: f"{len(canonical_json(values))} bytes"}


def _first(permissions: Any) -> list[object]:
    """Return the first permissions and one that says how many there were."""
    more = DecidedPermission(
        action=CUT, resource=f"{len(permissions)} in all", effect="", layer="", rule_index=None
    )
    return [*permissions[: MAX_FEW // 2], _permission(more)]


def _permission(permission: DecidedPermission) -> dict[str, object]:
    return {
        "action": clean_text(permission.action),
        "effect": clean_text(permission.effect),
        "layer": clean_text(permission.layer),
        "resource": clean_text(permission.resource, limit=MAX_REASON, kept=MAX_REASON),
        "rule_index": permission.rule_index,
    }


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
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _plain_key(key: object) -> str:
    text = str(key)
    if text.isascii() and "\\" not in text:
        return text
    return text.encode("unicode_escape").decode()

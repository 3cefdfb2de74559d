"""Lines of version 1, which had a hash without a key. They are read and never written."""

from __future__ import annotations

import hashlib
import json
from typing import NoReturn

from skillhouse.audit.record import AuditRecord
from skillhouse.audit.unreadable import LineError
from skillhouse.floor import DecodeError, shaped

_KEYS = set(
    "agent argument_digest arguments channel detail duration_ms hash id intent kind permissions "
    "prev reason seq status tool ts user version".split()
)
_HASH = b',"hash":"'
_HEX = 64


def opened_version_1(line: bytes) -> AuditRecord:
    """Return the record of a line (without its newline) after checking its hash.

    Raises:
        LineError: `record-unreadable`, or `record-changed` where the hash does not fit.
    """
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
    if record.version != 1:
        raise LineError("record-unreadable", f"expected version 1, got {record.version}")
    if found.encode() != claimed or record.hash != found:
        raise LineError("record-changed", "the record does not fit its hash")
    return record


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"canonical JSON has integers only, got {text}")


_DECODER = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)

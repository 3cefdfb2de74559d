"""Reads JSON-RPC messages strictly, and finds the id under which a refused one is answered.

Every transport and the fast handshake read by this one function, so none accepts what another
refuses. A client waits for the id of its request: an error under `null` leaves it waiting. Two
ids, one that is cut off and that of a broken response, maybe one of ours, are answered as `null`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from msgspec import Struct

from skillhouse.floor.regex import regex

MESSAGE_MAX = 8 * 1_048_576
"""Bytes of one message (docs/reference/limits.md)."""
DEPTH_MAX = 64
"""Objects and arrays within each other (docs/reference/limits.md)."""
ID_MAX = 1_024
"""Characters of an id."""
BATCH_MAX = 100
"""Requests of a refused batch that are answered one by one."""

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
"""JSON-RPC 2.0, section 5.1."""


class RefusedMessage(Struct, frozen=True, kw_only=True):
    """A message that is answered with an error, and reaches no handler."""

    code: int
    reason: str
    ids: tuple[str, ...] = ()
    """The ids to answer, as JSON; empty if none can be read for sure."""

    def answers(self) -> list[bytes]:
        """Return one error for each id; a single one with the id `null` if there is none.

        >>> RefusedMessage(code=-32600, reason="a batch", ids=("7",)).answers()
        [b'{"jsonrpc": "2.0", "id": 7, "error": {"code": -32600, "message": "a batch"}}']
        """
        error = json.dumps({"code": self.code, "message": self.reason})
        return [
            f'{{"jsonrpc": "2.0", "id": {each}, "error": {error}}}'.encode()
            for each in self.ids or ("null",)
        ]


def read_message(data: bytes) -> dict[str, Any] | RefusedMessage:
    """Return a message as a JSON object, or why it is refused.

    The result has `jsonrpc` 2.0; if it has a method, that is a text, its parameters are an object,
    and its id, if any, is a text or an integer of at most `ID_MAX` characters.

    >>> read_message(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    {'jsonrpc': '2.0', 'id': 1, 'method': 'ping'}
    >>> read_message(b'{"jsonrpc": "2.0", "id": 1, "method": ').ids
    ('1',)
    """
    if len(data) > MESSAGE_MAX:
        return too_long(_scanned(data))
    if data.count(b"{") + data.count(b"[") > DEPTH_MAX:
        scan = _scanned(data)
        if scan.deepest > DEPTH_MAX:
            return _refused(scan, PARSE_ERROR, f"nested more than {DEPTH_MAX} deep")
    members: list[tuple[str, Any]] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # The last object that is complete is the message itself.
        nonlocal members
        members = pairs
        return dict(pairs)

    try:
        message = json.loads(data.decode(), parse_constant=_not_json, object_pairs_hook=noted)
        _check_text(data, message)
    except (ValueError, RecursionError):
        return _refused(_scanned(data), PARSE_ERROR, "not JSON in UTF-8")
    if isinstance(message, dict) and len(members) > len(message):
        return _refused(_scanned(data), INVALID_REQUEST, "a member is given more than once")
    return _checked(message)


def too_long(scan: EnvelopeScan) -> RefusedMessage:
    return _refused(scan, INVALID_REQUEST, f"a message of more than {MESSAGE_MAX} bytes")


def request_id(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the id of a request as JSON, if an error can be answered under it.

    A malformed response has none: its id is one of ours, and the client may have a request of its
    own under the same.
    """
    if "id" not in message or ("method" not in message and message.keys() & {"result", "error"}):
        return ()
    match message["id"]:
        case bool():
            return ()
        case int() | str() as given if len(str(given)) <= ID_MAX:
            return (json.dumps(given),)
        case float() as given if math.isfinite(given):
            return (json.dumps(given),)
    return ()


def refused(
    message: Mapping[str, Any], reason: str, *, code: int = INVALID_REQUEST
) -> RefusedMessage:
    """Refuse a message that was read."""
    return RefusedMessage(code=code, reason=reason, ids=request_id(message))


def _refused(scan: EnvelopeScan, code: int, reason: str) -> RefusedMessage:
    return RefusedMessage(code=code, reason=reason, ids=scan.ids())


def _scanned(data: bytes) -> EnvelopeScan:
    scan = EnvelopeScan()
    scan.feed(data)
    return scan


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)


def _check_text(data: bytes, message: object) -> None:
    """Raise ValueError for a lone surrogate, which no UTF-8 can hold."""
    if _SURROGATE in data.lower():
        json.dumps(message, ensure_ascii=False).encode()


_SURROGATE = b"\\ud"


def _checked(message: object) -> dict[str, Any] | RefusedMessage:
    if isinstance(message, list):
        ids = [each for one in message if isinstance(one, dict) for each in request_id(one)]
        return RefusedMessage(
            code=INVALID_REQUEST,
            reason="a batch; send each message by itself",
            ids=tuple(dict.fromkeys(ids))[:BATCH_MAX],
        )
    if not isinstance(message, dict):
        return RefusedMessage(code=INVALID_REQUEST, reason="expected a JSON object")
    if message.get("jsonrpc") != "2.0":
        return refused(message, 'expected `"jsonrpc": "2.0"`')
    if "method" not in message:
        if message.keys() & {"result", "error"}:
            return message
        return refused(message, "expected a `method`")
    if not isinstance(message["method"], str):
        return refused(message, "expected a text as `method`")
    if not isinstance(message.get("params"), dict | None):
        return refused(message, "expected an object as `params`")
    if "id" in message and not _is_id(message["id"]):
        return refused(message, f"expected a text or an integer of at most {ID_MAX} signs as `id`")
    return message


def _is_id(given: object) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | str):
        return False
    return len(str(given)) <= ID_MAX


_MEMBERS = frozenset({"method", "result", "error"})
"""The members that tell a request from a response."""
STEPS_MAX = 500_000
"""Parts of a message that are looked at one by one; what comes after has no id for us."""
_BOM = b"\xef\xbb\xbf"
_TOKEN = regex(rb"[{}\[\]:,]|[^\s{}\[\]:,\"]+")
_NESTED = regex(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")++', re.DOTALL)
"""What needs no look inside of a member: whole strings, and what is between brackets."""
_END_OF_STRING = regex(rb'["\\]')
_NUMBER = regex(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_RAW_MAX = 6 * ID_MAX + 2
"""Bytes of a name or an id, each character as an escape."""


class EnvelopeScan:
    """Finds the id of a JSON object whose bytes come in pieces, and need not be valid or fit.

    Only members of the object itself count, up to the first break in its structure. Constant
    memory, so that it also reads what is too long to keep.
    """

    def __init__(self) -> None:
        self.deepest = 0
        self._steps = 0
        self._ids: list[bytes] = []
        self._names: set[str] = set()
        self._curly = 0
        self._square = 0
        self._string: bytearray | None = None
        self._is_escaped = False
        self._name: str | None = None
        self._expects = "start"
        self._word = b""
        """A number or a word that the next piece may continue."""

    def ids(self) -> tuple[str, ...]:
        """Return the id as JSON, if it can be read for sure, and the message is not a response."""
        is_response = "method" not in self._names and self._names & {"result", "error"}
        if is_response or len(set(self._ids)) != 1:
            return ()
        [raw] = set(self._ids)
        try:
            message = {"id": json.loads(raw.decode(), parse_constant=_not_json)}
            _check_text(raw, message)
        except ValueError:
            return ()
        found = request_id(message)
        # A number as it was written: `1.0` is not `1` for every client.
        return (raw.decode(),) if found and _NUMBER.fullmatch(raw) else found

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        at = 0
        while at < len(data) and self._expects != "broken":
            self._steps += 1
            if self._steps > STEPS_MAX:
                self._expects = "broken"
            elif self._string is not None:
                at = self._in_string(self._string, data, at)
            elif self._depth > 1 and (nested := _NESTED.match(data, at)):
                at = nested.end()
            else:
                at = self._to_string(data, at)

    def _to_string(self, data: bytes, at: int) -> int:
        """Read up to the next string, and return where that goes on."""
        quote = data.find(b'"', at)
        end = len(data) if quote < 0 else quote
        self._between(data[at:end], is_last=quote < 0)
        if quote >= 0:
            self._end_word()
            self._string = bytearray(b'"')
        return end + 1

    def _in_string(self, string: bytearray, data: bytes, at: int) -> int:
        """Read on in a string, and return where it continues."""
        if self._is_escaped:
            self._is_escaped = False
            self._keep(data[at : at + 1])
            return at + 1
        found = _END_OF_STRING.search(data, at)
        if found is None:
            self._keep(data[at:])
            return len(data)
        self._keep(data[at : found.end()])
        if found[0] == b"\\":
            self._is_escaped = True
        else:
            self._string = None
            if self._depth == 1:
                self._scalar(bytes(string), is_string=True)
        return found.end()

    def _keep(self, part: bytes) -> None:
        if self._string is not None and self._depth == 1 and len(self._string) <= _RAW_MAX:
            self._string += part[: _RAW_MAX + 1]

    @property
    def _depth(self) -> int:
        return self._curly + self._square

    def _between(self, part: bytes, *, is_last: bool) -> None:
        """Read what is outside of strings."""
        closed = part.count(b"}") + part.count(b"]")
        opened = part.count(b"{") + part.count(b"[")
        is_known = self.deepest > DEPTH_MAX or self._depth + opened <= self.deepest
        if self._depth - closed > 1 and is_known:
            self._curly += part.count(b"{") - part.count(b"}")
            self._square += part.count(b"[") - part.count(b"]")
            return
        for found in _TOKEN.finditer(part):
            token = found[0]
            self._steps += 1
            if token in b"{}[]:,":
                self._end_word()
                self._mark(token)
            elif self._depth == 1:
                is_joined = bool(self._word) and found.start() == 0
                if not is_joined:
                    self._end_word()
                self._word = (self._word + token)[: _RAW_MAX + 1]
                if not (is_last and found.end() == len(part)):
                    self._end_word()
            elif self._depth == 0 and not (self._expects == "start" and token in _BOM):
                self._expects = "broken"
            if self._expects == "broken" or self._steps > STEPS_MAX:
                return
        if self._word and part[:1].isspace():
            self._end_word()

    def _end_word(self) -> None:
        if self._word:
            word, self._word = self._word, b""
            self._scalar(word, is_string=False)

    def _mark(self, token: bytes) -> None:
        depth = self._depth
        if token in b"{[":
            self._open(token, depth)
        elif token in b"}]":
            self._curly -= token == b"}"
            self._square -= token == b"]"
            if depth == 2:
                is_whole = (self._curly, self._square) == (1, 0)
                self._expects = "next" if is_whole else "broken"
            elif depth <= 1:
                is_end = token == b"}" and self._expects in ("name", "next")
                self._expects = "end" if is_end else "broken"
        elif depth == 1:
            expected = {b":": "colon", b",": "next"}[token]
            following = {b":": "value", b",": "name"}[token]
            self._expects = following if self._expects == expected else "broken"

    def _open(self, token: bytes, depth: int) -> None:
        if depth == 0 and (token != b"{" or self._expects != "start"):
            # What follows the object is another message: whose id would it be?
            self._ids.clear()
            self._expects = "broken"
            return
        if depth == 1 and self._expects != "value":
            self._expects = "broken"
            return
        if depth == 1 and self._name == "id":
            self._ids += [b"{}", b"[]"]
        self._curly += token == b"{"
        self._square += token == b"["
        self.deepest = max(self.deepest, depth + 1)
        if depth == 0:
            self._expects = "name"

    def _scalar(self, raw: bytes, *, is_string: bool) -> None:
        """Take a string, a number or a word of the object itself."""
        if self._expects == "name" and is_string:
            self._take_name(raw)
            self._expects = "colon"
        elif self._expects == "value":
            if self._name == "id":
                self._ids.append(raw)
            self._expects = "next"
        else:
            if not is_string:
                # `5 6`: neither is the id for sure.
                self._ids.clear()
            self._expects = "broken"

    def _take_name(self, raw: bytes) -> None:
        try:
            self._name = str(json.loads(raw.decode()))
        except ValueError:
            self._name = None
            return
        if self._name in _MEMBERS:
            self._names.add(self._name)

"""JSON-RPC 2.0 of the executor: strict JSON, messages, errors, framed bytes and dispatch.

The input was written by a skill, so everything is bounded before it is parsed.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from skillhouse.floor import InternalFaultError, SkillhouseError, as_error
from skillhouse.floor.documents import finite, no_constant, unique_members
from skillhouse.floor.regex import regex
from skillhouse.sandbox.code_call import INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError

FRAME_BYTES = 8 << 20
"""Longest message (docs/reference/limits.md)."""
DEPTH = 64
"""Deepest nesting of a message (docs/reference/limits.md)."""
VALUES = 100_000
"""Most values of a message; each costs the core about 0.5 µs and 60 bytes."""
LENGTH = struct.Struct("!I")
"""The header of each message on a socket: its length in bytes."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
"""All of these, and INTERNAL_ERROR: JSON-RPC 2.0, section 5.1."""
STALE_CAPABILITY = -32001
"""The capability belongs to another call, or to one that has ended."""
REFUSED = -32003
"""A rule or a person refused the request."""

_STRING = regex(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NO_ID = object()


class RpcRequest(Struct, frozen=True, kw_only=True):
    """A request or, without an id, a notification."""

    method: str
    params: Any
    """A mapping, a list or None."""
    id: Any
    """A string, a number or None; `is_notification` is True when there was none."""
    is_notification: bool = False


class RpcResponse(Struct, frozen=True, kw_only=True):
    """One answer of JSON-RPC 2.0."""

    id: Any
    result: Any = None
    error: RpcError | None = None


def parse(data: bytes) -> Any:
    """Return strict JSON as a value, or PARSE_ERROR.

    Also refused: bytes that are not UTF-8, duplicate keys, infinite numbers, lone surrogates, and
    more than the bounds above.

    >>> parse(b'{"a": [1, true]}')
    {'a': [1, True]}
    """
    if len(data) > FRAME_BYTES:
        raise RpcError(PARSE_ERROR, f"expected at most {FRAME_BYTES} bytes, got {len(data)}")
    _check_size(data)
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=unique_members,
            parse_constant=no_constant,
            parse_float=finite,
        )
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"expected JSON: {str(error)[:200]}") from error
    return value


def _check_size(data: bytes) -> None:
    openers = data.count(b"{") + data.count(b"[")
    if openers <= DEPTH and data.count(b",") <= VALUES:
        return
    bare = _STRING.sub(b"", data)
    brackets = bare.translate(None, _NOT_BRACKETS)
    if bare.count(b",") + len(brackets) // 2 > VALUES:
        raise RpcError(PARSE_ERROR, f"expected at most {VALUES} values")
    depth = 0
    for byte in brackets:
        depth += 1 if byte in b"[{" else -1
        if depth > DEPTH:
            raise RpcError(PARSE_ERROR, f"expected at most {DEPTH} levels")


def message(value: Any) -> RpcRequest | RpcResponse:
    """Return a parsed message as a request or a response, or INVALID_REQUEST."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'expected an object with "jsonrpc": "2.0"')
    number = value.get("id", _NO_ID)
    # A boolean is an int in Python, and not a number in JSON-RPC (section 4).
    if number is not _NO_ID and (
        isinstance(number, bool) or not isinstance(number, str | int | float | None)
    ):
        raise RpcError(INVALID_REQUEST, "expected a text, a number or null as id")
    if "method" in value:
        return _request(value, number)
    return _response(value, number)


def _request(value: Mapping[str, Any], number: Any) -> RpcRequest:
    if value.keys() - {"jsonrpc", "method", "params", "id"}:
        raise RpcError(INVALID_REQUEST, "expected no other keys than those of JSON-RPC")
    method, params = value["method"], value.get("params")
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "expected a text as method")
    if "params" in value and not isinstance(params, dict | list):
        raise RpcError(INVALID_REQUEST, "expected an object or a list as params")
    absent = number is _NO_ID
    return RpcRequest(
        method=method, params=params, id=None if absent else number, is_notification=absent
    )


def _response(value: Mapping[str, Any], number: Any) -> RpcResponse:
    if number is _NO_ID or value.keys() - {"jsonrpc", "result", "error", "id"}:
        raise RpcError(INVALID_REQUEST, "expected a method, or an id with a result or an error")
    if ("result" in value) == ("error" in value):
        raise RpcError(INVALID_REQUEST, "expected either a result or an error")
    if "result" in value:
        return RpcResponse(id=number, result=value["result"])
    error = value["error"]
    if not isinstance(error, dict) or error.keys() - {"code", "message", "data"}:
        raise RpcError(INVALID_REQUEST, "expected an object as error")
    code, text, data = error.get("code"), error.get("message"), error.get("data")
    if isinstance(code, bool) or not isinstance(code, int) or not isinstance(text, str):
        raise RpcError(INVALID_REQUEST, "expected a number and a text in an error")
    data = data if isinstance(data, dict) else {}
    reason = data.get("reason")
    rpc_error = RpcError(
        code,
        text,
        reason=reason if isinstance(reason, str) else "",
        frames=data.get("frames"),
        unreached=data.get("unreached"),
    )
    return RpcResponse(id=number, error=rpc_error)


def request_value(method: str, params: Any, *, id: Any = None) -> dict[str, Any]:  # noqa: A002
    """Return a request; without an id it is a notification."""
    request = {"jsonrpc": "2.0", "method": method, "params": params}
    return request if id is None else request | {"id": id}


def result_value(id: Any, result: Any) -> dict[str, Any]:  # noqa: A002
    return {"jsonrpc": "2.0", "result": result, "id": id}


def error_value(id: Any, error: RpcError) -> dict[str, Any]:  # noqa: A002
    return {"jsonrpc": "2.0", "error": error.value(), "id": id}


def packed(value: Any) -> bytes:
    """Return plain values as JSON; INTERNAL_ERROR if they are not, or beyond FRAME_BYTES."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise RpcError(INTERNAL_ERROR, f"not JSON: {str(error)[:200]}") from error
    if len(data) > FRAME_BYTES:
        raise RpcError(INTERNAL_ERROR, f"expected at most {FRAME_BYTES} bytes, got {len(data)}")
    return data


def framed(value: Any) -> bytes:
    data = packed(value)
    return LENGTH.pack(len(data)) + data


class Frames:
    def __init__(self, *, max_bytes: int = FRAME_BYTES) -> None:
        self._held = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> None:
        self._held += data

    def next(self) -> bytes | None:
        """Return the next message, or None while it is incomplete."""
        if len(self._held) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._held)
        if not 0 < length <= self._max_bytes:
            message = f"expected a frame of 1 to {self._max_bytes} bytes, got {length}"
            raise RpcError(PARSE_ERROR, message)
        end = LENGTH.size + length
        if len(self._held) < end:
            return None
        frame = bytes(self._held[LENGTH.size : end])
        del self._held[:end]
        return frame

    @property
    def is_empty(self) -> bool:
        return not self._held


BATCH = 50
"""Most requests of one batch (JSON-RPC 2.0, section 6 sets no bound)."""

Method = Callable[[Any], Awaitable[Any]]
"""Takes the params (an object, a list or None), returns plain values or raises `RpcError`."""


def full_name(name: str, known: Iterable[str]) -> str:
    """Return the full name of the one tool that a name without its skill's means; else the name.

    >>> full_name("get_balance", ["crypto-balance:get_balance", "crypto-price:get_price"])
    'crypto-balance:get_balance'

    Raises:
        RpcError: several tools are called so; it names them.
    """
    if ":" in name:
        return name
    found = [one for one in known if one.rpartition(":")[2] == name]
    if len(found) > 1:
        message = f"several skills have a tool `{name[:80]}`: {', '.join(found)}"
        raise RpcError(INVALID_PARAMS, message)
    return found[0] if found else name


class NotBegunError(RpcError):
    """An executor that is full or ends: of this request nothing was begun."""


async def respond(data: bytes, methods: Mapping[str, Method]) -> bytes | None:
    """Return the answer to a request or a batch; None when there were only notifications.

    Raises:
        NotBegunError: the method of a single request did.
    """
    try:
        value = parse(data)
    except RpcError as error:
        return packed(error_value(None, error))
    if not isinstance(value, list):
        answer = await _answered(value, methods, is_single=True)
        return None if answer is None else _fitting(answer)
    if not 0 < len(value) <= BATCH:
        refused = RpcError(INVALID_REQUEST, f"expected a batch of 1 to {BATCH} requests")
        return packed(error_value(None, refused))
    answers = [answer for one in value if (answer := await _answered(one, methods)) is not None]
    return _fitting(answers) if answers else None


def _fitting(answer: Any) -> bytes:
    try:
        return packed(answer)
    except RpcError as error:
        number = answer.get("id") if isinstance(answer, dict) else None
        return packed(error_value(number, error))


async def _answered(
    value: Any, methods: Mapping[str, Method], *, is_single: bool = False
) -> dict[str, Any] | None:
    try:
        request = message(value)
    except RpcError as error:
        number = value.get("id") if isinstance(value, dict) else None
        is_plain = isinstance(number, str | int | float) and not isinstance(number, bool)
        return error_value(number if is_plain else None, error)
    if not isinstance(request, RpcRequest):
        return error_value(None, RpcError(INVALID_REQUEST, "expected a request"))
    try:
        answer = result_value(request.id, await _run(request, methods))
    except NotBegunError as error:
        if is_single:
            raise
        answer = error_value(request.id, error)
    except RpcError as error:
        answer = error_value(request.id, error)
    except SkillhouseError as error:
        answer = error_value(request.id, RpcError(INTERNAL_ERROR, str(error)))
    except Exception as error:  # noqa: BLE001 - a process edge.
        # The text could describe the host; whoever runs it has the report.
        found = as_error(error)
        report = found.report if isinstance(found, InternalFaultError) else ""
        answer = error_value(request.id, RpcError(INTERNAL_ERROR, "internal error", report=report))
    return None if request.is_notification else answer


async def _run(request: RpcRequest, methods: Mapping[str, Method]) -> Any:
    method = methods.get(request.method)
    if method is None:
        raise RpcError(METHOD_NOT_FOUND, f"unknown method `{request.method[:40]}`")
    return await method(request.params)

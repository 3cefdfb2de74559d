"""JSON-RPC 2.0 for a server: bytes of a request in, bytes of the answer out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from skillhouse.cells.rpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcError,
    RpcRequest,
    error_value,
    message,
    packed,
    parse,
    result_value,
)
from skillhouse.floor import SkillhouseError

BATCH = 50
"""Most requests of one batch (JSON-RPC 2.0, section 6 sets no bound)."""

Method = Callable[[Any], Awaitable[Any]]
"""Takes the params (an object, a list or None), returns plain values or raises `RpcError`."""


async def respond(data: bytes, methods: Mapping[str, Method]) -> bytes | None:
    """Return the answer to a request or a batch; None when there were only notifications."""
    try:
        value = parse(data)
    except RpcError as error:
        return packed(error_value(None, error))
    if not isinstance(value, list):
        answer = await _answered(value, methods)
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


async def _answered(value: Any, methods: Mapping[str, Method]) -> dict[str, Any] | None:
    try:
        asked = message(value)
    except RpcError as error:
        number = value.get("id") if isinstance(value, dict) else None
        is_plain = isinstance(number, str | int | float) and not isinstance(number, bool)
        return error_value(number if is_plain else None, error)
    if not isinstance(asked, RpcRequest):
        return error_value(None, RpcError(INVALID_REQUEST, "expected a request"))
    try:
        answer = result_value(asked.id, await _run(asked, methods))
    except RpcError as error:
        answer = error_value(asked.id, error)
    except SkillhouseError as error:
        answer = error_value(asked.id, RpcError(INTERNAL_ERROR, str(error)))
    except Exception:  # noqa: BLE001 - a process edge; the text could tell about the host.
        answer = error_value(asked.id, RpcError(INTERNAL_ERROR, "internal error"))
    return None if asked.is_notification else answer


async def _run(asked: RpcRequest, methods: Mapping[str, Method]) -> Any:
    method = methods.get(asked.method)
    if method is None:
        raise RpcError(METHOD_NOT_FOUND, f"unknown method `{asked.method[:40]}`")
    return await method(asked.params)

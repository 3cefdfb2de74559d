"""Messages of JSON-RPC 2.0: strict JSON, framing, batches and errors."""

from __future__ import annotations

import json
import re
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.extensions.cells import RpcError, respond
from skillhouse.extensions.cells.rpc import (
    DEPTH,
    FRAME_BYTES,
    INVALID_REQUEST,
    PARSE_ERROR,
    VALUES,
    Frames,
    RpcRequest,
    RpcResponse,
    error_value,
    framed,
    message,
    packed,
    parse,
    request_value,
    result_value,
)

VALUES_OF_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(value=VALUES_OF_JSON)
def test_what_is_packed_is_parsed_as_it_was(value: Any):
    assert parse(packed(value)) == value


@pytest.mark.slow
@given(values=st.lists(VALUES_OF_JSON, max_size=4), cut=st.integers(1, 9))
def test_frames_come_whole_however_they_are_cut(values: list[Any], cut: int):
    data = b"".join(framed(value) for value in values)
    frames, found = Frames(), []
    for start in range(0, len(data), cut):
        frames.feed(data[start : start + cut])
        while (frame := frames.next()) is not None:
            found.append(parse(frame))
    assert found == values
    assert frames.is_empty


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b"[Infinity]",
        b"-1e999",
        b'{"a": 1, "a": 2}',
        b'{"x": {"a": 1, "b": 2, "a": 3}}',
        b'"\xff"',
        b'"\\ud800"',
        b"\xef\xbb\xbf{}",
        b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1),
        b"[" * 1_000_000,
        b"[" + b"1," * VALUES + b"1,1]",
        b"[" + b"{}," * VALUES + b"{}]",
        b"1" * 5_000,
        b'"' + b"a" * FRAME_BYTES + b'"',
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_strict_json_is_refused(data: bytes):
    with pytest.raises(RpcError) as caught:
        parse(data)
    assert caught.value.code == PARSE_ERROR


def test_what_is_just_within_the_bounds_is_taken():
    deep = b"[" * DEPTH + b"]" * DEPTH
    assert packed(parse(deep)) == deep
    # What looks like brackets in a text is none.
    text = '[{,\\"' * VALUES
    assert parse(packed([text])) == [text]


@pytest.mark.parametrize("length", [0, FRAME_BYTES + 1, 2**32 - 1])
def test_a_frame_that_announces_too_much_is_refused_before_it_is_there(length: int):
    frames = Frames()
    frames.feed(length.to_bytes(4, "big"))
    with pytest.raises(RpcError, match="expected a frame"):
        frames.next()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (request_value("m", {"a": 1}, id=1), RpcRequest(method="m", params={"a": 1}, id=1)),
        (
            request_value("m", [1]),
            RpcRequest(method="m", params=[1], id=None, is_notification=True),
        ),
        (
            {"jsonrpc": "2.0", "method": "m", "id": None},
            RpcRequest(method="m", params=None, id=None),
        ),
        (result_value("x", None), RpcResponse(id="x")),
    ],
)
def test_messages_are_told_apart(value: Any, expected: RpcRequest | RpcResponse):
    assert message(value) == expected


def test_an_error_keeps_its_code_text_and_reason():
    sent = RpcError(-32001, "stale", reason="stale_capability")
    got = message(error_value(7, sent))
    assert isinstance(got, RpcResponse)
    assert got.error is not None
    assert got.error.value() == sent.value()


@pytest.mark.parametrize(
    "value",
    [
        1,
        [],
        {},
        {"jsonrpc": "1.0", "method": "m", "id": 1},
        {"jsonrpc": "2.0", "method": 1, "id": 1},
        {"jsonrpc": "2.0", "method": "m", "id": True},
        {"jsonrpc": "2.0", "method": "m", "id": []},
        {"jsonrpc": "2.0", "method": "m", "params": 1, "id": 1},
        {"jsonrpc": "2.0", "method": "m", "id": 1, "more": 1},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": 1, "error": {"code": 1, "message": ""}},
        {"jsonrpc": "2.0", "id": 1, "error": 1},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "1", "message": ""}},
        {"jsonrpc": "2.0", "result": 1},
    ],
)
def test_what_is_no_message_is_refused(value: Any):
    with pytest.raises(RpcError) as caught:
        message(value)
    assert caught.value.code == INVALID_REQUEST


def asked(data: bytes) -> Any:
    """Return what a server with three methods answers."""

    async def echo(params: Any) -> Any:
        return params

    async def refuse(params: Any) -> Any:
        raise RpcError(-32602, "bad params")

    async def fail(params: Any) -> Any:
        raise KeyError("a secret path")

    async def call() -> bytes | None:
        return await respond(data, {"echo": echo, "refuse": refuse, "fail": fail})

    answer = anyio.run(call)
    return None if answer is None else json.loads(answer)


def failed(code: int, text: str, number: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": {"code": code, "message": text}, "id": number}


@pytest.mark.req("S002-13", "S002-14")
def test_a_request_is_answered_with_its_id():
    assert asked(packed(request_value("echo", {"a": [1]}, id="x"))) == result_value("x", {"a": [1]})
    assert asked(packed(request_value("other", {}, id=1))) == failed(
        -32601, "unknown method `other`", 1
    )
    assert asked(packed(request_value("refuse", {}, id=1))) == failed(-32602, "bad params", 1)
    # The text of what went wrong stays here, and the report has a name.
    answer = asked(packed(request_value("fail", {}, id=1)))
    report = answer["error"].pop("data")["report"]
    assert answer == failed(-32603, "internal error", 1)
    assert re.fullmatch("[0-9a-f]{8}", report)
    assert asked(b"{")["error"]["code"] == -32700
    assert asked(b"{}")["error"]["code"] == -32600
    assert asked(b"{}")["id"] is None


@pytest.mark.req("S002-15")
def test_batches_and_notifications_are_as_the_specification_says():
    one, two = request_value("echo", [1], id=1), request_value("echo", [2], id=2)
    silent = request_value("echo", [3])
    assert asked(packed([one, silent, two, 1])) == [
        result_value(1, [1]),
        result_value(2, [2]),
        failed(-32600, 'expected an object with "jsonrpc": "2.0"'),
    ]
    assert asked(packed(silent)) is None
    assert asked(packed([silent, silent])) is None
    assert asked(packed(request_value("fail", []))) is None
    assert asked(b"[]")["error"]["code"] == -32600
    assert asked(packed([one] * 51))["error"]["code"] == -32600

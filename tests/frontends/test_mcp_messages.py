"""Tests of reading JSON-RPC messages, and of the id under which a refused one is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc_message_adapter

from skillhouse.frontends.mcp.messages import (
    BATCH_MAX,
    DEPTH_MAX,
    ID_MAX,
    MESSAGE_MAX,
    EnvelopeScan,
    RefusedMessage,
    read_message,
)

HEAD = b'{"jsonrpc": "2.0", '
PARSE, INVALID = -32700, -32600


def ids(data: bytes) -> tuple[str, ...]:
    """Return the ids that a refusal of `data` answers; fail if it is accepted."""
    found = read_message(data)
    assert isinstance(found, RefusedMessage), found
    return found.ids


def test_valid_messages_are_read() -> None:
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": "a" * ID_MAX, "method": "x", "params": {"id": 5}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}},
        {"jsonrpc": "2.0", "id": 10**1000, "method": "x", "params": None},
    ):
        assert read_message(json.dumps(message).encode()) == message


@pytest.mark.parametrize(
    ("rest", "code", "expected"),
    [
        # Not JSON after the id, before it, and within parameters.
        (b'"id": 5, "method": "x", broken', PARSE, ("5",)),
        (b'"id": 5 "method": "x"}', PARSE, ("5",)),
        (b'"id": 5, "method": "x"', PARSE, ("5",)),
        (b'"method": "x", "params": {"a": tru}, "id": "b"}', PARSE, ('"b"',)),
        (b'"id": 5, "method": "x", "params": {"a": NaN}}', PARSE, ("5",)),
        (b'"id": 5, "method": "x", "params": {"a": "\xff"}}', PARSE, ("5",)),
        (b'"id": 5, "method": "x", "params": {"a": "\\ud800"}}', PARSE, ("5",)),
        (b'"id": 5, "method": "x", "params": {"a": "line\nbreak"}}', PARSE, ("5",)),
        (b'"id": 5, "method": "x", "params": {"a": 1' + b"0" * 5000 + b"}}", PARSE, ("5",)),
        # The id is not whole, not the message's own, or not one.
        (b'"id": 12', PARSE, ()),
        (b'"id": "12', PARSE, ()),
        (b'"id": 5 6, "method": "x"}', PARSE, ()),
        (b'"params": {"id": 5}, "method": "x", broken', PARSE, ()),
        (b'"params": {"a": "unclosed}, "id": 5}', PARSE, ()),
        (b'"params": [1, 2}, "id": 5}', PARSE, ()),
        (b'"id": 5, "method": "x"}{"id": 6}', PARSE, ()),
        (b'"id": 5, "id": 6, "method": "x"}', INVALID, ()),
        (b'"id": 5, "\\u0069d": 6, "method": "x"}', INVALID, ()),
        (b'"id": {}, "id": 6, "method": "x"}', INVALID, ()),
        (b'"id": 5, "method": "x", "method": "y"}', INVALID, ("5",)),
        (b'"id": "\\ud800", "method": "x"}', PARSE, ()),
        # No request.
        (b'"id": 5}', INVALID, ("5",)),
        (b'"id": 5, "method": 7}', INVALID, ("5",)),
        (b'"id": 5, "method": "x", "params": [1]}', INVALID, ("5",)),
        (b'"id": 5, "method": "x", "params": "a"}', INVALID, ("5",)),
        (b'"id": 1.5, "method": "x"}', INVALID, ("1.5",)),
        (b'"id": 1e999, "method": "x"}', INVALID, ()),
        (b'"id": null, "method": "x"}', INVALID, ()),
        (b'"id": true, "method": "x"}', INVALID, ()),
        (b'"id": [5], "method": "x"}', INVALID, ()),
        (b'"id": "' + b"a" * (ID_MAX + 1) + b'", "method": "x"}', INVALID, ()),
        # A response that is broken answers one of our ids, not one of the client's.
        (b'"id": 5, "result": {', PARSE, ()),
        (b'"error": 1, "id": 5, ,', PARSE, ()),
    ],
)
def test_a_refused_message_is_answered_under_its_own_id(
    rest: bytes, code: int, expected: tuple[str, ...]
) -> None:
    found = read_message(HEAD + rest)
    assert isinstance(found, RefusedMessage)
    assert (found.code, found.ids) == (code, expected)


def test_other_versions_batches_and_scalars_are_refused() -> None:
    assert ids(b'{"jsonrpc": "1.0", "id": 5, "method": "x"}') == ("5",)
    assert ids(b'{"id": 5, "method": "x"}') == ("5",)
    assert ids(b'{"jsonrpc": "1.0", "id": 5, "result": {}}') == ()
    assert ids(b'\xef\xbb\xbf{"id": 5, "method": "x"}') == ("5",)
    assert ids('{"id": 5, "method": "x"}'.encode("utf-16")) == ()
    for scalar in (b"null", b"5", b'"a"', b"{}", b"[]", b""):
        assert ids(scalar) == ()
    batch = [{"jsonrpc": "2.0", "id": at, "method": "x"} for at in range(BATCH_MAX + 5)]
    mixed = [{"method": "x"}, {"id": 1, "result": {}}, 5, *batch, batch[0]]
    assert ids(json.dumps(mixed).encode()) == tuple(str(at) for at in range(BATCH_MAX))


@pytest.mark.slow
def test_a_message_that_is_too_deep_is_answered_wherever_its_id_is() -> None:
    for nested in (b"[" * 99 + b"]" * 99, b'{"a":' * 99 + b"1" + b"}" * 99, b"[" * 1_000_000):
        for data in (
            HEAD + b'"id": 5, "method": "x", "params": ' + nested,
            HEAD + b'"method": "x", "params": {"a": ' + nested + b'}, "id": 5}',
        ):
            is_read = data.endswith(b"}") and nested[-1:] != b"["
            assert ids(data) == (("5",) if is_read or data.find(b'"id"') < 30 else ())
    deep: Any = {}
    for _ in range(DEPTH_MAX - 2):
        deep = {"a": deep}
    message = {"jsonrpc": "2.0", "id": 5, "method": "x", "params": deep}
    assert read_message(json.dumps(message).encode()) == message
    assert ids(json.dumps({**message, "params": {"a": deep}}).encode()) == ("5",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "filler",
    [b'"' + b"a" * MESSAGE_MAX + b'"', b'["", {"id": 9}' + b', "x"' * 2_100_000 + b"]"],
)
def test_a_message_that_is_too_long_is_answered_wherever_its_id_is(filler: bytes) -> None:
    assert ids(HEAD + b'"id": 5, "method": "x", "params": {"a": ' + filler) == ("5",)
    assert ids(HEAD + b'"method": "x", "params": {"a": ' + filler + b'}, "id": 5}') == ("5",)


@pytest.mark.slow
@given(
    message=st.dictionaries(
        st.sampled_from(["id", "method", "params", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["id", "}", '"', "a"]), inner, max_size=3)
            ),
        ),
    ),
    size=st.integers(1, 9),
    cut=st.integers(0, 200),
)
def test_the_scan_finds_what_the_parser_finds_in_any_pieces(
    message: dict[str, Any], size: int, cut: int
) -> None:
    """And of a message that is cut off it finds that id or none."""
    data = json.dumps(message, ensure_ascii=False).encode()

    def scanned(part: bytes) -> tuple[str, ...]:
        scan = EnvelopeScan()
        for at in range(0, len(part), size):
            scan.feed(part[at : at + size])
        return scan.ids()

    given_id = message.get("id")
    is_id = isinstance(given_id, int | str) and not isinstance(given_id, bool)
    whole = (json.dumps(given_id),) if is_id else ()
    assert [json.loads(each) for each in scanned(data)] == [json.loads(each) for each in whole]
    assert scanned(data[:cut]) in {(), scanned(data)}


@pytest.mark.slow
@given(data=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_what_is_read_is_what_the_sdk_takes(data: bytes) -> None:
    found = read_message(HEAD + b'"method": "x", "params": {"a": ' + data + b"}}")
    if not isinstance(found, RefusedMessage):
        jsonrpc_message_adapter.validate_python(found, by_name=False)

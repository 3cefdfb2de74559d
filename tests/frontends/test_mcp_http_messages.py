"""Tests of refused messages, and of the start of streams, over streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest

from skillhouse.frontends.mcp.http_messages import MessageFilter
from skillhouse.frontends.mcp.messages import MESSAGE_MAX
from tests.frontends.mcp_peer import PATIENCE_SECONDS, Peer, up

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
RESUMABLE = "2025-11-25"


class McpHttp:
    """A client of `/mcp` that sends what it is given."""

    def __init__(self, http: httpx2.Client, address: str, token: str) -> None:
        self.http = http
        self.url = f"{address}/mcp"
        self.headers = {**ACCEPT, "authorization": f"Bearer {token}"}

    def post(self, body: Any, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(self.url, content=content, headers={**self.headers, **given})

    def new_session(self, version: str = RESUMABLE) -> dict[str, str]:
        """Return the headers of a session of its own."""
        params = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        answer = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        session = {
            "mcp_session_id": answer.headers["mcp-session-id"],
            "mcp_protocol_version": version,
        }
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
        return session

    def resumed(self, session: dict[str, str], event: str) -> list[str]:
        """Return the first lines of a stream that is resumed after an event."""
        given = {name.replace("_", "-"): value for name, value in session.items()}
        headers = {**self.headers, **given, "last-event-id": event}
        with self.http.stream("GET", self.url, headers=headers) as answer:
            found = []
            for line in answer.iter_lines():
                found.append(line)
                if "result" in line:
                    break
            return found


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpHttp]:
    with (
        up(Peer(tmp_path_factory.mktemp("http"))) as (address, token),
        httpx2.Client(timeout=PATIENCE_SECONDS) as http,
    ):
        yield McpHttp(http, address, token)


def request(request_id: Any, method: str = "tools/list", **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, **members}


@pytest.mark.slow
def test_every_refusal_has_the_id_of_its_request(client: McpHttp) -> None:
    session = client.new_session()
    modern = {"mcp_protocol_version": "2026-07-28"}
    long = b'{"method": "x", "params": {"a": "' + b"a" * MESSAGE_MAX + b'"}, "id": 9}'
    for body, headers, status, request_id in (
        (b'{"jsonrpc": "2.0", "id": 1, "method": ', session, 400, 1),
        (b'{"jsonrpc": "2.0", "id": 2, "method": ', modern, 400, 2),
        (b'{"jsonrpc": "2.0", "params": {"id": 3}, ', session, 400, None),
        ([request(4)], session, 400, 4),
        ([request(5), request(6)], session, 400, None),
        (request(7, params=[]), session, 400, 7),
        (request(8.5), session, 400, 8.5),
        (long, session, 413, 9),
        (request("a"), {}, 400, "a"),
        (request("b"), {"mcp_session_id": "none"}, 404, "b"),
        (request("c"), {**session, "accept": "application/json"}, 406, "c"),
        (request("d"), {**modern, "accept": "text/plain"}, 406, "d"),
        (request("e"), {**session, "content_type": "text/plain"}, 400, "e"),
        (request("f"), modern, 400, "f"),
        (request("g"), {"mcp_protocol_version": "1999-01-01"}, 400, "g"),
    ):
        answer = client.post(body, **headers)
        value = answer.json()
        assert (answer.status_code, value["id"]) == (status, request_id), value
        assert value["jsonrpc"] == "2.0"
        assert value["error"]["message"]


@pytest.mark.slow
def test_a_ping_is_answered_before_there_is_a_session(client: McpHttp) -> None:
    answer = client.post(request(1, "ping"))
    assert (answer.status_code, answer.json()) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})


@pytest.mark.slow
def test_a_message_within_the_bound_is_taken(client: McpHttp) -> None:
    params = {"a": "a" * (MESSAGE_MAX - 200)}
    answer = client.post(request(1, "ping", params=params), **client.new_session())
    assert '"result":{}' in answer.text


@pytest.mark.slow
def test_a_stream_begins_with_an_id_and_retry_and_can_be_resumed(client: McpHttp) -> None:
    session = client.new_session()
    first, second, *_ = client.post(request(1, "ping"), **session).text.split("\r\n\r\n")
    head = dict(line.split(": ", 1) for line in first.split("\r\n"))
    assert (head["data"], head["retry"]) == ("", "1000")
    assert '"result":{}' in second
    assert client.resumed(session, head["id"])[-1] == 'data: {"jsonrpc":"2.0","id":1,"result":{}}'
    # Another session has requests with the same ids, and sees none of these.
    assert client.resumed(client.new_session(), head["id"]) == []
    for odd in ("0", "99999", "-1", "x", "9" * 400):
        assert client.resumed(session, odd) == []


@pytest.mark.slow
def test_older_clients_get_no_event_without_data(client: McpHttp) -> None:
    """Their parsers read each event as a message (2025-06-18 has no such event)."""
    text = client.post(request(1, "ping"), **client.new_session("2025-06-18")).text
    assert "retry" not in text
    assert text.count("data: ") == 1


async def test_a_second_request_with_the_id_of_a_running_one_is_refused() -> None:
    """The SDK would send both answers to the second one, and the first would never end."""
    sent: list[dict[str, Any]] = []
    running, enough = anyio.Event(), anyio.Event()

    async def application(*_: Any) -> None:
        running.set()
        await enough.wait()

    async def post(session: bytes, request_id: Any) -> None:
        parts = [{"type": "http.request", "body": json.dumps(request(request_id)).encode()}]
        scope = {"type": "http", "method": "POST", "headers": [(b"mcp-session-id", session)]}

        async def receive() -> dict[str, Any]:
            return parts.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await checked(scope, receive, send)

    checked = MessageFilter(application)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(post, b"one", 1)
        await running.wait()
        tasks.start_soon(post, b"two", 1)
        tasks.start_soon(post, b"one", 2)
        await post(b"one", "1")
        assert json.loads(sent[1]["body"])["id"] == "1"
        assert "still running" in json.loads(sent[1]["body"])["error"]["message"]
        enough.set()
    await post(b"one", 1)
    assert [message.get("status") for message in sent] == [400, None]


async def test_a_client_that_leaves_before_its_message_is_whole_reaches_nobody() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "more_body": True},
    ]

    async def receive() -> dict[str, Any]:
        return parts.pop()

    async def unexpected(*_: Any) -> None:
        pytest.fail("nothing is answered")

    await MessageFilter(unexpected)({"type": "http", "method": "POST"}, receive, unexpected)


def test_a_body_without_end_is_not_read_on_for_ever() -> None:
    parts = 0

    async def main() -> list[Any]:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            nonlocal parts
            parts += 1
            return {"type": "http.request", "body": b"[" * 1_048_576, "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        async def unexpected(*_: Any) -> None:
            pytest.fail("the SDK gets no part of it")

        await MessageFilter(unexpected)({"type": "http", "method": "POST"}, receive, send)
        return sent

    sent = anyio.run(main)
    assert sent[0]["status"] == 413
    assert parts == 33

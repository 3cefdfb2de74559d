"""A loopback Slack: its Web API, and the socket of Socket Mode, after docs.slack.dev.

An envelope that is not acknowledged is delivered again to the next connection, as the service does.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from tests.loopback_http import QuietHandler, serving_http
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

BOT_TOKEN = "xoxb-of-the-fake"
APP_TOKEN = "xapp-of-the-fake"
BOT = "UBOT"

Json = dict[str, Any]


@dataclass
class FakeSlack:
    port: int = 0
    socket: int = 0
    calls: list[tuple[str, Json]] = field(default_factory=list)
    messages: list[Json] = field(default_factory=list)
    faults: dict[str, list[int]] = field(default_factory=dict)
    """By method: statuses of the requests to come."""
    waiting: dict[str, Json] = field(default_factory=dict)
    """Envelopes that were not acknowledged, by id."""
    lock: threading.Condition = field(default_factory=threading.Condition)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/"

    def write(self, text: str, *, user: str = "U42", channel: str = "D42", **more: Any) -> None:
        event: Json = {"type": "message", "channel": channel, "user": user, "text": text}
        event |= {"ts": f"17.{next(self.numbers)}"}
        event |= {"channel_type": "im"} if channel[0] == "D" else {"type": "app_mention"}
        self._deliver("events_api", {"type": "event_callback", "event": {**event, **more}})

    def press(self, message: Json, label: str, *, user: str = "U42") -> None:
        buttons = message["blocks"][-1]["elements"]
        value = next(one["value"] for one in buttons if one["text"]["text"] == label)
        body = {"type": "block_actions", "trigger_id": f"t{next(self.numbers)}"}
        shown = {"user": {"id": user, "name": "ada"}, "channel": {"id": message["channel"]}}
        self._deliver(
            "interactive",
            {**body, **shown, "message": {"ts": message["ts"]}, "actions": [{"value": value}]},
        )

    def _deliver(self, kind: str, payload: Json) -> None:
        number = f"e{next(self.numbers)}"
        envelope = {"envelope_id": number, "type": kind, "payload": payload}
        with self.lock:
            self.waiting[number] = {**envelope, "accepts_response_payload": False}
            self.lock.notify_all()

    def wait(self, wanted: Callable[[FakeSlack], Any], seconds: float = 30) -> Any:
        end = time.monotonic() + seconds
        with self.lock:
            while not (found := wanted(self)):
                left = end - time.monotonic()
                assert left > 0, f"not seen; calls: {self.calls}"
                self.lock.wait(left)
        return found

    def said(self, part: str) -> Json:
        found: Json = self.wait(lambda one: [m for m in one.messages if part in m["text"]])[-1]
        return found

    def do(self, method: str, payload: Json) -> Json:
        if method == "auth.test":
            return {"ok": True, "user_id": BOT, "user": "house", "team_id": "T1", "bot_id": "B1"}
        if method == "apps.connections.open":
            return {"ok": True, "url": f"ws://127.0.0.1:{self.socket}/link"}
        if method == "chat.postMessage":
            made = {"ts": f"18.{next(self.numbers)}", **payload}
            self.messages.append(made)
            return {"ok": True, "ts": made["ts"], "channel": payload["channel"]}
        if method == "chat.update":
            found = next(one for one in self.messages if one["ts"] == payload["ts"])
            found |= {"text": payload["text"], "blocks": payload["blocks"]}
            return {"ok": True, "ts": payload["ts"]}
        return {"ok": method == "chat.postEphemeral"}

    def talk(self, connection: ServerConnection) -> None:
        """Deliver what waits, once a connection, until it is acknowledged."""
        connection.send(json.dumps({"type": "hello", "num_connections": 1}))
        sent: set[str] = set()
        reader = threading.Thread(target=self._read, args=(connection,), daemon=True)
        reader.start()
        with suppress(ConnectionClosed):
            while reader.is_alive():
                with self.lock:
                    self.lock.wait_for(lambda: set(self.waiting) - sent, 0.1)
                    new = [one for one in self.waiting.values() if one["envelope_id"] not in sent]
                for one in new:
                    sent.add(one["envelope_id"])
                    connection.send(json.dumps(one))

    def _read(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            for message in connection:
                with self.lock:
                    self.waiting.pop(json.loads(message).get("envelope_id"), None)
                    self.lock.notify_all()


class _Handler(QuietHandler):
    fake: FakeSlack

    def do_POST(self) -> None:
        method = self.path.removeprefix("/api/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        is_json = "json" in (self.headers.get("content-type") or "")
        payload = json.loads(body) if is_json else dict(parse_qsl(body))
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        made = {"ok": False, "error": "invalid_auth"}
        headers = {"Content-Type": "application/json"}
        with self.fake.lock:
            faults = self.fake.faults.get(method)
            status = faults.pop(0) if faults else 200
            if self.headers.get("authorization") == f"Bearer {wanted}" and status == 200:
                made = self.fake.do(method, payload)
            self.fake.calls.append((method, payload))
            self.fake.lock.notify_all()
        if status == 429:
            made, headers["Retry-After"] = {"ok": False, "error": "ratelimited"}, "1"
        with suppress(OSError):
            self.answer(status, json.dumps(made).encode(), headers)


@contextmanager
def fake_slack() -> Iterator[FakeSlack]:
    made = FakeSlack()
    handler = type("Handler", (_Handler,), {"fake": made})
    with (
        serving_http(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server,
        serve(made.talk, "127.0.0.1", 0) as socket,
    ):
        made.port = server.server_port
        made.socket = socket.socket.getsockname()[1]
        thread = threading.Thread(target=socket.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            socket.shutdown()
            thread.join()

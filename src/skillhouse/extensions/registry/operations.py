"""What an operator reads: a line of JSON a request, counts, and whether it is ready."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skillhouse.extensions.registry.access import Gatekeeper
from skillhouse.extensions.registry.change_webhook import ChangeWebhook
from skillhouse.extensions.registry.hosting import HostedRepository, TokenAccess
from skillhouse.extensions.registry.hosting.access_tokens import PREFIX
from skillhouse.extensions.registry.replies import json_reply
from skillhouse.extensions.server.api.metrics import metric_lines
from skillhouse.floor import SkillhouseError
from skillhouse.skill import ARCHIVE_MAX

if TYPE_CHECKING:
    from skillhouse.extensions.registry.oidc import TokenExchange

LOG_MAX = 16 * 1024 * 1024
"""Bytes of a log, after which it is moved to `.1`, which is replaced."""
TEXT_MAX = 300
"""Characters of each text of a line that a client chose."""
ROOM_MIN = 4 * ARCHIVE_MAX
"""Bytes that must be free for a registry that is ready: an upload, its files and the log of it."""
BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
_STDERR = 2
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "OPTIONS", "DELETE"})
_ROUTE = "skillhouse.route"
_SECRET = re.compile(rf"({PREFIX}_[0-9a-f]{{12}}_)[A-Za-z0-9_-]+")


class NamedRoute(Route):
    """A route that counts requests by its pattern, which has no name of a skill in it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_ROUTE] = self.path
        await super().handle(scope, receive, send)


class LogFile:
    """A file of lines, with one before it; a line that cannot be written is counted."""

    def __init__(self, path: Path | None, *, most: int = LOG_MAX) -> None:
        """Take the file; None is the standard error of this process."""
        self._path = path
        self._most = most
        self._lock = threading.Lock()
        self._handle = -1
        self.lost = 0

    def write(self, line: str) -> None:
        with self._lock:
            try:
                self._append(line.encode())
            except OSError:
                # A full disk ends no request: who publishes learns it from the answer.
                self.lost += 1

    def _append(self, data: bytes) -> None:
        if self._path is None:
            os.write(_STDERR, data)
            return
        if self._handle < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self._path, flags, 0o600)
        os.write(self._handle, data)
        kept = os.fstat(self._handle)
        if kept.st_size < self._most:
            return
        os.close(self._handle)
        self._handle = -1
        # Another server of this directory may have moved it already.
        if os.stat(self._path).st_ino == kept.st_ino:
            os.replace(self._path, f"{self._path}.1")

    def close(self) -> None:
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1


class RequestCounts:
    """Counts of this process. Labels are routes, methods and statuses, of which there are few."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.spans: Counter[float] = Counter()
        self.seconds = 0.0

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        with self._lock:
            self.answers[route, method if method in _METHODS else "other", status] += 1
            self.spans.update(end for end in BUCKETS if seconds <= end)
            self.seconds += seconds

    def lines(self) -> list[str]:
        with self._lock:
            samples: list[tuple[Mapping[str, object], float]] = [
                ({"route": route, "method": method, "status": status}, count)
                for (route, method, status), count in sorted(self.answers.items())
            ]
            total = self.answers.total()
            return [
                *metric_lines("registry_answers_total", "counter", "Answers.", samples),
                *metric_lines(
                    "registry_request_duration_seconds",
                    "histogram",
                    "How long requests took.",
                    [
                        *((("_bucket", {"le": f"{end:g}"}), self.spans[end]) for end in BUCKETS),
                        (("_bucket", {"le": "+Inf"}), total),
                        (("_sum", {}), round(self.seconds, 3)),
                        (("_count", {}), total),
                    ],
                ),
            ]


class ServerParts(Struct, frozen=True):
    """What a server has beside its registry."""

    log: LogFile | None = None
    webhook: ChangeWebhook | None = None
    exchange: TokenExchange | None = None


class OperatorRoutes:
    """Plain functions, which Starlette runs in threads."""

    def __init__(
        self,
        repository: HostedRepository,
        gate: Gatekeeper,
        counts: RequestCounts,
        parts: ServerParts,
    ) -> None:
        self._repository = repository
        self._gate = gate
        self._counts = counts
        self._parts = parts

    def ready(self, _: Request) -> Response:
        """Say whether packages can be taken in: the database answers, the disk has room."""
        problems = []
        try:
            self._repository.store.last_change()
        except (SkillhouseError, sqlite3.Error, OSError):
            problems.append("the database does not answer")
        if self._repository.free_bytes() < ROOM_MIN:
            problems.append(f"less than {ROOM_MIN >> 20} MiB are free on the disk")
        value = {"status": "not ready" if problems else "ready", "problems": problems}
        return json_reply(value, 503 if problems else 200)

    def metrics(self, request: Request) -> Response:
        self._gate.operator(request)
        store = self._repository.store
        log, webhook = self._parts.log, self._parts.webhook
        found = [
            ("skills", "gauge", "Skills.", store.skill_count()),
            ("last_change", "gauge", "Number of the newest change.", store.last_change()),
            ("free_bytes", "gauge", "Room on the disk.", self._repository.free_bytes()),
        ]
        if log is not None:
            found.append(("log_lines_lost_total", "counter", "Lines not written.", log.lost))
        if webhook is not None:
            found += [
                ("webhook_waiting", "gauge", "Changes to be sent.", webhook.waiting),
                ("webhook_failures_total", "counter", "Tries that failed.", webhook.failures),
                ("webhook_dropped_total", "counter", "Changes given up.", webhook.dropped),
            ]
        lines = [
            line
            for name, kind, what, value in found
            for line in metric_lines(f"registry_{name}", kind, what, [({}, value)])
        ]
        text = "\n".join((*lines, *self._counts.lines())) + "\n"
        return Response(
            text, headers={"cache-control": "no-store"}, media_type="text/plain; version=0.0.4"
        )


def observed(app: ASGIApp, counts: RequestCounts, log: LogFile | None) -> ASGIApp:
    """Return the application with each request counted and written to the log, once answered."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        started = time.monotonic()
        status, sent = 0, 0

        async def observing(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await app(scope, receive, observing)
        finally:
            seconds = time.monotonic() - started
            counts.add(scope.get(_ROUTE, "other"), scope["method"], status, seconds)
            if log is not None:
                log.write(log_line(scope, status=status, sent=sent, seconds=seconds))

    return answer


def log_line(scope: Scope, *, status: int, sent: int, seconds: float) -> str:
    """Return one request as a line of ASCII, whatever the client wrote.

    The id of a token is in it and never the token, also where a client put it into the address.
    """
    state = scope.get("state", {})
    access: TokenAccess = state.get("access") or TokenAccess()
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope["path"] + (f"?{query}" if query else "")
    client = scope.get("client") or ("",)
    value: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "method": scope["method"][:16],
        "path": _bounded(path),
        "status": status,
        "bytes": sent,
        "ms": round(seconds * 1000, 1),
        "address": state.get("address") or client[0],
        "token": access.token_id,
        "agent": _bounded(agent.decode("latin-1")),
    }
    # INVARIANT: no character of a client ends the line or reaches a terminal as it is.
    return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f") + "\n"


def _bounded(text: str) -> str:
    shown = _SECRET.sub(r"\1…", text)
    return shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]}…"

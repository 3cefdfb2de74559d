"""Updates that Telegram brings: a small server behind what has TLS, for one path and one secret.

Who reaches the port and has not the secret is refused before a byte of the body is read. The
secret is made at each start, is nowhere on disk, and Telegram gets it with the address.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.types import Receive, Scope, Send

from skillhouse.extensions.server.tcp_server import bound, make_server
from skillhouse.floor import ConfigError

SECRET_BYTES = 32
"""Telegram takes up to 256 characters (`setWebhook`, `secret_token`)."""
BODY_MAX = 1_000_000
"""Bytes of an update."""
BODY_SECONDS = 10.0
"""How long the whole body may take."""
_HEADER = b"x-telegram-bot-api-secret-token"

logger = logging.getLogger(__name__)


class TelegramWebhook:
    """The listener of one bot, which is bound from the beginning."""

    def __init__(self, url: str, listen: tuple[str, int]) -> None:
        """Bind the address; ConfigError where that cannot be."""
        self.url = url
        self.secret = secrets.token_urlsafe(SECRET_BYTES)
        self._path = urlsplit(url).path or "/"
        host, port = listen
        try:
            self._socket = bound(port, host)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"cannot listen on {host}:{port}: {reason}", key="bot.telegram.listen"
            ) from error

    async def serve(self, take: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """Pass on updates until it is cancelled; each is confirmed when `take` returned."""
        turn = anyio.Lock()

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            status = self._refused(scope)
            if not status:
                status = await self._taken(receive, take, turn)
            # What was refused may still be sending its body.
            headers = [(b"content-length", b"0"), *([(b"connection", b"close")] * (status != 200))]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b""})

        server = make_server(answer, lifespan="off")
        try:
            await server.serve(sockets=[self._socket])
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await server.shutdown([self._socket])

    def close(self) -> None:
        self._socket.close()

    def _refused(self, scope: Scope) -> int:
        """Return the status of a request that is none of Telegram's; 0 for one that is."""
        if scope["path"] != self._path:
            return 404
        if scope["method"] != "POST":
            return 405
        headers = scope["headers"]
        given = [value for name, value in headers if name == _HEADER]
        # INVARIANT: compared in constant time, and before anything of the body is read.
        if not hmac.compare_digest(given[0] if len(given) == 1 else b"", self.secret.encode()):
            logger.warning("a request to the webhook of Telegram has not its secret")
            return 403
        length = dict(headers).get(b"content-length", b"")
        return 413 if length.isdigit() and int(length) > BODY_MAX else 0

    async def _taken(
        self,
        receive: Receive,
        take: Callable[[dict[str, Any]], Awaitable[None]],
        turn: anyio.Lock,
    ) -> int:
        body = bytearray()
        with anyio.move_on_after(BODY_SECONDS) as limit:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return 400  # Whoever sent it went away.
                body += message.get("body", b"")
                if len(body) > BODY_MAX:
                    return 413
                if not message.get("more_body"):
                    break
        if limit.cancelled_caught:
            return 408
        found: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(body)
        if not isinstance(found, dict) or not isinstance(found.get("update_id"), int):
            return 400
        try:
            async with turn:
                await take(found)
        except Exception:
            # Not confirmed, so Telegram brings it again.
            logger.exception("an update of Telegram was not stored")
            return 500
        return 200

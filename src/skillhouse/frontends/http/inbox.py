"""The inbox of open questions, the page on which one is decided, and the answers of devices."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from skillhouse.approval import (
    OWNER,
    Answer,
    Approval,
    ApprovalBroker,
    ApprovalError,
    ApprovalState,
    Devices,
    Issuer,
    SignatureError,
    Tokens,
    allowed_answers,
)
from skillhouse.approval.devices import BODY_MAX
from skillhouse.floor import StateError
from skillhouse.frontends.presentation.json_values import approval_value

INBOX_PATH = "/approvals"
DEVICE_PATH = "/approvals/device"
"""Where a paired device posts its signed answer; no approval has this id."""
DEVICE_TOKEN_PATH = "/approvals/device/token"  # noqa: S105 - a path.
"""Where a paired device asks for a one-time token, with the message of an answer `once`."""
GIVE_TOKEN = "token"  # noqa: S105 - what a button is called.
"""What the form answers that asks for a one-time token."""
LATEST = 50
"""Answered questions that the inbox shows."""


class Show(Protocol):
    """Renders a page."""

    def __call__(self, template: str, status_code: int = 200, /, **values: Any) -> Response:
        """Return a template with values."""
        ...


class ApprovalInbox:
    """The endpoints; all but the device's stand behind the guard's key."""

    def __init__(
        self,
        approvals: ApprovalBroker,
        devices: Devices,
        tokens: Tokens,
        show: Show,
        clock: Callable[[], float],
        *,
        read_only: str = "",
    ) -> None:
        """Take whose questions are shown, whose answers are taken, and what renders a page.

        `read_only` says why nothing is approved here, such as that a coding agent serves the page.
        """
        self._approvals = approvals
        self._devices = devices
        self._tokens = tokens
        self._read_only = read_only
        self._show = show
        self._clock = clock
        # Of this start, like the session: a form of an earlier start is not taken.
        self._key = secrets.token_bytes(32)

    def routes(self) -> list[Route]:
        """Return the routes of this page."""
        return [
            Route(INBOX_PATH, self.list),
            Route(DEVICE_PATH, self.device, methods=["POST"]),
            Route(DEVICE_TOKEN_PATH, self.device_token, methods=["POST"]),
            Route(f"{INBOX_PATH}/{{approval_id}}", self.one),
            Route(f"{INBOX_PATH}/{{approval_id}}", self.decide, methods=["POST"]),
            Route("/api/approvals", self.api_list),
        ]

    def list(self, _: Request) -> Response:
        """Show the open questions and the latest of the others; nothing is decided here."""
        closed = [a for a in self._approvals.latest(LATEST) if a.state is not ApprovalState.OPEN]
        return self._show("approvals.html", pending=self._approvals.pending(), closed=closed)

    def api_list(self, _: Request) -> Response:
        """Return the open questions as JSON."""
        return _json([approval_value(found) for found in self._approvals.pending()])

    def one(self, request: Request) -> Response:
        """Show one question: everything that a yes is about, and the ways to answer."""
        return self._page(self._found(request))

    async def decide(self, request: Request) -> Response:
        """Take the answer of the form."""
        try:
            body = (await body_of(request)).decode()
            fields = {key: values[-1] for key, values in parse_qs(body, max_num_fields=10).items()}
        except ValueError as error:
            raise HTTPException(400) from error
        return await run_in_threadpool(self._decided, request, fields)

    def _decided(self, request: Request, fields: dict[str, str]) -> Response:
        found = self._found(request)
        given = fields.get("csrf_token", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._proof(found).encode()):
            return self._page(found, "This form is old. Look at the call again.", 403)
        given_answer = fields.get("answer", "")
        if self._read_only and given_answer != Answer.NO.value:
            return self._page(found, f"Nothing is approved here: {self._read_only}.", 403)
        if given_answer == GIVE_TOKEN:
            return self._with_token(found, fields.get("nonce", ""))
        try:
            answer = Answer(given_answer)
        except ValueError:
            return self._page(found, "Choose one of the answers.", 400)
        try:
            self._approvals.answer(
                found.id,
                answer,
                by=OWNER,
                channel="page",
                nonce=fields.get("nonce", ""),
                message=fields.get("message", ""),
            )
        except ApprovalError as error:
            return self._page(self._found(request), f"Not taken: {error}.", 409)
        # The answer of a POST is an address, so that a reload asks nothing twice.
        return RedirectResponse(f"{INBOX_PATH}/{found.id}", 303)

    def _with_token(self, found: Approval, nonce: str) -> Response:
        """Show a one-time token, this once: no other answer and no listing holds it."""
        if not hmac.compare_digest(nonce.encode("utf-8", "replace"), found.request.nonce.encode()):
            return self._page(found, "This form is old. Look at the call again.", 403)
        try:
            token = self._tokens.issue(found, Issuer(user=OWNER))
        except ApprovalError as error:
            return self._page(found, f"Not taken: {error}.", 409)
        return self._page(found, token=token)

    async def device(self, request: Request) -> Response:
        """Take the signed answer of a paired device."""
        return await self._from_device(request, self._device_answer)

    async def device_token(self, request: Request) -> Response:
        """Give a paired device a one-time token."""
        return await self._from_device(request, self._device_token)

    def _device_answer(self, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        found = self._devices.answer(self._approvals, headers, body)
        return {"approval": found.id, "state": found.state.value}

    def _device_token(self, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        return {"token": self._devices.token(self._approvals, headers, body)}

    async def _from_device(
        self, request: Request, take: Callable[[Mapping[str, str], bytes], dict[str, str]]
    ) -> Response:
        body = await body_of(request)
        try:
            taken = await run_in_threadpool(take, dict(request.headers), body)
        except SignatureError as error:
            return _json({"error": {"code": error.code, "message": str(error)}}, 401)
        except ApprovalError as error:
            return _json({"error": {"code": error.code, "message": str(error)}}, 409)
        except StateError:
            return _json({"error": {"code": "house-unusable", "message": "try again"}}, 500)
        return _json(taken)

    def _found(self, request: Request) -> Approval:
        approval_id = request.path_params["approval_id"]
        try:
            found = self._approvals.get(approval_id)
        except ApprovalError as error:
            raise HTTPException(404) from error
        if found.id != approval_id:
            raise HTTPException(404)
        return found

    def _page(
        self, found: Approval, notice: str = "", status: int = 200, *, token: str = ""
    ) -> Response:
        minutes = max(0, found.request.expires_ms - self._clock() * 1000) / 60_000
        return self._show(
            "approval.html",
            status,
            found=found,
            request=found.request,
            is_open=found.state is ApprovalState.OPEN,
            notice=notice,
            minutes=round(minutes),
            content=json.dumps(json.loads(found.request.content), indent=2),
            csrf_token=self._proof(found),
            answers=[answer.value for answer in allowed_answers(found.request)],
            token=token,
            has_token=not found.request.out_of_band_only,
            read_only=self._read_only,
        )

    def _proof(self, found: Approval) -> str:
        """Return what only a form of ours holds, for this question and this start."""
        bound = f"{found.id}.{found.request.nonce}".encode()
        return hmac.digest(self._key, bound, "sha256").hex()


async def body_of(request: Request) -> bytes:
    """Return the body, of bounded size.

    Raises:
        HTTPException: it is larger.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_MAX:
            raise HTTPException(413)
    return body


def _json(value: object, status: int = 200) -> Response:
    text = json.dumps(value, indent=2, ensure_ascii=True) + "\n"
    return Response(text, status, headers={"content-type": "application/json"})

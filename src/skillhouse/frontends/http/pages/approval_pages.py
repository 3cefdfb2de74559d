"""The inbox of approvals, the page of one, and the answers of paired devices."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from skillhouse.approval import (
    LASTING,
    OWNER,
    Answer,
    Approval,
    ApprovalBroker,
    ApprovalError,
    ApprovalState,
    Issuer,
    SignatureError,
    allowed_answers,
)
from skillhouse.floor import StateError
from skillhouse.frontends.http.forms import body_of, form_of, is_equal_secret, json_response
from skillhouse.frontends.http.pages.site import Render
from skillhouse.frontends.presentation.json_values import approval_value
from skillhouse.runtime import EnforcementServices

INBOX_PATH = "/approvals"
DEVICE_PATH = "/approvals/device"
"""A paired device posts its signed answer here; no approval has this id."""
DEVICE_TOKEN_PATH = "/approvals/device/token"  # noqa: S105 - a path.
"""A paired device requests a one-time token here, with the message of an answer `once`."""
GIVE_TOKEN = "token"  # noqa: S105 - what a button is called.
"""The form's answer that requests a one-time token."""
LATEST = 50
"""Number of closed approvals in the inbox."""


class ApprovalPages:
    """The endpoints; the guard requires its key for all but those of devices."""

    def __init__(
        self,
        approvals: ApprovalBroker,
        enforcement: EnforcementServices,
        show: Render,
        clock: Callable[[], float],
        *,
        read_only: str = "",
    ) -> None:
        """Store the dependencies.

        `read_only` is why the page approves nothing, for example since a coding agent serves it.
        """
        self._approvals = approvals
        self._devices = enforcement.devices
        self._tokens = enforcement.tokens
        self._read_only = read_only
        self._show = show
        self._clock = clock
        # For this start only, like the session: forms of an earlier start are rejected.
        self._key = secrets.token_bytes(32)

    def routes(self) -> list[Route]:
        return [
            Route(INBOX_PATH, self.list),
            Route(DEVICE_PATH, self.device, methods=["POST"]),
            Route(DEVICE_TOKEN_PATH, self.device_token, methods=["POST"]),
            Route(f"{INBOX_PATH}/{{approval_id}}", self.one),
            Route(f"{INBOX_PATH}/{{approval_id}}", self.decide, methods=["POST"]),
            Route("/api/approvals", self.api_list),
        ]

    def list(self, request: Request) -> Response:
        closed = [a for a in self._approvals.latest(LATEST) if a.state is not ApprovalState.OPEN]
        return self._show(
            request, "approvals.html", pending=self._approvals.pending(), closed=closed
        )

    def api_list(self, _: Request) -> Response:
        return json_response([approval_value(one) for one in self._approvals.pending()])

    def one(self, request: Request) -> Response:
        return self._page(request, self._approval(request))

    async def decide(self, request: Request) -> Response:
        return await run_in_threadpool(self._decided, request, await form_of(request))

    def _decided(self, request: Request, fields: dict[str, str]) -> Response:
        approval = self._approval(request)
        if not is_equal_secret(fields.get("csrf_token", ""), self._csrf_token(approval)):
            return self._page(request, approval, "This form is old. Look at the call again.", 403)
        chosen = fields.get("answer", "")
        if self._read_only and chosen != Answer.NO.value:
            return self._page(
                request, approval, f"Nothing is approved here: {self._read_only}.", 403
            )
        if chosen == GIVE_TOKEN:
            return self._with_token(request, approval, fields.get("nonce", ""))
        try:
            answer = Answer(chosen)
        except ValueError:
            return self._page(request, approval, "Choose one of the answers.", 400)
        rules = rules_of(fields.get("rules", "")) if answer in LASTING else ()
        if answer in LASTING and "has_rules" in fields and not rules:
            return self._page(request, approval, "Leave at least one rule.", 400)
        try:
            self._approvals.answer(
                approval.id,
                answer,
                by=OWNER,
                channel="page",
                nonce=fields.get("nonce", ""),
                message=fields.get("message", ""),
                rules=rules,
            )
        except ApprovalError as error:
            return self._page(request, self._approval(request), f"Not taken: {error}.", 409)
        # A POST is answered with a redirect, so that a reload submits nothing twice.
        return RedirectResponse(f"{INBOX_PATH}/{approval.id}", 303)

    def _with_token(self, request: Request, approval: Approval, nonce: str) -> Response:
        """Show a one-time token; no other page and no listing has it."""
        if not is_equal_secret(nonce, approval.request.nonce):
            return self._page(request, approval, "This form is old. Look at the call again.", 403)
        try:
            token = self._tokens.issue(approval, Issuer(user=OWNER))
        except ApprovalError as error:
            return self._page(request, approval, f"Not taken: {error}.", 409)
        return self._page(request, approval, token=token)

    async def device(self, request: Request) -> Response:
        return await self._from_device(request, self._device_answer)

    async def device_token(self, request: Request) -> Response:
        return await self._from_device(request, self._device_token)

    def _device_answer(self, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        approval = self._devices.answer(self._approvals, headers, body)
        return {"approval": approval.id, "state": approval.state.value}

    def _device_token(self, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        return {"token": self._devices.token(self._approvals, headers, body)}

    async def _from_device(
        self, request: Request, take: Callable[[Mapping[str, str], bytes], dict[str, str]]
    ) -> Response:
        body = await body_of(request)
        try:
            taken = await run_in_threadpool(take, dict(request.headers), body)
        except SignatureError as error:
            return _device_error(error.code, str(error), 401)
        except ApprovalError as error:
            return _device_error(error.code, str(error), 409)
        except StateError:
            return _device_error("house-unusable", "try again", 500)
        return json_response(taken)

    def _approval(self, request: Request) -> Approval:
        approval_id = request.path_params["approval_id"]
        try:
            approval = self._approvals.get(approval_id)
        except ApprovalError as error:
            raise HTTPException(404) from error
        if approval.id != approval_id:
            raise HTTPException(404)
        return approval

    def _page(
        self,
        request: Request,
        approval: Approval,
        notice: str = "",
        status: int = 200,
        *,
        token: str = "",
    ) -> Response:
        minutes = max(0, approval.request.expires_ms - self._clock() * 1000) / 60_000
        return self._show(
            request,
            "approval.html",
            status,
            approval=approval,
            request=approval.request,
            is_open=approval.state is ApprovalState.OPEN,
            notice=notice,
            minutes=round(minutes),
            content=json.dumps(json.loads(approval.request.content), indent=2),
            csrf_token=self._csrf_token(approval),
            answers=[answer.value for answer in allowed_answers(approval.request)],
            rules=editable(approval.request.always),
            token=token,
            has_token=not approval.request.out_of_band_only,
        )

    def _csrf_token(self, approval: Approval) -> str:
        bound = f"{approval.id}.{approval.request.nonce}".encode()
        return hmac.digest(self._key, bound, "sha256").hex()


def rules_of(text: str) -> tuple[str, ...]:
    """Return the rules of a form's field, one on each line."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def editable(rules: Sequence[str]) -> str:
    """Return rules as the lines of a field, or "" where one would not come back as it is."""
    lines = "\n".join(rules)
    is_plain = all(rule.isascii() and rule.isprintable() for rule in rules)
    return lines if is_plain else ""


def _device_error(code: str, message: str, status: int) -> Response:
    return json_response({"error": {"code": code, "message": message}}, status)

"""The pages that act: the inbox of approvals, the page of one, and the stop; and paired devices."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qs

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
from skillhouse.approval.devices import BODY_MAX
from skillhouse.floor import StateError
from skillhouse.frontends.presentation.json_values import approval_value
from skillhouse.runtime import EnforcementServices
from skillhouse.tiers import StopReport

INBOX_PATH = "/approvals"
DEVICE_PATH = "/approvals/device"
"""A paired device posts its signed answer here; no approval has this id."""
DEVICE_TOKEN_PATH = "/approvals/device/token"  # noqa: S105 - a path.
"""A paired device requests a one-time token here, with the message of an answer `once`."""
GIVE_TOKEN = "token"  # noqa: S105 - what a button is called.
"""The form's answer that requests a one-time token."""
LATEST = 50
"""Number of closed approvals in the inbox."""


RenderPage = Callable[..., Response]
"""Renders a template; gets its name, the status code (200 if left out), and values by keyword."""


class ApprovalInbox:
    """The endpoints; the guard requires its key for all but those of devices."""

    def __init__(
        self,
        approvals: ApprovalBroker,
        enforcement: EnforcementServices,
        show: RenderPage,
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

    def list(self, _: Request) -> Response:
        closed = [a for a in self._approvals.latest(LATEST) if a.state is not ApprovalState.OPEN]
        return self._show("approvals.html", pending=self._approvals.pending(), closed=closed)

    def api_list(self, _: Request) -> Response:
        return json_response([approval_value(one) for one in self._approvals.pending()])

    def one(self, request: Request) -> Response:
        return self._page(self._approval(request))

    async def decide(self, request: Request) -> Response:
        return await run_in_threadpool(self._decided, request, await form_of(request))

    def _decided(self, request: Request, fields: dict[str, str]) -> Response:
        approval = self._approval(request)
        if not is_equal_secret(fields.get("csrf_token", ""), self._csrf_token(approval)):
            return self._page(approval, "This form is old. Look at the call again.", 403)
        chosen = fields.get("answer", "")
        if self._read_only and chosen != Answer.NO.value:
            return self._page(approval, f"Nothing is approved here: {self._read_only}.", 403)
        if chosen == GIVE_TOKEN:
            return self._with_token(approval, fields.get("nonce", ""))
        try:
            answer = Answer(chosen)
        except ValueError:
            return self._page(approval, "Choose one of the answers.", 400)
        rules = rules_of(fields.get("rules", "")) if answer in LASTING else ()
        if answer in LASTING and "has_rules" in fields and not rules:
            return self._page(approval, "Leave at least one rule.", 400)
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
            return self._page(self._approval(request), f"Not taken: {error}.", 409)
        # A POST is answered with a redirect, so that a reload submits nothing twice.
        return RedirectResponse(f"{INBOX_PATH}/{approval.id}", 303)

    def _with_token(self, approval: Approval, nonce: str) -> Response:
        """Show a one-time token; no other page and no listing has it."""
        if not is_equal_secret(nonce, approval.request.nonce):
            return self._page(approval, "This form is old. Look at the call again.", 403)
        try:
            token = self._tokens.issue(approval, Issuer(user=OWNER))
        except ApprovalError as error:
            return self._page(approval, f"Not taken: {error}.", 409)
        return self._page(approval, token=token)

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
        self, approval: Approval, notice: str = "", status: int = 200, *, token: str = ""
    ) -> Response:
        minutes = max(0, approval.request.expires_ms - self._clock() * 1000) / 60_000
        return self._show(
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
            read_only=self._read_only,
        )

    def _csrf_token(self, approval: Approval) -> str:
        bound = f"{approval.id}.{approval.request.nonce}".encode()
        return hmac.digest(self._key, bound, "sha256").hex()


async def body_of(request: Request, *, limit: int = BODY_MAX) -> bytes:
    """Return the body; raises HTTPException beyond `limit` bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise HTTPException(413)
    return body


async def form_of(request: Request) -> dict[str, str]:
    """Return the last value of each field of a form; raises HTTPException."""
    try:
        body = (await body_of(request)).decode()
        return {key: values[-1] for key, values in parse_qs(body, max_num_fields=10).items()}
    except ValueError as error:
        raise HTTPException(400) from error


def rules_of(text: str) -> tuple[str, ...]:
    """Return the rules of a form's field, one on each line."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def editable(rules: Sequence[str]) -> str:
    """Return rules as the lines of a field, or "" where one would not come back as it is."""
    lines = "\n".join(rules)
    is_plain = all(rule.isascii() and rule.isprintable() for rule in rules)
    return lines if is_plain else ""


def is_equal_secret(given: str, secret: str) -> bool:
    """Whether a text from outside is our secret, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _device_error(code: str, message: str, status: int) -> Response:
    return json_response({"error": {"code": code, "message": message}}, status)


def json_response(value: object, status: int = 200, *, media: str = "application/json") -> Response:
    """Return a value as JSON, in ASCII only, so that no invisible character can be in it."""
    text = json.dumps(value, indent=2, ensure_ascii=True) + "\n"
    return Response(text, status, headers={"content-type": media})


STOP_PATH = f"{INBOX_PATH}/stop"
"""Below the only path to which the guard lets forms post; no approval has this id."""
REASON = "on the page"


class StopPage:
    """The endpoints, behind the guard's key; stopping is possible on a read-only page as well."""

    def __init__(self, enforcement: EnforcementServices, show: RenderPage) -> None:
        self._enforcement = enforcement
        self._show = show
        # For this start only: forms of other pages or of an earlier start are rejected.
        self.csrf_token = secrets.token_urlsafe(32)
        self._report: StopReport | None = None

    def routes(self) -> list[Route]:
        """Return the routes, which must precede those with an approval's id."""
        return [Route(STOP_PATH, self.page), Route(STOP_PATH, self.stop, methods=["POST"])]

    def reason(self) -> str:
        """Return why everything is stopped; empty if it is not."""
        return self._enforcement.tiers.stopped_reason

    def page(self, _: Request) -> Response:
        return self._page()

    async def stop(self, request: Request) -> Response:
        fields = await form_of(request)
        if not is_equal_secret(fields.get("csrf_token", ""), self.csrf_token):
            return self._page("This form is old. Use the one below.", 403)
        try:
            self._report = await run_in_threadpool(self._enforcement.stop, OWNER, REASON)
        except StateError as error:
            notice = f"The stop could not be written down: {error}. It holds in this process only."
            return self._page(notice, 500)
        # A POST is answered with a redirect, so that a reload submits nothing twice.
        return RedirectResponse(STOP_PATH, 303)

    def _page(self, notice: str = "", status: int = 200) -> Response:
        reason = self.reason()
        report = self._report if reason else None
        return self._show(
            "stop.html",
            status,
            reason=reason,
            report=report,
            csrf_token=self.csrf_token,
            notice=notice,
        )

"""The form that stops everything, and the page that says what it ended."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from skillhouse.approval import OWNER
from skillhouse.floor import StateError
from skillhouse.frontends.http.inbox import INBOX_PATH, RenderPage, body_of
from skillhouse.runtime import EnforcementServices
from skillhouse.tiers import StopReport

STOP_PATH = f"{INBOX_PATH}/stop"
"""Below the one path where the guard lets a form post; no approval has this id."""
REASON = "on the page"


class StopPage:
    """The endpoints, behind the guard's key; a stop is given where nothing may be approved too."""

    def __init__(self, safeguards: EnforcementServices, show: RenderPage) -> None:
        """Take what stops everything, and what renders a page."""
        self._safeguards = safeguards
        self._show = show
        # Of this start: a form that another page or an earlier start made is not taken.
        self.csrf_token = secrets.token_urlsafe(32)
        """What only a form of ours holds."""
        self._report: StopReport | None = None

    def routes(self) -> list[Route]:
        """Return the routes; they come before those that take any id."""
        return [
            Route(STOP_PATH, self.page),
            Route(STOP_PATH, self.stop, methods=["POST"]),
        ]

    def reason(self) -> str:
        """Return why everything is stopped; empty when it is not."""
        return self._safeguards.tiers.stopped_reason

    def page(self, _: Request) -> Response:
        """Show whether everything is stopped, and what the last stop from here ended."""
        return self._page()

    async def stop(self, request: Request) -> Response:
        """Stop everything."""
        try:
            fields = parse_qs((await body_of(request)).decode(), max_num_fields=10)
        except ValueError as error:
            raise HTTPException(400) from error
        given = fields.get("csrf_token", [""])[-1].encode("utf-8", "replace")
        if not hmac.compare_digest(given, self.csrf_token.encode()):
            return self._page("This form is old. Use the one below.", 403)
        try:
            self._report = await run_in_threadpool(self._safeguards.stop, OWNER, REASON)
        except StateError as error:
            notice = f"The stop could not be written down: {error}. It holds in this process only."
            return self._page(notice, 500)
        # The answer of a POST is an address, so that a reload stops nothing twice.
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

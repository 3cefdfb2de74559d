"""The page that stops everything."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from skillhouse.approval import OWNER
from skillhouse.extensions.server.forms import Proofs, form_of
from skillhouse.extensions.server.guard import access_of
from skillhouse.extensions.server.pages.approval_pages import INBOX_PATH
from skillhouse.extensions.server.pages.site import Render
from skillhouse.floor import StateError
from skillhouse.house import EnforcementServices
from skillhouse.tiers import StopReport

STOP_PATH = f"{INBOX_PATH}/stop"
"""Below the only path to which the guard lets forms post; no approval has this id."""
REASON = "on the page"


class StopPage:
    """The endpoints, behind the guard's key; stopping is possible on a read-only page as well."""

    def __init__(self, enforcement: EnforcementServices, show: Render, proofs: Proofs) -> None:
        self._enforcement = enforcement
        self._show = show
        self._proofs = proofs
        self._report: StopReport | None = None

    def routes(self) -> list[Route]:
        """Return the routes, which must precede those with an approval's id."""
        return [Route(STOP_PATH, self.page), Route(STOP_PATH, self.stop, methods=["POST"])]

    def csrf_token(self, request: Request) -> str:
        """Return what only a stop form of ours has, for the browser that asked."""
        return self._proofs.of(access_of(request.scope), "POST", STOP_PATH)

    def page(self, request: Request) -> Response:
        return self._page(request)

    async def stop(self, request: Request) -> Response:
        fields = await form_of(request)
        given = fields.get("csrf_token", "")
        if not self._proofs.holds(given, access_of(request.scope), "POST", STOP_PATH):
            return self._page(request, "old", 403)
        try:
            self._report = await run_in_threadpool(self._enforcement.stop, OWNER, REASON)
        except StateError as error:
            return self._page(request, str(error), 500)
        # A POST is answered with a redirect, so that a reload submits nothing twice.
        return RedirectResponse(STOP_PATH, 303)

    def _page(self, request: Request, notice: str = "", status: int = 200) -> Response:
        """Show the page; `notice` is `old` for another browser's form, or why no file has it."""
        reason = self._enforcement.tiers.stopped_reason
        report = self._report if reason else None
        return self._show(
            request,
            "stop.html",
            status,
            reason=reason,
            report=report,
            csrf_token=self.csrf_token(request),
            notice=notice,
        )

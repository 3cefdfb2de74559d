"""The inbox of approvals, the page of one, those that stand, and those that were answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

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
    ApprovalRequest,
    ApprovalState,
    Issuer,
    Tokens,
    allowed_answers,
    narrowed,
)
from skillhouse.extensions.server.forms import Proofs, form_of, is_equal_secret
from skillhouse.extensions.server.guard import access_of
from skillhouse.extensions.server.pages.object_links import QuestionLinks
from skillhouse.extensions.server.pages.question_view import is_intact, phrase_of, view_of
from skillhouse.extensions.server.pages.site import Render

INBOX_PATH = "/approvals"
GIVE_TOKEN = "token"  # noqa: S105 - what a button is called.
"""The form's answer that requests a one-time token."""
RECENT = 10
"""Answered questions below the inbox."""
CARDS = 20
"""Open questions that can be answered in the inbox; of more, the first by age."""
HISTORY = 200
"""Answered questions among which the history filters."""
STATES = tuple(state for state in ApprovalState if state is not ApprovalState.OPEN)


class ApprovalPages:
    """The endpoints; the guard requires its key for all of them."""

    def __init__(
        self,
        approvals: ApprovalBroker,
        tokens: Tokens,
        show: Render,
        proofs: Proofs,
        clock: Callable[[], float],
        *,
        links: Callable[[ApprovalRequest], QuestionLinks],
        read_only: str = "",
    ) -> None:
        """Store the dependencies.

        `links` finds the pages of what a question is about.
        `read_only` is why the page approves nothing, for example since a coding agent serves it.
        """
        self._approvals = approvals
        self._tokens = tokens
        self._read_only = read_only
        self._show = show
        self._clock = clock
        self._proofs = proofs
        self._links = links

    def routes(self) -> list[Route]:
        return [
            Route(INBOX_PATH, self.list),
            Route(f"{INBOX_PATH}/standing", self.standing),
            Route(f"{INBOX_PATH}/history", self.history),
            Route(f"{INBOX_PATH}/{{approval_id}}", self.one),
            Route(f"{INBOX_PATH}/{{approval_id}}", self.decide, methods=["POST"]),
        ]

    def list(self, request: Request) -> Response:
        answered = [a for a in self._approvals.latest(HISTORY) if a.state in STATES]
        pending = self._approvals.pending()
        # What is said of it is what the state has: an address makes nothing up.
        done = request.query_params.get("done", "")
        return self._show(
            request,
            "approvals.html",
            pending=pending,
            cards={
                one.id: (view_of(one), self._proof(request, one))
                for one in pending[:CARDS]
                if one.request.level != "sign"
            },
            answered=answered[:RECENT],
            done=next((one for one in answered if one.id == done), None),
            minutes=self._minutes,
        )

    def standing(self, request: Request) -> Response:
        now_ms = self._clock() * 1000
        return self._show(
            request,
            "approvals_standing.html",
            grants=[one for one in self._approvals.listed_grants() if one.is_current(now_ms)],
            scripts=self._approvals.scripts.all(),
        )

    def history(self, request: Request) -> Response:
        wanted, query = (request.query_params.get(name, "").strip() for name in ("state", "q"))
        words = query.casefold().split()
        answered = [
            one
            for one in self._approvals.latest(HISTORY)
            if one.state in STATES
            and wanted in ("", one.state.value)
            and all(word in _searched(one) for word in words)
        ]
        return self._show(
            request,
            "approvals_history.html",
            answered=answered,
            states=[state.value for state in STATES],
            wanted=wanted,
            query=query,
            most=HISTORY,
        )

    def one(self, request: Request) -> Response:
        return self._page(request, self._approval(request))

    async def decide(self, request: Request) -> Response:
        return await run_in_threadpool(self._decided, request, await form_of(request))

    def _decided(self, request: Request, fields: dict[str, str]) -> Response:
        approval = self._approval(request)
        if not is_equal_secret(fields.get("csrf_token", ""), self._proof(request, approval)):
            return self._page(request, approval, "old", 403)
        chosen = fields.get("answer", "")
        if chosen != Answer.NO.value and (refused := self._refusal(approval, fields)):
            return self._page(request, approval, *refused)
        if chosen == GIVE_TOKEN:
            return self._with_token(request, approval)
        try:
            answer = Answer(chosen)
        except ValueError:
            return self._page(request, approval, "unknown", 400)
        rules = rules_of(fields.get("rules", "")) if answer in LASTING else ()
        if answer in LASTING and "has_rules" in fields and not rules:
            return self._page(request, approval, "no-rule", 400)
        try:
            if answer in LASTING and not is_equal_secret(
                fields.get("confirmed", ""), self._proof(request, approval, chosen, *rules)
            ):
                return self._ask_once_more(request, approval, answer, rules)
            self._approvals.answer(
                approval.id,
                answer,
                by=OWNER,
                channel="page",
                nonce=approval.request.nonce,
                message=fields.get("message", ""),
                rules=rules,
            )
        except ApprovalError as error:
            return self._page(request, self._approval(request), "refused", 409, error=str(error))
        # A POST is answered with a redirect, so that a reload submits nothing twice.
        place = f"?done={approval.id}" if fields.get("back") == "inbox" else f"/{approval.id}"
        return RedirectResponse(f"{INBOX_PATH}{place}", 303)

    def _refusal(self, approval: Approval, fields: dict[str, str]) -> tuple[str, int] | None:
        """Return why nothing is approved, as a notice and a status; a denial is always taken."""
        if self._read_only:
            return "read-only", 403
        request = approval.request
        # INVARIANT: approved is what the form was made from. The nonce and the digest are those of
        # the content that was shown; a question that is another one by now has others.
        shown = (fields.get("nonce", ""), fields.get("content_digest", ""))
        same = [
            is_equal_secret(given, now)
            for given, now in zip(shown, (request.nonce, request.content_digest), strict=True)
        ]
        if not all(same) or (approval.state is ApprovalState.OPEN and not is_intact(request)):
            return "changed", 409
        phrase = phrase_of(request)
        if phrase is not None and not phrase.fits(fields.get("typed", "")):
            return "typed", 403
        return None

    def _ask_once_more(
        self, request: Request, approval: Approval, answer: Answer, rules: tuple[str, ...]
    ) -> Response:
        """Show exactly the rules that a lasting answer would write; the next form writes them."""
        if answer not in allowed_answers(approval.request):
            message = f"`{answer.value}` is not possible for this call"
            raise ApprovalError("not-offered", message)
        patterns = approval.request.patterns
        if rules:
            patterns = narrowed(patterns, rules, self._approvals.narrows)
        return self._show(
            request,
            "approval_lasting.html",
            approval=approval,
            request=approval.request,
            answer=answer,
            patterns=[pattern.text for pattern in patterns],
            rules="\n".join(rules),
            days=self._approvals.settings.grant_days,
            csrf_token=self._proof(request, approval),
            confirmed=self._proof(request, approval, answer.value, *rules),
        )

    def _with_token(self, request: Request, approval: Approval) -> Response:
        """Show a one-time token; no other page and no listing has it."""
        try:
            token = self._tokens.issue(approval, Issuer(user=OWNER))
        except ApprovalError as error:
            return self._page(request, approval, "refused", 409, error=str(error))
        return self._page(request, approval, token=token)

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
        error: str = "",
        token: str = "",
    ) -> Response:
        view, pending = view_of(approval), self._approvals.pending()
        return self._show(
            request,
            "transaction.html" if view.question.is_transaction else "approval.html",
            status,
            approval=approval,
            request=approval.request,
            view=view,
            is_open=approval.state is ApprovalState.OPEN,
            notice=notice,
            error=error,
            minutes=self._minutes(approval),
            csrf_token=self._proof(request, approval),
            rules=editable(view.question.standing),
            token=token,
            has_token=not view.question.is_for_page,
            newer=_newer(approval, pending),
            links=self._links(approval.request),
            **_neighbours(approval, pending),
        )

    def _minutes(self, approval: Approval) -> int:
        left_ms = approval.request.expires_ms - self._clock() * 1000
        return max(1, math.ceil(left_ms / 60_000))

    def _proof(self, request: Request, approval: Approval, *more: str) -> str:
        """Return what only a form of ours for this browser, question and `more` has."""
        path = f"{INBOX_PATH}/{approval.id}"
        bound = (approval.request.nonce, *more)
        return self._proofs.of(access_of(request.scope), "POST", path, *bound)


def _newer(approval: Approval, pending: Sequence[Approval]) -> Approval | None:
    """Return a later open question of the same caller about the same tool: it may replace this."""
    asked = approval.request
    same = [
        one
        for one in pending
        if one.request.tool == asked.tool
        and (one.request.session, one.request.place) == (asked.session, asked.place)
        and one.request.opened_ms > asked.opened_ms
    ]
    return same[-1] if same else None


def _neighbours(approval: Approval, pending: Sequence[Approval]) -> dict[str, Any]:
    """Return the open questions before and after this one, its place from 1, and their number."""
    ids = [one.id for one in pending]
    at = ids.index(approval.id) if approval.id in ids else -1
    before, after = ids[:at] if at > 0 else [], ids[at + 1 :]
    return {
        "previous": before[-1] if before else "",
        "following": after[0] if after else "",
        "place": at + 1,
        "total": len(ids),
    }


def _searched(approval: Approval) -> str:
    request = approval.request
    parts = (request.title, request.tool, request.agent, request.user, approval.message)
    return " ".join((*parts, approval.by, approval.channel, request.client)).casefold()


def rules_of(text: str) -> tuple[str, ...]:
    """Return the rules of a form's field, one on each line."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def editable(rules: Sequence[str]) -> str:
    """Return rules as the lines of a field, or "" where one would not come back as it is."""
    lines = "\n".join(rules)
    is_plain = all(rule.isascii() and rule.isprintable() for rule in rules)
    return lines if is_plain else ""

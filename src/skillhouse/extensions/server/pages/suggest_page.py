"""The rules that would have answered what a person allows anyway, accepted one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from skillhouse.extensions.server.api.policy_routes import rules_tag
from skillhouse.extensions.server.forms import form_of
from skillhouse.extensions.server.guard import access_of
from skillhouse.extensions.server.pages.approval_pages import INBOX_PATH
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import SkillhouseError
from skillhouse.house import RuleSuggestions, Skillhouse, Suggestion, suggest_rules, usable_config
from skillhouse.manage import checked_addition, only_editor, rule_value, write_user_text
from skillhouse.presentation.rule_changes import addition, with_example, written

PATH = "/policy/suggest"
ADD_PATH = f"{INBOX_PATH}/suggested"
"""Below the only path to which the guard lets forms post; no approval has such a path."""
DAYS, DAYS_MAX = 7, 90


class SuggestPage:
    """A rule is added by a plain form, so that no script is needed.

    INVARIANT: what is added is a suggestion of now, by its id, and with the rules that were shown:
    one that was refused meanwhile is none any more.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._services = site.services

    def routes(self) -> list[Route]:
        return [
            Route(PATH, self.all),
            Route(f"{PATH}/{{id}}", self.one),
            Route(f"{ADD_PATH}/{{id}}", self.add, methods=["POST"]),
        ]

    def all(self, request: Request) -> Response:
        days, found, error = _days(request.query_params.get("days", "")), None, ""
        with self._services.fresh() as house:
            user_file = house.config.places.user_file
            try:
                found = _suggested(house, days)
            except SkillhouseError as problem:
                error = str(problem)
        return self._site.page(
            request,
            "policy_suggest.html",
            500 if error else 200,
            found=found,
            error=error,
            days=days,
            done=request.query_params.get("done") == "added",
            user_file=user_file,
        )

    def one(self, request: Request) -> Response:
        return self._one(request, _days(request.query_params.get("days", "")))

    async def add(self, request: Request) -> Response:
        return await run_in_threadpool(self._added, request, await form_of(request))

    def _added(self, request: Request, fields: dict[str, str]) -> Response:
        days = _days(fields.get("days", ""))
        path = f"{ADD_PATH}/{request.path_params['id']}"
        given = fields.get("csrf_token", "")
        if not self._services.proofs.holds(given, access_of(request.scope), "POST", path):
            return self._one(request, days, "old", 403)
        if self._services.read_only:
            return self._one(request, days, "read-only", 403)
        if notice := self._write(request, days, fields.get("tag", "")):
            return self._one(request, days, notice, 409)
        self._services.reader.expire()
        # A POST is answered with a redirect, so that a reload submits nothing twice.
        return RedirectResponse(f"{PATH}?days={days}&done=added", 303)

    def _write(self, request: Request, days: int, tag: str) -> str:
        """Add the rule; return why that was not done."""
        config = self._services.house.config
        places = config.places
        with only_editor(places, config.state_directory), self._services.fresh() as house:
            if tag != rules_tag(usable_config(places)):
                return "changed"
            try:
                rule = with_example(_chosen(_suggested(house, days), request).rule)
                whole = checked_addition(places, written(rule))
                write_user_text(house.audit_log, places, whole, "rule-add", rule_value(rule))
            except SkillhouseError as problem:
                return str(problem)
        return ""

    def _one(self, request: Request, days: int, notice: str = "", status: int = 200) -> Response:
        """Show what one rule would change; `notice` is `old`, `read-only`, `changed`, or why the
        rule was not added."""
        path = f"{ADD_PATH}/{request.path_params['id']}"
        with self._services.fresh() as house:
            chosen = _chosen(_suggested(house, days), request)
            return self._site.page(
                request,
                "policy_suggested.html",
                status,
                one=chosen,
                change=addition(house, with_example(chosen.rule)),
                tag=rules_tag(usable_config(house.config.places)),
                add_path=path,
                csrf_token=self._services.proofs.of(access_of(request.scope), "POST", path),
                days=days,
                notice=notice,
                user_file=house.config.places.user_file,
            )


def _suggested(house: Skillhouse, days: int) -> RuleSuggestions:
    since = f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H:%M:%S}"
    return suggest_rules(house, since=since)


def _chosen(found: RuleSuggestions, request: Request) -> Suggestion:
    wanted = request.path_params["id"]
    for one in found.rules:
        if one.id == wanted:
            return one
    raise HTTPException(404)


def _days(text: str) -> int:
    days = int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else DAYS
    return min(max(days, 1), DAYS_MAX)

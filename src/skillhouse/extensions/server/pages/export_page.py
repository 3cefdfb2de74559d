"""The page on which skills are given to other clients: what is there, and what would be done."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# A package and not its names, which are loaded when they are needed.
import skillhouse.house
from skillhouse.answers.client_changes import export_answer, shown_exports
from skillhouse.clients import Exporter, client_profiles
from skillhouse.extensions.server.api.export_routes import export_request
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import SkillhouseError

EXPORTS_PATH = "/clients/exports"
_ACTIONS = ("export", "sync", "remove")


class ExportPage:
    """Shows what would be done, from the values of a form; the API does just that."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._reader = site.reader
        self._places = site.house.config.places

    def routes(self) -> list[Route]:
        return [Route(EXPORTS_PATH, self.page)]

    def page(self, request: Request) -> Response:
        asked = _asked(request.query_params)
        plan: dict[str, Any] | None = None
        problem = ""
        self._reader.scan()
        with self._reader.using() as house:
            source = skillhouse.house.export_source(house)
            present = [
                export_answer(one, with_difference=False) for one in Exporter(source).status()
            ]
            skills = [skill.id for skill in source.visible() if skill.scope != "builtin"]
            if asked:
                try:
                    shown = shown_exports(source, asked["action"], export_request(asked))
                except (SkillhouseError, ApiProblem) as error:
                    problem = str(error)
                else:
                    values = [export_answer(one, with_difference=True) for one in shown.items]
                    plan = {"items": values, "digest": shown.digest}
        return self._site.page(
            request,
            "exports.html",
            present=present,
            skills=skills,
            clients=[one.name for one in client_profiles(self._places, here=True)],
            asked=asked,
            chosen=request.query_params.getlist("skill"),
            plan=plan,
            apply_body={**asked, "plan_digest": plan["digest"]} if plan else {},
            does_something=plan is not None and any(one.action for one in plan["items"]),
            problem=problem,
        )


def _asked(query: QueryParams) -> dict[str, Any]:
    """Return what a form asks to be shown, as the API takes it; empty without a known action.

    >>> _asked(QueryParams("action=export&skill=user:a&client=codex&where=user"))
    {'action': 'export', 'skills': ['user:a'], 'clients': ['codex'], 'where': 'user'}
    """
    action = query.get("action", "")
    if action not in _ACTIONS:
        return {}
    asked: dict[str, Any] = {"action": action}
    for name, values in (("skills", query.getlist("skill")), ("clients", query.getlist("client"))):
        if kept := [one for one in values if one]:
            asked[name] = kept
    if query.get("where") in ("user", "project"):
        asked["where"] = query["where"]
    if query.get("form") in ("copy", "link"):
        asked["form"] = query["form"]
    return asked

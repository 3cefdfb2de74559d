"""The routes that give skills away: exports to other clients, and a skill as an archive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Packages and not their names, which are loaded with the first request that needs them.
import skillhouse.house
from skillhouse import registry
from skillhouse.answers.client_changes import (
    ExportAnswer,
    ExportPlanAnswer,
    agreed_exports,
    export_answer,
    shown_exports,
)
from skillhouse.answers.json_form import ListAnswer, listed
from skillhouse.clients import Exporter, ExportRequest, Form, Item
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint, RouteResponse
from skillhouse.extensions.server.api.schemas import FLAG, SHORT, array, listing, record
from skillhouse.extensions.server.forms import attachment
from skillhouse.house import AccessScope

ARCHIVE = "application/octet-stream"
"""So that no browser shows what is in it."""


def _status(api: ApiServices, _: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        found = Exporter(skillhouse.house.export_source(house)).status()
    return _listed(found, with_difference=False)


def _plan(api: ApiServices, request: ApiRequest) -> ListAnswer:
    asked = request.body
    with api.fresh() as house:
        shown = shown_exports(
            skillhouse.house.export_source(house), asked["action"], export_request(asked)
        )
    more = ExportPlanAnswer(plan_digest=shown.digest)
    return _listed(shown.items, more, with_difference=True)


def _apply(api: ApiServices, request: ApiRequest) -> ListAnswer:
    asked = request.body
    wanted = export_request(asked)
    with api.fresh() as house:
        source = skillhouse.house.export_source(house)
        done = agreed_exports(source, asked["action"], wanted, asked["plan_digest"])
    api.reader.expire()
    return _listed(done, with_difference=False)


def _listed(
    items: Iterable[Item], more: ExportPlanAnswer | None = None, *, with_difference: bool
) -> ListAnswer:
    values = [export_answer(item, with_difference=with_difference) for item in items]
    return listed("exports", values, more)


def export_request(asked: dict[str, Any]) -> ExportRequest:
    """Return what a body asks for; ApiProblem where it does not say what, or to whom."""
    skills, everything = asked.get("skills", []), asked.get("all", False)
    clients, action = asked.get("clients", []), asked["action"]
    if action != "sync" and bool(skills) == everything:
        raise ApiProblem(400, "wrong-body", "expected `skills` or `all`")
    if action == "export" and not clients:
        raise ApiProblem(400, "wrong-body", "expected `clients`")
    return ExportRequest(
        references=tuple(skills),
        clients=tuple(clients),
        everything=everything,
        form=Form(asked.get("form", Form.COPY)),
        where=asked.get("where", "user"),
        own=asked.get("own", False),
        force=asked.get("force", False),
    )


def _archive(api: ApiServices, request: ApiRequest) -> RouteResponse:
    with api.fresh() as house:
        skill = house.load(request.path["skill"]).skill
    package = registry.pack(skill.directory)
    headers = {"content-disposition": attachment(package.file_name)}
    return RouteResponse(
        content=package.archive, headers={**headers, "etag": f'"{package.digest}"'}
    )


_MANAGE = AccessScope.MANAGE
_FIELDS = {
    "skills": array(SHORT) | {"maxItems": 200},
    "all": FLAG,
    "clients": array(SHORT) | {"maxItems": 200},
    "form": {"enum": [form.value for form in Form]},
    "where": {"enum": ["user", "project"]},
    "own": FLAG,
    "force": FLAG,
}
_ACTION = {"enum": ["export", "sync", "remove"]}
_ASKED = {"action": "export", "skills": ["pdf"], "clients": ["codex"]}
_EXAMPLE = {
    "list": "exports",
    "total": 1,
    "exports": [
        {
            "skill": "user:pdf",
            "source": "/home/you/skills/pdf",
            "clients": ["codex"],
            "target": "/home/you/.agents/skills/pdf",
            "form": "copy",
            "state": "missing",
            "action": "write",
            "done": False,
            "reason": "",
            "warnings": [],
            "also": [],
        }
    ],
}

ROUTES = (
    Endpoint(
        name="listExports",
        method="GET",
        path="/exports",
        tag="place",
        what="The copies that were written for other clients, compared with what was written.",
        run=_status,
        answer=listing("exports", ExportAnswer),
        example=_EXAMPLE,
        problems=(409,),
    ),
    Endpoint(
        name="planExports",
        method="POST",
        path="/exports/plan",
        tag="place",
        what="Shows what an export, its renewal or its removal would do; nothing is changed.",
        run=_plan,
        scope=_MANAGE,
        is_change=False,
        body=Body(
            schema=record({"action": _ACTION}, optional=_FIELDS, closed=True), example=_ASKED
        ),
        answer=listing("exports", ExportAnswer, ExportPlanAnswer),
        example={**_EXAMPLE, "plan_digest": "sha256:00"},
        problems=(404, 409),
    ),
    Endpoint(
        name="applyExports",
        method="POST",
        path="/exports",
        tag="place",
        what="Does what a plan showed, if it still is what its `plan_digest` names.",
        run=_apply,
        scope=_MANAGE,
        body=Body(
            schema=record({"action": _ACTION, "plan_digest": SHORT}, optional=_FIELDS, closed=True),
            example={**_ASKED, "plan_digest": "sha256:00"},
        ),
        answer=listing("exports", ExportAnswer),
        example=_EXAMPLE,
        problems=(404, 409),
    ),
    Endpoint(
        name="packSkill",
        method="GET",
        path="/skills/{skill}/package",
        tag="skills",
        what="A skill as an archive, the bytes of `skillhouse pack`.",
        run=_archive,
        answer={"type": "string", "contentMediaType": ARCHIVE},
        media=ARCHIVE,
        example="…",
        problems=(404, 409),
    ),
)

"""The routes about the fixes of `doctor`: list them with their differences, make one."""

from __future__ import annotations

from skillhouse import clients
from skillhouse.answers.client_changes import (
    FixAnswer,
    MadeFixesAnswer,
    RefusedFixAnswer,
    discarding,
    fix_answer,
    shown_fix,
)
from skillhouse.answers.json_form import ListAnswer, listed
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.place_routes import CLIENT, client_report_of
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint
from skillhouse.extensions.server.api.schemas import SHORT, array, listing, record, ref
from skillhouse.floor import SkillhouseError
from skillhouse.house import AccessScope


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    report = client_report_of(api, request)
    return listed("fixes", [fix_answer(report, fix) for fix in clients.proposed_fixes(report)])


def _apply(api: ApiServices, request: ApiRequest) -> FixAnswer:
    report = client_report_of(api, request)
    fix = shown_fix(report, request.path["fix"], request.body["digest"])
    value = fix_answer(report, fix)
    clients.apply_fix(fix, discard=discarding(api.house.config))
    api.reader.expire()
    return value


def _apply_all(api: ApiServices, request: ApiRequest) -> ListAnswer:
    """Make several, each if it is what was shown; what could not be made is said."""
    report = client_report_of(api, request)
    fixes = [shown_fix(report, one["id"], one["digest"]) for one in request.body["fixes"]]
    made, refused = [], []
    for fix in fixes:
        try:
            clients.apply_fix(fix, discard=discarding(api.house.config))
            made.append(fix_answer(report, fix))
        except SkillhouseError as error:
            refused.append(RefusedFixAnswer(path=report.short(fix.path), reason=str(error)))
    api.reader.expire()
    return listed("fixes", made, MadeFixesAnswer(refused=refused))


_EXAMPLE = {
    "id": "0a1b2c3d4e5f6071",
    "path": "~/skills/pdf/SKILL.md",
    "codes": ["yaml-error"],
    "difference": ["-description: Use when: asked", "+description: 'Use when: asked'"],
    "undo": None,
    "digest": "sha256:00",
}

ROUTES = (
    Endpoint(
        name="listFixes",
        method="GET",
        path="/fixes",
        tag="place",
        what="What `doctor --fix` would change, one by one, each with its difference.",
        run=_list,
        query=(CLIENT,),
        answer=listing("fixes", FixAnswer),
        example={"list": "fixes", "total": 1, "fixes": [_EXAMPLE]},
        problems=(404,),
    ),
    Endpoint(
        name="applyFix",
        method="POST",
        path="/fixes/{fix}",
        tag="place",
        what="Makes one of them, if it is still what was shown under this digest.",
        run=_apply,
        scope=AccessScope.MANAGE,
        query=(CLIENT,),
        body=Body(schema=record({"digest": SHORT}, closed=True), example={"digest": "sha256:00"}),
        answer=ref(FixAnswer),
        example=_EXAMPLE,
    ),
    Endpoint(
        name="applyFixes",
        method="POST",
        path="/fixes",
        tag="place",
        what="Makes several of them, each if it is still what was shown under its digest.",
        run=_apply_all,
        scope=AccessScope.MANAGE,
        query=(CLIENT,),
        body=Body(
            schema=record(
                {
                    "fixes": array(record({"id": SHORT, "digest": SHORT}, closed=True))
                    | {"minItems": 1, "maxItems": 100}
                },
                closed=True,
            ),
            example={"fixes": [{"id": "0a1b2c3d4e5f6071", "digest": "sha256:00"}]},
        ),
        answer=listing("fixes", FixAnswer, MadeFixesAnswer),
        example={"list": "fixes", "total": 1, "fixes": [_EXAMPLE], "refused": []},
        problems=(404, 409),
    ),
)

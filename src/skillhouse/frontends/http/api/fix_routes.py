"""The routes about the mends of `doctor`: list them with their differences, make one."""

from __future__ import annotations

from typing import Any

from skillhouse import clients
from skillhouse.frontends.http.api.api_services import ApiServices
from skillhouse.frontends.http.api.package_schemas import SHORT
from skillhouse.frontends.http.api.place_routes import CLIENT, lens_of
from skillhouse.frontends.http.api.route_table import ApiRequest, Body, Endpoint
from skillhouse.frontends.http.api.schemas import TEXT, array, listing, maybe, record
from skillhouse.frontends.presentation.fix_values import discarding, fix_value, shown_fix
from skillhouse.runtime.access_tokens import AccessScope


def _list(api: ApiServices, request: ApiRequest) -> dict[str, Any]:
    lens = lens_of(api, request)
    found = [fix_value(lens, fix) for fix in clients.proposed_fixes(lens)]
    return {"list": "fixes", "total": len(found), "fixes": found}


def _apply(api: ApiServices, request: ApiRequest) -> dict[str, Any]:
    lens = lens_of(api, request)
    fix = shown_fix(lens, request.path["fix"], request.body["digest"])
    value = fix_value(lens, fix)
    clients.apply_fix(fix, discard=discarding(api.house.config))
    api.reader.expire()
    return value


_FIX = record(
    {
        "id": TEXT,
        "path": TEXT,
        "codes": array(TEXT),
        "difference": array(TEXT),
        "undo": maybe(TEXT),
        "digest": TEXT,
    }
)
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
        answer=listing("fixes", _FIX),
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
        answer=_FIX,
        example=_EXAMPLE,
    ),
)

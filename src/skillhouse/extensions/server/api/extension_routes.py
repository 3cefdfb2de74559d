"""The routes that extensions of others add, each below the extension's own name."""

from __future__ import annotations

from functools import partial

import msgspec

from skillhouse.extension import ExtensionRoute
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    ApiRequest,
    Endpoint,
    RouteParameter,
    RouteResponse,
)
from skillhouse.house import Skillhouse

ANSWER_MAX = 8_000_000
"""Bytes of an answer."""


def extension_endpoints(house: Skillhouse) -> tuple[Endpoint, ...]:
    """Return a route for each of them.

    INVARIANT: every path is below `/extensions/NAME/`, where none of ours is, and every one reads.
    """
    return tuple(
        Endpoint(
            name=f"{extension.name}/{route.path}",
            method="GET",
            path=f"/extensions/{extension.name}/{route.path}",
            tag=f"extension {extension.name}",
            what=str(route.what),
            run=partial(_run, route),
            query=tuple(
                RouteParameter(name=str(name), schema={"type": "string"}, what=str(what))
                for name, what in route.parameters.items()
            ),
            answer={},
        )
        for extension, route in house.services.extensions.routes(house.config)
    )


def _run(route: ExtensionRoute, _: ApiServices, request: ApiRequest) -> RouteResponse:
    content = msgspec.json.encode(route.answer(dict(request.query)))
    if len(content) > ANSWER_MAX:
        text = f"the extension answers with more than {ANSWER_MAX:,} bytes"
        raise ApiProblem(500, "too-large", text)
    return RouteResponse(content=content)

"""What extensions of others add to the service: pages and routes, each below its own name."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.extension import ExtensionPage, ExtensionRoute
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    ApiRequest,
    Endpoint,
    RouteParameter,
    RouteResponse,
)
from skillhouse.extensions.server.pages.site import Site
from skillhouse.house import Skillhouse

EXTENSIONS_PATH = "/extensions"
TEXT_MAX = 1_000_000
"""Characters of a page that are shown."""


class ExtensionPages:
    """INVARIANT: every route is below `/extensions/NAME/`, so that none replaces one of ours."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pages: dict[tuple[str, str], ExtensionPage] = {}
        services = site.house.services
        for extension, page in services.extensions.pages(site.house.config):
            self._pages.setdefault((extension.name, page.path), page)

    def routes(self) -> list[Route]:
        return [Route(f"{EXTENSIONS_PATH}/{{name}}/{{path:path}}", self.page)]

    def page(self, request: Request) -> Response:
        """Show what the page returns, as text: nothing of it is markup."""
        found = self._pages.get((request.path_params["name"], request.path_params["path"]))
        if found is None:
            raise HTTPException(404)
        text = str(found.body(dict(request.query_params)))[:TEXT_MAX]
        return self._site.page(request, "extension.html", title=str(found.title), text=text)


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

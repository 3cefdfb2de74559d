"""The pages that extensions add, each below the extension's own name."""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.extension import ExtensionPage
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import isolated
from skillhouse.floor.regex import regex

EXTENSIONS_PATH = "/extensions"
TEXT_MAX = 1_000_000
"""Characters of a page that are shown."""
_PATH = regex(r"[a-z0-9-]+(/[a-z0-9-]+)*|")

logger = logging.getLogger(__name__)


class ExtensionPages:
    """INVARIANT: every route is below `/extensions/NAME/`, so that none replaces one of ours."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pages: dict[tuple[str, str], ExtensionPage] = {}
        services = site.house.services
        for extension, page in services.extensions.pages(site.house.config):
            with isolated() as failed:
                if _PATH.fullmatch(page.path):
                    self._pages.setdefault((extension.name, page.path), page)
                else:
                    logger.error("extension `%s`: a page without a usable path", extension.name)
            for error in failed:
                logger.error("extension `%s`: %s", extension.name, error)

    def routes(self) -> list[Route]:
        return [Route(f"{EXTENSIONS_PATH}/{{name}}/{{path:path}}", self.page)]

    def page(self, request: Request) -> Response:
        """Show what the page returns, as text: nothing of it is markup."""
        found = self._pages.get((request.path_params["name"], request.path_params["path"]))
        if found is None:
            raise HTTPException(404)
        text = str(found.body(dict(request.query_params)))[:TEXT_MAX]
        return self._site.page(request, "extension.html", title=str(found.title), text=text)

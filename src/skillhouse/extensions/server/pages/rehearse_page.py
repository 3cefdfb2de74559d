"""The page that follows a request from the catalog to the sandbox, without a model."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.extensions.server.api.skill_routes import QUERY_TEXT_MAX
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import SkillError
from skillhouse.house import rehearse
from skillhouse.retrieval import Fit

REHEARSE_PATH = "/rehearse"
HITS = 5


class RehearsePage:
    """Changes nothing and calls nothing."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        return [Route(REHEARSE_PATH, self.page)]

    def page(self, request: Request) -> Response:
        asked = request.query_params.get("q", "").strip()[:QUERY_TEXT_MAX]
        found, fault = None, ""
        if asked:
            with self._site.services.fresh() as house:
                try:
                    found = rehearse(house, asked, limit=HITS)
                except SkillError as error:
                    # Its file was changed since the scan.
                    fault = str(error)
        return self._site.page(
            request,
            "rehearse.html",
            asked=asked,
            found=found,
            is_weak=found is not None and found.fit is not Fit.GOOD,
            fits_nothing=found is not None and found.fit is Fit.NONE,
            fault=fault,
            most=QUERY_TEXT_MAX,
        )

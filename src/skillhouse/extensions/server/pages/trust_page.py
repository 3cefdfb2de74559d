"""The page on which a project is looked at and trusted."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.trust import trust_view
from skillhouse.extensions.server.pages.site import Site
from skillhouse.presentation.skill_answers import facts_rows

TRUST_PAGE = "/system/trust"


class TrustPage:
    """Shows what would be trusted; the API trusts just that."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        return [Route(TRUST_PAGE, self.page)]

    def page(self, request: Request) -> Response:
        self._site.reader.scan()
        with self._site.reader.using() as house:
            view = trust_view(house)
        return self._site.page(
            request,
            "trust.html",
            view=view,
            report=view.report,
            is_as_trusted=view.report.is_trusted and all(one.is_seen for one in view.report.skills),
            code=[(facts, facts_rows(facts)) for facts in view.code],
        )

"""The pages of packages: what is installed, what repositories offer, and what a change would do."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# A package and not its names: what installs is loaded with the first page that needs it.
from skillhouse import install
from skillhouse.answers.json_form import plain
from skillhouse.answers.packages import (
    InstalledAnswer,
    PackageAnswer,
    PackageVersionsAnswer,
    installed_answer,
)
from skillhouse.extensions.server.api.jobs import ENDED
from skillhouse.extensions.server.api.repository_routes import offered_packages, package_versions
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import SkillhouseError
from skillhouse.install import InstalledSkills
from skillhouse.manage import installed_marks, trust_notes

QUERY_MAX = 200
"""Characters of a search in repositories, as the API takes them."""


class InstalledLine(Struct, frozen=True, kw_only=True):
    value: InstalledAnswer
    """As the API gives it."""
    warning: str
    """What of its signature ended, or soon does; empty for nothing."""
    state: str
    """ok, accepted, edited, refused, missing; empty where the files were not compared."""
    reason: str

    @property
    def id(self) -> str:
        return f"{self.value.scope}:{self.value.name}"

    @property
    def is_well(self) -> bool:
        return self.state in ("", "ok", "accepted")


class PackagePages:
    """Plain functions, which Starlette runs in threads; changes are made by the API."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        return [
            Route("/packages", self.all),
            Route("/packages/jobs/{id}", self.job),
            Route("/packages/of/{repository}/{package:path}", self.package),
        ]

    def all(self, request: Request) -> Response:
        asked = request.query_params
        query, repository = asked.get("q", "").strip()[:QUERY_MAX], asked.get("repository", "")
        installed, problem, notes = self._installed()
        offered: list[PackageAnswer] = []
        is_weak, remote_problem = False, ""
        is_browsing = bool(query or repository)
        if is_browsing:
            try:
                offered, is_weak, problems = offered_packages(
                    self._site.services, query, repository=repository[:QUERY_MAX]
                )
                remote_problem = "; ".join(problems)
            except SkillhouseError as error:
                remote_problem = str(error)
        return self._site.page(
            request,
            "packages.html",
            installed=installed,
            problem=problem,
            notes=notes,
            repositories=self._site.house.config.repositories,
            locks=install.known_locks(self._site.house.config.places),
            query=query,
            repository=repository,
            is_browsing=is_browsing,
            offered=offered,
            is_weak=is_weak,
            remote_problem=remote_problem,
        )

    def _installed(self) -> tuple[list[InstalledLine], str, list[str]]:
        """Return what is installed, why that cannot be read, and notes about signatures."""
        self._site.reader.scan()
        try:
            with self._site.reader.using() as house:
                entries = list(InstalledSkills(house).entries())
                marks = {(one.scope, one.name): one for one in installed_marks(house)}
                notes = trust_notes(house)
        except SkillhouseError as error:
            return [], str(error), []
        lines = []
        for place, name, entry in entries:
            mark = marks.get((place.scope, name))
            lines.append(
                InstalledLine(
                    value=installed_answer(name, place.scope, entry),
                    warning=mark.ending if mark and mark.is_well else "",
                    state=mark.state if mark else "",
                    reason=mark.reason if mark else "",
                )
            )
        return lines, "", notes

    def package(self, request: Request) -> Response:
        repository, package = request.path_params["repository"], request.path_params["package"]
        found: PackageVersionsAnswer | None = None
        problem = ""
        try:
            found = package_versions(self._site.services, repository, package)
        except SkillhouseError as error:
            problem = str(error)
        return self._site.page(
            request,
            "package.html",
            200 if found else 404,
            repository=repository,
            package=package,
            found=found,
            problem=problem,
        )

    def job(self, request: Request) -> Response:
        """Show how far a piece of work is, and once it has ended what came of it."""
        job = self._site.services.jobs.get(request.path_params["id"])
        if job is None:
            raise HTTPException(404)
        asked = _asked(request.query_params.get("request", ""))
        value = plain(job.answer())
        skills = (value["result"] or {}).get("skills", [])
        planned = [one for one in skills if one.get("status") == "planned"]
        agreed = {
            one["name"]: {"plan_digest": one["plan_digest"], "answers": []} for one in planned
        }
        return self._site.page(
            request,
            "job.html",
            job=value,
            is_running=value["state"] not in ENDED,
            asked=asked,
            skills=skills,
            planned=planned,
            apply_body={**asked, "agreed": agreed},
        )


def _asked(text: str) -> dict[str, Any]:
    """Return the request of which a job is the plan, which the page sends again to apply it.

    It comes by the address: what is done is what was shown, or the API refuses it.

    >>> _asked('{"action": "install"}'), _asked("[]"), _asked("{")
    ({'action': 'install'}, {}, {})
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

"""The page of clients: what each sees of the skills here, why not, and what fixes it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.clients import (
    ClientColumn,
    ClientReport,
    Fix,
    ReportedSkill,
    client_profiles,
    known_clients,
    problems,
    proposed_fixes,
)
from skillhouse.extensions.server.pages.site import Site
from skillhouse.frontends.answers.client_changes import fix_answer, fix_groups
from skillhouse.frontends.presentation.client_report import WHOLE, letter
from skillhouse.frontends.presentation.doctor_values import (
    examined_profiles,
    seen_by,
    unsafe_entries,
)
from skillhouse.skill import profile_names

CLIENTS_PATH = "/clients"
ROWS_MAX = 300
"""Skills of the table; those that some client does not see in full come first."""
FIXES_MAX = 50


class ClientCell(NamedTuple):
    """What one client makes of one skill."""

    letter: str
    """As in the report of `doctor`: `+` for a skill that is seen in full."""
    reason: str
    """Why it is not; or empty."""


class Row(NamedTuple):
    skill: ReportedSkill
    place: str
    """Its short path."""
    cells: tuple[ClientCell, ...]

    @property
    def folder(self) -> str:
        """The directory in which its directory is."""
        return self.place.rpartition("/")[0] or "/"

    @property
    def is_even(self) -> bool:
        return all(cell.letter in WHOLE for cell in self.cells)

    @property
    def reasons(self) -> list[tuple[str, tuple[int, ...]]]:
        """Each reason with the places of its clients, those of one reason together."""
        found: dict[str, list[int]] = {}
        for at, cell in enumerate(self.cells):
            if cell.reason:
                found.setdefault(cell.reason, []).append(at)
        return [(reason, tuple(places)) for reason, places in found.items()]


def _group_value(lens: ClientReport, group: Sequence[Fix]) -> dict[str, Any]:
    """Return fixes of a kind, and what the API takes as one answer for all of them."""
    every = [fix_answer(lens, fix) for fix in group]
    return {"every": every, "agreed": [{"id": one.id, "digest": one.digest} for one in every]}


class RowFilter(NamedTuple):
    """Which rows are shown."""

    folder: str
    seen: str
    """The client that sees them; empty for any."""
    unseen: str
    """The client that does not see them in full; empty for any."""

    @classmethod
    def of(cls, query: QueryParams) -> RowFilter:
        """Return the filter of an address, in which `-codex` is what codex does not see in full.

        >>> RowFilter.of(QueryParams("folder=~/a&by=-codex"))
        RowFilter(folder='~/a', seen='', unseen='codex')
        """
        by = query.get("by", "")
        is_unseen = by.startswith("-")
        return cls(query.get("folder", ""), "" if is_unseen else by, by[1:] if is_unseen else "")

    def fits(self, row: Row, lens: ClientReport) -> bool:
        letters = {
            client.name: cell.letter for client, cell in zip(lens.clients, row.cells, strict=True)
        }
        return (
            self.folder in ("", row.folder)
            and (not self.seen or letters.get(self.seen, "") in WHOLE)
            and (not self.unseen or letters.get(self.unseen, "+") not in WHOLE)
        )


class ClientsPage:
    """Reads only; a fix is made by the API, if it still is what was shown."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        return [Route(CLIENTS_PATH, self.page)]

    def page(self, request: Request) -> Response:
        places = self._site.house.config.places
        wanted = request.query_params.get("client", "")
        if wanted not in ("", "all", *known_clients(), *profile_names(places.profiles)):
            raise HTTPException(404)
        here = seen_by(places, examined_profiles(places, ()))
        lens = seen_by(places, examined_profiles(places, (wanted,))) if wanted else here
        every = rows_of(lens)
        asked = RowFilter.of(request.query_params)
        rows = [row for row in every if asked.fits(row, lens)]
        # Of the clients that are installed, as the API takes a fix without a list of clients.
        fixes = list(itertools.islice(proposed_fixes(here), FIXES_MAX + 1))
        return self._site.page(
            request,
            "clients.html",
            lens=lens,
            wanted=wanted,
            asked=asked,
            folders=sorted({row.folder for row in every}),
            counts=[counts_of(every, at) for at, _ in enumerate(lens.clients)],
            rows=rows[:ROWS_MAX],
            total=len(rows),
            uneven=sum(not row.is_even for row in rows),
            problems=tuple(problems(lens)),
            fixes=[_group_value(here, group) for group in fix_groups(fixes[:FIXES_MAX])],
            has_more_fixes=len(fixes) > FIXES_MAX,
            exported=lens.exported,
            unsafe=unsafe_entries(places),
            profiles=client_profiles(places),
            budgets=budgets_of(lens.clients),
        )


def rows_of(lens: ClientReport) -> list[Row]:
    """Return a row for each skill, first those that some client does not see in full."""
    rows = [
        Row(
            skill=skill,
            place=lens.short(skill.directory),
            cells=tuple(
                ClientCell(letter(verdict), verdict.reason or verdict.code)
                for verdict in skill.verdicts
            ),
        )
        for skill in lens.skills
    ]
    return sorted(rows, key=lambda row: row.is_even)


def counts_of(rows: Sequence[Row], at: int) -> dict[str, int]:
    """Return how many skills a client sees, and how many it treats otherwise, by letter."""
    return dict(Counter(row.cells[at].letter for row in rows))


def budgets_of(clients: Sequence[ClientColumn]) -> dict[str, dict[str, Any]]:
    """Return the budget of each client that has one and is over it."""
    return {
        one.name: {"limit": one.budget.limit, "over": one.budget.over}
        for one in clients
        if one.budget is not None and one.budget.over
    }

"""The page of clients: what each sees of the skills here, why not, and what fixes it."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.audit import subject_of
from skillhouse.answers.client_changes import fix_answer, fix_groups
from skillhouse.audit import AuditEntry, Query, entries_of
from skillhouse.clients import (
    ClientColumn,
    ClientReport,
    Fix,
    ReportedProblem,
    ReportedSkill,
    client_profiles,
    exported_sources,
    known_clients,
    problems,
    proposed_fixes,
)
from skillhouse.extensions.server.pages.renderer import edit_path, skill_path
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import Severity, SkillhouseError
from skillhouse.floor.ownership import is_settled
from skillhouse.manage import OwnRoots
from skillhouse.presentation.client_report import WHOLE, letter, verdict_reason
from skillhouse.presentation.doctor_values import (
    examined_profiles,
    seen_by,
    unsafe_entries,
)
from skillhouse.presentation.library import library_lines
from skillhouse.skill import profile_names

CLIENTS_PATH = "/clients"
ROWS_MAX = 300
"""Skills of the table; those that some client does not see in full come first."""
FIXES_MAX = 50
CALLS_SHOWN = 20
CALLS_MAX = 1_000
LOOKED_AT_MAX = 20_000
"""Records in which the calls of one client are looked for, from the newest."""
LOOK_SECONDS = 30.0
"""How long a look is used again while no file or directory of it changed."""
LOOKS_KEPT = 3


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


def _group_value(report: ClientReport, group: Sequence[Fix]) -> dict[str, Any]:
    """Return fixes of a kind, and what the API takes as one answer for all of them."""
    every = [fix_answer(report, fix) for fix in group]
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

    def fits(self, row: Row, report: ClientReport) -> bool:
        letters = {
            client.name: cell.letter for client, cell in zip(report.clients, row.cells, strict=True)
        }
        return (
            self.folder in ("", row.folder)
            and (not self.seen or letters.get(self.seen, "") in WHOLE)
            and (not self.unseen or letters.get(self.unseen, "+") not in WHOLE)
        )


class ClientsLook(NamedTuple):
    """What some clients see, and what the page makes of it, which takes long for many skills."""

    report: ClientReport
    rows: Sequence[Row]
    """First those that some client does not see in full."""
    uneven: int
    """How many those are."""
    folders: Sequence[str]
    counts: Sequence[Mapping[str, int]]
    """How many skills each client sees, and how many it treats otherwise, by letter."""
    problems: Sequence[ReportedProblem]
    fixes: Sequence[Fix]
    """Of what can be fixed as many as the page shows, and one more."""

    @classmethod
    def of(cls, report: ClientReport) -> ClientsLook:
        rows = rows_of(report)
        return cls(
            report=report,
            rows=rows,
            uneven=sum(not row.is_even for row in rows),
            folders=sorted({row.folder for row in rows}),
            counts=[counts_of(rows, at) for at, _ in enumerate(report.clients)],
            problems=problems(report),
            fixes=list(itertools.islice(proposed_fixes(report), FIXES_MAX + 1)),
        )


class _KeptLook(NamedTuple):
    look: ClientsLook
    basis: tuple[Any, ...]
    """What else it depends on than files and directories of skills."""
    stamps: int
    until: float


class ClientsPage:
    """Reads only; a fix is made by the API, if it still is what was shown."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kept: dict[tuple[str, ...], _KeptLook] = {}

    def routes(self) -> list[Route]:
        return [Route(CLIENTS_PATH, self.page), Route("/clients/{name}", self.one)]

    def page(self, request: Request) -> Response:
        places = self._site.house.config.places
        wanted = request.query_params.get("client", "")
        if wanted not in ("", "all", *known_clients(), *profile_names(places.profiles)):
            raise HTTPException(404)
        here = self._look(())
        look = self._look((wanted,)) if wanted else here
        report = look.report
        asked = RowFilter.of(request.query_params)
        rows = look.rows
        if any(asked):
            rows = [row for row in rows if asked.fits(row, report)]
        shown = rows[:ROWS_MAX]
        # Of the clients that are installed, as the API takes a fix without a list of clients.
        groups = fix_groups(here.fixes[:FIXES_MAX])
        return self._site.page(
            request,
            "clients.html",
            report=report,
            wanted=wanted,
            asked=asked,
            folders=look.folders,
            counts=look.counts,
            rows=shown,
            total=len(rows),
            uneven=look.uneven if rows is look.rows else sum(not row.is_even for row in rows),
            problems=look.problems,
            fixes=[_group_value(here.report, group) for group in groups],
            has_more_fixes=len(here.fixes) > FIXES_MAX,
            exported=report.exported,
            unsafe=unsafe_entries(places),
            profiles=client_profiles(places),
            budgets=budgets_of(report.clients),
            links=self._links(row.skill for row in shown),
            listed=self._listed(),
        )

    def one(self, request: Request) -> Response:
        """Show what one client sees of the skills, what it called, and what it was denied."""
        house, name = self._site.house, request.path_params["name"]
        places = house.config.places
        calls, fault = self._calls_of(name)
        is_known = name in (*known_clients(), *profile_names(places.profiles))
        questions = [
            one for one in house.approvals.pending() if is_called(one.request.client_name, name)
        ]
        if not (is_known or calls or questions):
            raise HTTPException(404)
        look = self._look((name,)) if is_known else None
        report, rows = (None, []) if look is None else (look.report, look.rows)
        denied = [one for one in calls if one.status == "denied"]
        return self._site.page(
            request,
            "client.html",
            of_client=quote(calls[0].record.client, safe="") if calls else "",
            name=name,
            column=report.clients[0] if report is not None else None,
            rows=rows[:ROWS_MAX],
            total=len(rows),
            counts=counts_of(rows, 0) if rows else {},
            budgets={} if report is None else budgets_of(report.clients),
            fault=fault,
            calls=[(one, subject_of(one)) for one in calls[:CALLS_SHOWN]],
            call_count=len(calls),
            denied=[(one, subject_of(one)) for one in denied[:CALLS_SHOWN]],
            denials=len(denied),
            questions=questions,
            grants=len(house.approvals.grant_store.all()),
            links=self._links(row.skill for row in rows[:ROWS_MAX]),
        )

    def _look(self, names: tuple[str, ...]) -> ClientsLook:
        """Return what clients see; of all that are installed without names."""
        config = self._site.house.config
        with self._site.reader.using() as house:
            is_trusted = house.is_project_trusted
        profiles = examined_profiles(config.places, names)
        exported = exported_sources(config.state_directory)
        basis = (profiles, config.roots, is_trusted, exported)
        kept = self._kept.get(names)
        if (
            kept is not None
            and time.monotonic() < kept.until
            and kept.basis == basis
            and kept.stamps == _stamps(kept.look.report.looked_at)[0]
        ):
            return kept.look
        until, began = time.monotonic() + LOOK_SECONDS, time.time_ns()
        look = ClientsLook.of(seen_by(config.places, profiles, config.cache_directory))
        stamps, newest = _stamps(look.report.looked_at)
        self._kept.pop(names, None)
        # What changed just now may have done so after it was read.
        if is_settled(newest, now=began):
            while len(self._kept) >= LOOKS_KEPT:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[names] = _KeptLook(look, basis, stamps, until)
        return look

    def _calls_of(self, name: str) -> tuple[list[AuditEntry], str]:
        """Return the latest calls of a client, newest first, and why the log cannot be read."""
        log = self._site.house.audit_log
        try:
            entries = itertools.islice(entries_of(log.path, Query(), key=log.key), LOOKED_AT_MAX)
            found = (one for one in entries if is_called(one.record.client, name))
            return list(itertools.islice(found, CALLS_MAX)), ""
        except SkillhouseError as error:
            return [], str(error)

    def _links(self, skills: Iterable[ReportedSkill]) -> dict[str, str]:
        """Return the address of each of these skills that has a page here, by its file."""
        scan = self._site.reader.scan()
        broken = {
            str(finding.path): finding.path
            for finding in scan.index.diagnostics
            if finding.severity is Severity.ERROR and finding.path is not None
        }
        with self._site.reader.using() as house:
            own = OwnRoots(house)
        found = {}
        for file in (skill.file for skill in skills):
            if skill := scan.by_file.get(file):
                found[file] = skill_path(scan.reference_of(skill))
            elif file in broken and own.scope_of(broken[file]):
                # One that cannot be read is edited where it is.
                found[file] = edit_path(file)
        return found

    def _listed(self) -> int:
        """Return how many skills the list of this service has."""
        with self._site.reader.using() as house:
            return sum(1 for _ in library_lines(house))


def _stamps(paths: Iterable[str]) -> tuple[int, int]:
    """Return what changes when a file or directory does, and the time of the newest change."""
    found = []
    newest = 0
    for path in paths:
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            found.append((0, 0, 0))
        else:
            newest = max(newest, info.st_ctime_ns)
            found.append((info.st_ino, info.st_size, info.st_ctime_ns))
    return hash(tuple(found)), newest


def is_called(given: str, name: str) -> bool:
    """Whether what a client calls itself, with its version, is this client.

    >>> is_called("codex-mcp-client 0.9", "codex"), is_called("codexy 1", "codex")
    (True, False)
    """
    own = given.partition(" ")[0].casefold()
    return own == name.casefold() or own.startswith(f"{name.casefold()}-")


def rows_of(report: ClientReport) -> list[Row]:
    """Return a row for each skill, first those that some client does not see in full."""
    rows = [
        Row(
            skill=skill,
            place=report.short(skill.directory),
            cells=tuple(
                ClientCell(letter(verdict), verdict_reason(report, verdict))
                for verdict in skill.verdicts
            ),
        )
        for skill in report.skills
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

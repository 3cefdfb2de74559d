"""The page of one skill, of its files, and of the clients that see it."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# A package and not its names: what installs is loaded with the first page that needs it.
from skillhouse import install
from skillhouse.answers.skills import digest_of
from skillhouse.approval import Approval
from skillhouse.audit import AuditEntry, AuditError, Query, entries_of
from skillhouse.clients import ClientReport
from skillhouse.extensions.server.forms import saved_file
from skillhouse.extensions.server.pages.languages import language_of, translations
from skillhouse.extensions.server.pages.renderer import files_path
from skillhouse.extensions.server.pages.site import Site
from skillhouse.extensions.server.pages.skill_markdown import IMAGE, rendered
from skillhouse.extensions.server.pages.skill_rows import RECORDS_MAX
from skillhouse.extensions.server.status import SkillScan
from skillhouse.floor import PathError, SkillError, SkillhouseError, UnknownSkillError
from skillhouse.house import InstalledState, Skillhouse
from skillhouse.manage import EDITABLE, CodeFacts
from skillhouse.presentation.client_report import verdict_text
from skillhouse.presentation.doctor_values import examined_profiles, seen_by
from skillhouse.presentation.skill_answers import code_of, facts_rows
from skillhouse.registry import read_facts
from skillhouse.skill import SKILL_FILE, Skill, find_resources
from skillhouse.tools import SkillCodeTool

FILES_SHOWN = 500
"""Files of one skill that its page lists; the others are counted."""
TEXT_SHOWN = 262_144
"""Characters of a file that its page shows; the whole of it can be downloaded."""
CALLS_SHOWN = 10
QUESTIONS_SHOWN = 10


class FileTree(Struct, frozen=True, kw_only=True):
    """A directory of a skill, with its files and directories in order."""

    name: str
    files: tuple[tuple[str, str], ...] = ()
    """Names, and paths relative to the skill."""
    directories: tuple[FileTree, ...] = ()

    @property
    def count(self) -> int:
        return len(self.files) + sum(one.count for one in self.directories)


class Field(Struct, frozen=True, kw_only=True):
    """One argument of a tool, as a form asks for it."""

    name: str
    kind: str
    """string, integer, number, boolean, or json for everything else."""
    description: str
    choices: tuple[str, ...]
    is_required: bool


class CallableTool(Struct, frozen=True, kw_only=True):
    """A tool of a skill's own code."""

    name: str
    """Its full name, which the API takes."""
    level: str
    description: str
    schema: dict[str, Any]
    fields: tuple[Field, ...] | None
    """None where no form fits the schema: all arguments are then one JSON text."""


class SkillPage:
    """Plain functions, which Starlette runs in threads."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._reader = site.reader
        self._report = _ClientReports(site.house)

    def routes(self) -> list[Route]:
        return [
            Route("/skills/{reference:path}", self.one),
            Route("/files/{reference:path}", self.file),
            Route("/seen/{reference:path}", self.seen),
        ]

    def one(self, request: Request) -> Response:
        reference = request.path_params["reference"]
        try:
            detail = self._reader.detail(reference)
        except UnknownSkillError as error:
            return self._code(request, reference, error)
        skill = detail.skill
        names, more_files, is_bounded = find_resources(skill.directory, limit=FILES_SHOWN)
        with self._reader.using() as house:
            tools = tuple(_tools(house, skill.directory))
            installed = installed_state_of(house, skill.directory)
            questions = tuple(_questions(house, skill.name))
            heard = _heard(house, skill)
            is_on = house.snapshot.settings.is_enabled(skill.id)
        calls, calls_problem = self._calls(skill.name, detail.code)
        body = detail.content.body.strip("\n") if detail.content else ""
        return self._site.page(
            request,
            "skill.html",
            detail=detail,
            skill=skill,
            code_rows=facts_rows(detail.code) if detail.code else [],
            body=body,
            markup=self._markup(request, detail.reference, body, SKILL_FILE),
            files=file_tree(names),
            more_files=more_files,
            is_bounded=is_bounded,
            tools=tools,
            heard=heard,
            installed=installed,
            questions=questions,
            calls=calls,
            calls_problem=calls_problem,
            is_on=is_on,
            is_own=skill.scope in EDITABLE,
            is_first=detail.reference == skill.id,
            has_package=_has_package(skill),
        )

    def _code(self, request: Request, reference: str, unknown: UnknownSkillError) -> Response:
        """Show a skill of code alone; the error for one that is unknown to that, too."""
        with self._reader.using() as house:
            facts, why = code_of(house, reference, unknown)
            tools = tuple(_tools(house, facts.directory))
            questions = tuple(_questions(house, facts.name))
            can_read = house.runs_code
            listing = house.view().code_mark(facts.directory)
        names, more_files, is_bounded = find_resources(facts.directory, limit=FILES_SHOWN)
        calls, calls_problem = self._calls(facts.name, facts)
        return self._site.page(
            request,
            "code.html",
            facts=facts,
            # Of two of one id the weaker is found by its directory.
            reference=str(facts.directory) if why and why.state == "shadowed" else facts.id,
            code_rows=facts_rows(facts),
            why=why,
            digest=digest_of(facts.directory),
            files=file_tree(names),
            more_files=more_files,
            is_bounded=is_bounded,
            can_read=can_read,
            listing=listing,
            tools=tools,
            questions=questions,
            calls=calls,
            calls_problem=calls_problem,
            is_on=why is None or why.state != "disabled",
            is_switchable=why is None or why.state in ("disabled", "denied", "unseen"),
        )

    def _markup(self, request: Request, reference: str, text: str, file: str) -> Any:
        gettext, _ = translations(language_of(request))
        image = gettext(IMAGE)
        return rendered(text, reference=reference, file=file, image=image)

    def _calls(self, name: str, code: CodeFacts | None) -> tuple[tuple[AuditEntry, ...], str]:
        """Return the newest calls about a skill, and why they cannot be read."""
        log = self._site.house.audit_log
        try:
            newest = itertools.islice(entries_of(log.path, Query(), key=log.key), RECORDS_MAX)
            tools = code.wire_names if code else frozenset()
            about = (
                entry
                for entry in newest
                if entry.record.skill == name or entry.record.tool in tools
            )
            return tuple(itertools.islice(about, CALLS_SHOWN)), ""
        except AuditError as error:
            return (), str(error)

    def file(self, request: Request) -> Response:
        """Show the text of one file, or send it to be saved, with `download=1`."""
        asked = request.query_params
        name = asked.get("name", "") or SKILL_FILE
        reference = request.path_params["reference"]
        data, problem = b"", ""
        try:
            detail = self._reader.detail(reference)
            skill, where, its_name = detail.skill.file, detail.reference, detail.skill.name
        except UnknownSkillError as error:
            with self._reader.using() as house:
                facts, _ = code_of(house, reference, error)
            skill, where, its_name = str(facts.directory), reference, facts.name
        try:
            with self._reader.using() as house:
                data = house.management.read_data(skill, name)
        except PathError as error:
            raise HTTPException(404) from error
        except SkillError as error:
            problem = str(error)
        if "download" in asked:
            if problem:
                raise HTTPException(404)
            return _download(name, data)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text, problem = "", "expected UTF-8 text"
        is_markdown = name.endswith(".md") and name != SKILL_FILE
        return self._site.page(
            request,
            "file.html",
            reference=where,
            skill_name=its_name,
            name=name,
            size=len(data),
            text=text[:TEXT_SHOWN],
            more_text=max(0, len(text) - TEXT_SHOWN),
            markup=self._markup(request, where, text, name) if is_markdown else None,
            problem=problem,
            download=files_path(where, name) + "&download=1",
        )

    def seen(self, request: Request) -> Response:
        detail = self._reader.detail(request.path_params["reference"])
        report = self._report.of(self._reader.scan())
        real = os.path.realpath(detail.skill.file)
        found = next((one for one in report.skills if one.file == real), None)
        verdicts = [] if found is None else list(zip(report.clients, found.verdicts, strict=True))
        lines = [
            (client.profile.client or client.name, one.state.value, verdict_text(report, one))
            for client, one in verdicts
        ]
        return self._site.page(request, "seen.html", detail=detail, skill=detail.skill, lines=lines)


class _ClientReports:
    """What the clients here see, compared once for each state of the skills."""

    def __init__(self, house: Skillhouse) -> None:
        self._places, self._cache = house.config.places, house.config.cache_directory
        self._of: object = None
        self._report: ClientReport | None = None
        self._lock = threading.Lock()

    def of(self, scan: SkillScan) -> ClientReport:
        with self._lock:
            if self._report is None or self._of is not scan.index:
                self._report = seen_by(
                    self._places, examined_profiles(self._places, ()), self._cache
                )
                self._of = scan.index
            return self._report


def file_tree(names: tuple[str, ...]) -> FileTree:
    """Return the tree of relative paths.

    >>> tree = file_tree(("a", "x/b", "x/y/c"))
    >>> tree.files, tree.directories[0].name, tree.count
    ((('a', 'a'),), 'x', 3)
    """
    return _tree("", [(tuple(name.split("/")), name) for name in names])


def _tree(name: str, paths: list[tuple[tuple[str, ...], str]]) -> FileTree:
    below: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for parts, path in paths:
        if len(parts) > 1:
            below.setdefault(parts[0], []).append((parts[1:], path))
    return FileTree(
        name=name,
        files=tuple((parts[0], path) for parts, path in paths if len(parts) == 1),
        directories=tuple(_tree(each, inside) for each, inside in sorted(below.items())),
    )


def _download(name: str, data: bytes) -> Response:
    """Return a file as one to be saved: no browser shows it, whatever is in it."""
    return Response(data, headers=saved_file(name))


def _has_package(skill: Skill) -> bool:
    """Whether a skill is called as a package must be."""
    try:
        return read_facts(skill.directory, skill.directory.name).name == skill.directory.name
    except SkillError:
        return False


def _heard(house: Skillhouse, skill: Skill) -> tuple[tuple[str, str], ...]:
    """Return how the model of each configured agent hears of a skill, where it does."""
    marks = ((agent, house.view(agent).mark(skill)) for agent in house.config.agents)
    return tuple((agent, mark) for agent, mark in marks if mark)


def _tools(house: Skillhouse, directory: Path) -> Iterator[CallableTool]:
    for tool in house.tools(every=True):
        if isinstance(tool, SkillCodeTool) and tool.skill.directory == directory:
            schema = dict(tool.schema)
            yield CallableTool(
                name=tool.full_name,
                level=tool.level,
                description=tool.description,
                schema=schema,
                fields=form_fields(schema),
            )


_PLAIN = ("string", "integer", "number", "boolean")


def form_fields(schema: dict[str, Any]) -> tuple[Field, ...] | None:
    """Return the fields that a form has for a schema; None where no form fits it.

    >>> form_fields({"properties": {"a.b": {}}}) is None
    True
    >>> [one.kind for one in form_fields({"properties": {"a": {"type": "integer"}, "b": {}}})]
    ['integer', 'json']
    """
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or any("." in name or not name for name in properties):
        return None
    required = schema.get("required", [])
    fields = []
    for name, value in properties.items():
        each = value if isinstance(value, dict) else {}
        kind, choices = each.get("type"), each.get("enum", [])
        is_choice = bool(choices) and all(isinstance(one, str) and one for one in choices)
        fields.append(
            Field(
                name=name,
                kind=kind if kind in _PLAIN else "json",
                description=str(each.get("description", "")),
                choices=tuple(choices) if is_choice else (),
                is_required=isinstance(required, list) and name in required,
            )
        )
    return tuple(fields)


def installed_state_of(house: Skillhouse, skill: Path) -> InstalledState | None:
    """Return how the installed skill of a directory compares with its lock; None for no such."""
    real = os.path.realpath(skill)
    try:
        installed = install.InstalledSkills(house)
        for place, name, entry in installed.entries():
            if os.path.realpath(place.target(name)) == real:
                return installed.state(name, entry, place)
    except SkillhouseError:
        # The page of the packages names the lock that cannot be read.
        return None
    return None


def _questions(house: Skillhouse, name: str) -> Iterator[Approval]:
    about = (
        one
        for one in house.approvals.latest()
        if one.request.tool.partition(":")[0] == name
        or any(each.resource.partition(":")[0] == name for each in one.request.asked)
    )
    return itertools.islice(about, QUESTIONS_SHOWN)

"""The tool `read`: a page of a file, or of a result that was too long to be given at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from skillhouse.floor.threads import in_thread
from skillhouse.permission import Effect, Permission
from skillhouse.skill import revealed
from skillhouse.tools.call import (
    OUTPUT_MAX,
    Excerpt,
    Output,
    PermissionRequest,
    Plan,
    object_schema,
)
from skillhouse.tools.excerpt import RESULT_MAX, Page, page_of
from skillhouse.tools.files import PATH, WorkspaceTool, read_need, text_if_any, text_of
from skillhouse.tools.result_files import ResultFiles, gets_whole
from skillhouse.tools.skill_text import Facts, cautioned, handed, skill_directory_of
from skillhouse.tools.tool import Session
from skillhouse.tools.workspace import Workspace

PAGED_AT_ONCE = 262_144
"""Characters of a file of which a page is cut on the event loop: some milliseconds."""


class ReadTool(WorkspaceTool):
    name = "read"
    description = (
        "Read a text file of the workspace or of a loaded skill, or the file of a long result. Use "
        "`offset` and `limit` (lines) for long files."
    )
    durable = False
    required_actions = ("read",)
    required_resource = "/*"
    reads_only = True
    schema: Mapping[str, Any] = object_schema(
        {
            "path": PATH,
            "offset": {"type": "integer", "minimum": 1, "description": "first line, from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "most lines"},
            "column": {
                "type": "integer",
                "minimum": 1,
                "description": "first character of that line, from 1",
            },
        },
        required=("path",),
    )

    def __init__(
        self,
        workspace: Workspace,
        results: ResultFiles | None = None,
        conceal: Callable[[str], str] = str,
    ) -> None:
        """`results` are the long results that it reads too; `conceal` takes secrets out of a text
        before a page is cut from it, so that none is cut through."""
        super().__init__(workspace)
        self._results = results
        self._conceal = conceal

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """A listed skill's SKILL.md needs what loading that skill needs."""
        absolute = self._workspace.absolute(arguments["path"])
        if self._results is not None and self._results.holds(absolute):
            return self._plan_of_result(self._results, absolute, arguments, session)
        # As it is written, and where links in the workspace lead.
        names = (absolute, os.path.realpath(absolute))
        skill = next((s for s in session.visible.skills if s.file in names), None)
        needs: tuple[PermissionRequest, ...] = ()
        if skill is not None:
            needs = session.needs_of(skill)
            session = session.with_loaded(skill)
        place = self._workspace.file(arguments["path"], session)
        needs += (read_need("read", place),)
        home = skill_directory_of(place.path, place.base)
        known = None if home is None else text_if_any(place)
        facts: Facts = ()
        if home is not None and known is not None:
            needs, facts = cautioned(
                session, needs, skill=skill or home, file=str(place.path), text=known
            )

        # A skill's own text is given as loading it gives it.
        excerpt: Excerpt = "head" if skill is None else "whole"
        most = OUTPUT_MAX if skill is not None or gets_whole(session) else RESULT_MAX

        async def run() -> Output:
            # INVARIANT: of a skill's file, the text that is handed over is the one that was judged.
            text = text_of(place) if known is None else known
            show = str if home is None else handed
            return await self._page(
                text, str(place.path), arguments, most=most, show=show, excerpt=excerpt
            )

        return Plan(needs=needs, run=run, facts=facts)

    def _plan_of_result(
        self, results: ResultFiles, path: str, arguments: Mapping[str, Any], session: Session
    ) -> Plan:
        """Plan to read what a call of this conversation returned; a rule may still deny it."""
        results.check(session, path)
        need = PermissionRequest(
            permission=Permission(action="read", resource=path),
            default=Effect.ALLOW,
            why="it is a result of this conversation",
        )

        async def run() -> Output:
            text = await in_thread(lambda: results.text(session, path))
            return await self._page(text, path, arguments, most=RESULT_MAX)

        return Plan(needs=(need,), run=run)

    async def _page(
        self,
        text: str,
        path: str,
        arguments: Mapping[str, Any],
        *,
        most: int,
        show: Callable[[str], str] = str,
        excerpt: Excerpt = "head",
    ) -> Output:
        page = Page(
            line=arguments.get("offset", 1),
            column=arguments.get("column", 1),
            limit=arguments.get("limit"),
        )

        def output() -> Output:
            lines = self._conceal(text).splitlines(keepends=True)
            part = page_of(lines, page, most, shown=lambda part: revealed(show(part)))
            data = {"path": path, "lines": len(lines)}
            return Output(text=show(part), data=data, excerpt=excerpt)

        return output() if len(text) <= PAGED_AT_ONCE else await in_thread(output)

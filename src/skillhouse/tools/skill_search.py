"""The tool that searches for a skill, under a profile's names and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import anyio.to_thread

from skillhouse.permission import Effect, Permission
from skillhouse.retrieval import Fit, Hit, SearchResult, reason, skills_of
from skillhouse.skill import SkillIndex, ToolRule
from skillhouse.tools.call import Output, PermissionRequest, Plan, object_schema
from skillhouse.tools.messages import render
from skillhouse.tools.offer import SEARCH_ACTION
from skillhouse.tools.skills import CATEGORY, VisibleSkills
from skillhouse.tools.tool import Session, Tool

SEARCH_LIMIT = 5
"""Skills that a search gives when the call does not say (S003-35)."""
SEARCH_MAX = 50
"""Skills that a search gives at most."""


class FindSkills(Protocol):
    """Searches an agent's skills for one session, at once: while bodies are being read, by names
    and descriptions alone."""

    def __call__(
        self, session: Session, query: str, *, limit: int, collapse: bool
    ) -> SearchResult: ...


class SearchTool(Tool):
    durable = False
    listed_at_once = True
    is_about_skills = True
    required_actions = (SEARCH_ACTION,)
    category = CATEGORY
    reads_only = True

    def __init__(self, rule: ToolRule, shown: VisibleSkills, find: FindSkills) -> None:
        self.name = rule.name
        self.title = rule.title or rule.name
        self.description = render(shown.profile.messages, "search_description")
        self._query = rule.parameters.get("query", "query")
        self._limit = rule.parameters.get("limit", "limit")
        self._messages = shown.profile.messages
        self._find = find
        self._collapse = shown.profile.duplicates != "keep_all"
        refuses = rule.bounds == "refuse"
        text = {"minLength": 1} if refuses else {}
        number = {"minimum": 1, "maximum": SEARCH_MAX} if refuses else {}
        self.schema: Mapping[str, Any] = object_schema(
            {
                self._query: {"type": "string", **text, "description": "what is to be done"},
                self._limit: {"type": "integer", **number, "default": SEARCH_LIMIT},
            },
            required=(self._query,),
        )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        query = arguments[self._query]
        limit = bounded(arguments.get(self._limit, SEARCH_LIMIT))

        async def run() -> Output:
            # The index may have to be opened or made, which must not hold up other calls.
            found = await anyio.to_thread.run_sync(
                lambda: self._find(session, query, limit=limit, collapse=self._collapse)
            )
            skills = skills_of(session.visible, found.hits)
            if not session.origin_digest:
                session.searches.note(query, (skill.file for skill in skills))
            shown = found_values(session.visible, found.hits)
            data: dict[str, Any] = {"skills": shown}
            if shown:
                data["reasons"] = [reason(hit) for hit in found.hits]
            if found.is_weak:
                data["weak"] = True
            if found.fit is Fit.NONE:
                data["nothing_fits"] = True
            if found.is_partial:
                data["partial"] = True
            if found.meaning is not None:
                # Until an encoder is ready, its vote is missing.
                data["encoders"] = {"ready": found.meaning.ready, "all": found.meaning.encoders}
            return Output(text=self._text(shown, found, session), data=data)

        need = PermissionRequest(
            permission=Permission(action=SEARCH_ACTION, resource=query),
            default=Effect.ALLOW,
            why="searching what is listed changes nothing",
        )
        return Plan(needs=(need,), run=run)

    def _text(
        self, shown: Sequence[Mapping[str, str]], found: SearchResult, session: Session
    ) -> str:
        lines = [
            f"{skill['name']}: {skill['description']}{self._reason(hit)}"
            for skill, hit in zip(shown, found.hits, strict=True)
        ]
        if found.fit is Fit.WEAK:
            lines.insert(0, render(self._messages, "search_weak"))
        elif found.fit is Fit.NONE or not lines:
            # Once: a model that goes on with other words each time finds nothing better.
            hint = "" if session.searches.is_hinted else render(self._messages, "search_hint")
            session.searches.is_hinted = True
            said = render(self._messages, "search_none" if lines else "search_empty", hint=hint)
            lines.insert(0, said)
        if found.is_partial:
            lines += ["", render(self._messages, "search_partial")]
        return "\n".join(lines)

    def _reason(self, hit: Hit) -> str:
        alike = render(self._messages, "search_alike", ids=", ".join(map(_flat, hit.alike)))
        return render(
            self._messages, "search_reason", reason=reason(hit), alike=alike if hit.alike else ""
        )


def bounded(limit: int) -> int:
    """Return how many skills a search gives: none for a limit below one (S003-41, S003-48)."""
    return max(0, min(limit, SEARCH_MAX))


def found_values(visible: SkillIndex, hits: Sequence[Hit]) -> list[dict[str, str]]:
    """Return name and description of each hit, best first (S003-36, S003-38)."""
    return [
        {"name": _flat(skill.name), "description": _flat(skill.description)}
        for skill in skills_of(visible, hits)
    ]


def _flat(text: str) -> str:
    return " ".join(text.split())

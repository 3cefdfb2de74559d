"""The routes about skills that read: list, show, load, files, search, catalog, rehearse, tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import UNSET

from skillhouse.answers.catalogs import (
    FoundAnswer,
    PromptCatalogAnswer,
    SkillHitAnswer,
    catalog_answer,
    request_answer,
    search_skills,
)
from skillhouse.answers.json_form import ListAnswer, PageAnswer, listed
from skillhouse.answers.rehearsal import RehearsalAnswer, rehearsal_answer
from skillhouse.answers.shown_skill import (
    FileContentAnswer,
    FilesAnswer,
    ShownCodeAnswer,
    ShownSkillAnswer,
)
from skillhouse.answers.skills import (
    ContentAnswer,
    ListedSkillAnswer,
    content_answer,
    listed_skill,
)
from skillhouse.answers.tools import ToolAnswer, tool_answer
from skillhouse.extensions.server.api.api_services import PAGE_MAX, ApiServices, paged
from skillhouse.extensions.server.api.call_routes import caller_of
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint, RouteParameter
from skillhouse.extensions.server.api.schemas import (
    TEXT,
    either,
    listing,
    record,
    ref,
)
from skillhouse.house import rehearse
from skillhouse.manage import signature_warnings
from skillhouse.presentation.library import SkillFilter
from skillhouse.presentation.short_paths import clients_of
from skillhouse.presentation.skill_answers import (
    found_skill,
    shown_answer,
    skill_files,
)

QUERY_TEXT_MAX = 2_000
LIMIT = RouteParameter(
    name="limit",
    schema={"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
    what="Items of a page; 50 if left out.",
    example=50,
)
CURSOR = RouteParameter(
    name="cursor",
    schema={"type": "string", "minLength": 1, "maxLength": 2_000},
    what="The `next` of the page before.",
)
WORDS = RouteParameter(
    name="q",
    schema={"type": "string", "maxLength": QUERY_TEXT_MAX},
    what="Only skills with these words in name, description or path.",
    example="weather",
)
SCOPE = RouteParameter(
    name="scope",
    schema={"type": "string", "minLength": 1, "maxLength": 40},
    what="Only skills of this scope.",
    example="builtin",
)
AGENT = RouteParameter(
    name="agent",
    schema={"type": "string", "minLength": 1, "maxLength": 100},
    what="As this agent sees it; that of the token if left out.",
    example="default",
)
SKILL_EXAMPLE = {
    "id": "builtin:weather",
    "name": "weather",
    "description": "Gives the weather of a place.",
    "scope": "builtin",
    "location": "/usr/lib/skillhouse/weather/SKILL.md",
    "directory": "/usr/lib/skillhouse/weather",
    "uri": "skill://weather/SKILL.md",
}


def agent_of(request: ApiRequest) -> str:
    """Return the agent that a request is about; a named token has one of its own."""
    asked: str = request.query.get("agent", request.access.agent)
    return asked if request.access.is_owner else request.access.agent


def filter_of(request: ApiRequest, roots: tuple[str, ...] | None = None) -> SkillFilter:
    """Return what `q` and `scope` of a request leave."""
    words = tuple(request.query.get("q", "").split())
    return SkillFilter(words=words, scope=request.query.get("scope"), roots=roots)


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    view, home = api.scan().view, api.house.config.places.home
    found = filter_of(request).skills(view.visible.skills)
    with api.reader.using() as house:
        warnings = signature_warnings(house)
    return paged(
        found,
        request.query,
        key=lambda one: one.file,
        name="skills",
        value=lambda s: listed_skill(s, clients_of(Path(s.root), home), view.mark(s), warnings),
    )


def _show(api: ApiServices, request: ApiRequest) -> ShownSkillAnswer | ShownCodeAnswer:
    with api.fresh() as house:
        return shown_answer(house, found_skill(house, request.path["skill"]))


def _load(api: ApiServices, request: ApiRequest) -> ContentAnswer:
    with api.fresh() as house:
        return content_answer(house.load(request.path["skill"]))


def _files(api: ApiServices, request: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        return skill_files(house, request.path["skill"]).answer()


def _file(api: ApiServices, request: ApiRequest) -> FileContentAnswer:
    name = request.path["file"]
    with api.fresh() as house:
        content = house.management.read_file(request.path["skill"], name)
    return FileContentAnswer(name=name, content=content)


def _search(api: ApiServices, request: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        found = search_skills(house, request.query["q"], request.query.get("limit", 5))
    return listed("hits", found.answers(), found.answer())


def _catalog(api: ApiServices, request: ApiRequest) -> PromptCatalogAnswer:
    with api.fresh() as house:
        asked = request.query.get("request", "")
        view = house.view(agent_of(request))
        catalog = view.catalog(request=asked)
        fitting = request_answer(view, asked, catalog) if asked.strip() else UNSET
        return PromptCatalogAnswer(
            catalog=catalog_answer(catalog), prompt=view.system_prompt(), fitting=fitting
        )


def _rehearse(api: ApiServices, request: ApiRequest) -> RehearsalAnswer:
    with api.fresh() as house:
        asked = request.body
        return rehearsal_answer(rehearse(house, asked["request"], limit=asked.get("limit", 5)))


def _tools(api: ApiServices, request: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        agent, asked = agent_of(request), request.query
        session = asked.get("session_id", "")
        named = {"agent": agent, "session_id": session}
        caller = caller_of(request.access, named, "") if session else None
        found = house.tools(agent=agent, caller=caller, every=bool(asked.get("every")))
        return listed("tools", list(map(tool_answer, found)))


_HIT_EXAMPLE = {
    **SKILL_EXAMPLE,
    "score": 4.2,
    "exact": False,
    "fields": ["name"],
    "confidence": 0.9,
    "matches": {"name": ["weather"]},
    "alike": [],
    "similarity": 0.0,
    "reason": "name: weather",
    "learned": 0.0,
    "listing": "listed",
}
_CONTENT_EXAMPLE: dict[str, Any] = {
    **SKILL_EXAMPLE,
    "body": "# Weather\n",
    "hidden_text": None,
    "resources": [],
    "resources_omitted": 0,
    "resources_more": False,
    "diagnostics": [],
}
_QUERY = {"type": "string", "minLength": 1, "maxLength": QUERY_TEXT_MAX}

ROUTES = (
    Endpoint(
        name="listSkills",
        method="GET",
        path="/skills",
        tag="skills",
        what="The skills that agents see, in catalog order.",
        run=_list,
        is_short=True,
        is_kept=True,
        query=(WORDS, SCOPE, LIMIT, CURSOR),
        answer=listing("skills", ListedSkillAnswer, PageAnswer),
        example={
            "list": "skills",
            "total": 1,
            "skills": [
                {
                    **SKILL_EXAMPLE,
                    "root": "/usr/lib/skillhouse",
                    "clients": [],
                    "listing": "listed",
                    "warning": "",
                }
            ],
            "next": None,
        },
        problems=(409,),
    ),
    Endpoint(
        name="showSkill",
        method="GET",
        path="/skills/{skill}",
        tag="skills",
        what="One skill: metadata, files, findings, permission; not its body.",
        run=_show,
        is_short=True,
        answer=either(ShownSkillAnswer, ShownCodeAnswer),
        example={
            **{name: value for name, value in _CONTENT_EXAMPLE.items() if name != "body"},
            "frontmatter": {"name": "weather", "description": "Gives the weather of a place."},
            "tree_digest": "skilltree1:00",
            "code": None,
            "state": "in-use",
            "state_reason": "",
            "listing": "listed",
            "decision": {
                "action": "skill",
                "resource": "weather",
                "effect": "allow",
                "layer": "default",
                "rule_index": None,
                "reason": "",
                "rules": [],
            },
        },
    ),
    Endpoint(
        name="loadSkill",
        method="GET",
        path="/skills/{skill}/content",
        tag="skills",
        what="The body of a skill; hidden characters are escapes.",
        run=_load,
        is_short=True,
        answer=ref(ContentAnswer),
        example=_CONTENT_EXAMPLE,
    ),
    Endpoint(
        name="listSkillFiles",
        method="GET",
        path="/skills/{skill}/files",
        tag="skills",
        what="The other files of a skill.",
        run=_files,
        is_short=True,
        answer=listing("resources", TEXT, FilesAnswer),
        example={
            "list": "resources",
            "total": 1,
            "resources": ["scripts/run.py"],
            "directory": "/usr/lib/skillhouse/weather",
            "resources_omitted": 0,
            "resources_more": False,
            "types": {"scripts/run.py": "script"},
        },
    ),
    Endpoint(
        name="readSkillFile",
        method="GET",
        path="/skills/{skill}/files/{file}",
        tag="skills",
        what="The text of one file of a skill.",
        run=_file,
        is_short=True,
        answer=ref(FileContentAnswer),
        example={"name": "SKILL.md", "content": "---\nname: weather\n---\n"},
        problems=(413,),
    ),
    Endpoint(
        name="searchSkills",
        method="GET",
        path="/search",
        tag="skills",
        what="The skills that fit a request best, best first.",
        run=_search,
        is_short=True,
        query=(
            RouteParameter(
                name="q",
                schema=_QUERY,
                what="What the skill should be good for.",
                example="rain",
                required=True,
            ),
            RouteParameter(
                name="limit",
                schema={"type": "integer", "minimum": 1, "maximum": 50},
                what="Most hits; 5 if left out.",
                example=5,
            ),
        ),
        answer=listing("hits", SkillHitAnswer, FoundAnswer),
        example={
            "list": "hits",
            "total": 1,
            "hits": [_HIT_EXAMPLE],
            "weak": False,
            "nothing_fits": False,
            "code": [],
        },
    ),
    Endpoint(
        name="showCatalog",
        method="GET",
        path="/catalog",
        tag="skills",
        what="The list of skills that a model gets, and what its system prompt says of them.",
        run=_catalog,
        query=(
            AGENT,
            RouteParameter(
                name="request",
                schema=_QUERY,
                what="The skills that fit it come first.",
                example="rain",
            ),
        ),
        answer=ref(PromptCatalogAnswer),
        example={
            "text": "…",
            "tokens": 120,
            "included": ["builtin:weather"],
            "omitted": [],
            "prompt": "",
        },
        problems=(422,),
    ),
    Endpoint(
        name="rehearse",
        method="POST",
        path="/rehearse",
        tag="skills",
        what="What an agent would see for a request, and what its calls would meet.",
        run=_rehearse,
        is_change=False,
        body=Body(
            schema=record(
                {"request": _QUERY},
                optional={"limit": {"type": "integer", "minimum": 1, "maximum": 50}},
                closed=True,
            ),
            example={"request": "will it rain in Tokyo", "limit": 5},
        ),
        answer=ref(RehearsalAnswer),
        example={
            "request": "will it rain in Tokyo",
            "catalog": {"text": "", "tokens": 0, "included": [], "omitted": []},
            "hits": [],
            "skill": None,
            "decision": None,
            "content": None,
            "hidden": 0,
            "weak": False,
            "nothing_fits": True,
            "fault": None,
            "mentions": [],
            "unjudged": [],
            "sandbox": None,
            "protected": [],
            "code": [],
        },
        problems=(409,),
    ),
    Endpoint(
        name="listTools",
        method="GET",
        path="/tools",
        tag="calls",
        what="The tools of an agent's request to a model, with their schemas. Beyond `tool_count` "
        "or `tool_list_chars` those of skills are found by searching.",
        run=_tools,
        query=(
            AGENT,
            RouteParameter(
                name="every",
                schema={"type": "boolean"},
                what="All that may be called, whatever a request has room for.",
                example=False,
            ),
            RouteParameter(
                name="session_id",
                schema={"type": "string", "maxLength": 200},
                what="Of a conversation: the tools of skills that it loaded are there too.",
                example="chat-17",
            ),
        ),
        answer=listing("tools", ToolAnswer),
        example={
            "list": "tools",
            "total": 1,
            "tools": [
                {
                    "name": "read",
                    "full_name": "read",
                    "skill": None,
                    "level": None,
                    "python": None,
                    "description": "Reads a file.",
                    "parameters": {"type": "object"},
                }
            ],
        },
        problems=(422,),
    ),
)

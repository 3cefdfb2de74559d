"""The route about every skill here, also those that agents do not see."""

from __future__ import annotations

from skillhouse.answers.json_form import ListAnswer
from skillhouse.answers.skills import LibraryAnswer, LibrarySkillAnswer
from skillhouse.extensions.server.api.api_services import ApiServices, paged
from skillhouse.extensions.server.api.place_routes import check_client
from skillhouse.extensions.server.api.route_table import ApiRequest, Endpoint, RouteParameter
from skillhouse.extensions.server.api.schemas import listing
from skillhouse.extensions.server.api.skill_routes import (
    AGENT,
    CURSOR,
    LIMIT,
    SCOPE,
    WORDS,
    agent_of,
    filter_of,
)
from skillhouse.manage import STATES
from skillhouse.presentation.library import (
    LISTINGS,
    client_roots,
    library_counts,
    library_lines,
    library_skill,
)

PROBLEM = "problem"
"""As a state: all but those in `_WELL`."""
_WELL = ("in-use", "exported", "code-off")
"""Nothing is wrong with an exported copy, or where code is off."""


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    asked, places = request.query, api.house.config.places
    client = asked.get("client")
    if client is not None:
        check_client(places, client)
    with api.fresh() as house:
        found = list(library_lines(house, agent=agent_of(request)))
        ranks = house.services.recent.ranks()
    counts = library_counts(found)
    roots = None if client is None else client_roots(places, client)
    found = filter_of(request, roots).lines(found)
    state = asked.get("state")
    if state == PROBLEM:
        found = [one for one in found if one.state not in _WELL]
    elif state is not None:
        found = [one for one in found if state in (one.state, one.listing)]
    return paged(
        found,
        asked,
        key=lambda one: one.path,
        name="skills",
        value=lambda one: library_skill(one, ranks, places.home),
        more=lambda cursor: LibraryAnswer(
            next=cursor, states=dict(counts.states), listings=dict(counts.listings)
        ),
    )


ROUTES = (
    Endpoint(
        name="listLibrary",
        method="GET",
        path="/library",
        tag="skills",
        what="Every skill here with its state, why agents do not see it, and what it costs.",
        run=_list,
        is_kept=True,
        query=(
            WORDS,
            SCOPE,
            RouteParameter(
                name="client",
                schema={"type": "string", "minLength": 1, "maxLength": 100},
                what="Only skills in folders that this client reads.",
                example="codex",
            ),
            RouteParameter(
                name="state",
                schema={"enum": ["in-use", PROBLEM, *LISTINGS.values(), *STATES]},
                what="Only skills of this state; `problem` are all that something is wrong with. "
                "Those in use are `listed`, `search-only`, or offered as `tools`.",
                example="broken",
            ),
            AGENT,
            LIMIT,
            CURSOR,
        ),
        answer=listing("skills", LibrarySkillAnswer, LibraryAnswer),
        example={
            "list": "skills",
            "total": 1,
            "skills": [
                {
                    "key": "0a1b2c3d4e5f6071",
                    "id": "user:notes",
                    "name": "notes",
                    "description": "Takes notes.",
                    "scope": "user",
                    "path": "/home/you/.agents/skills/notes/SKILL.md",
                    "clients": ["codex"],
                    "state": "disabled",
                    "listing": "",
                    "reason": "switched off",
                    "hint": "`skillhouse enable user:notes`",
                    "mend": "`skillhouse enable user:notes`",
                    "code": None,
                    "line": None,
                    "catalog_tokens": 4,
                    "file_tokens": 24,
                    "recent": 0,
                    "language": "",
                    "tools": [],
                }
            ],
            "next": None,
            "states": {"disabled": 1},
            "listings": {},
        },
        problems=(404, 409, 422),
    ),
)

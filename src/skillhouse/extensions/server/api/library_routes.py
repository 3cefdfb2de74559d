"""The route about every skill here, also those that agents do not see."""

from __future__ import annotations

from skillhouse.extensions.server.api.api_services import ApiServices, paged
from skillhouse.extensions.server.api.place_routes import check_client
from skillhouse.extensions.server.api.route_table import ApiRequest, Endpoint, RouteParameter
from skillhouse.extensions.server.api.schemas import listing
from skillhouse.extensions.server.api.skill_routes import CURSOR, LIMIT, SCOPE, WORDS, filter_of
from skillhouse.frontends.answers.json_form import ListAnswer
from skillhouse.frontends.answers.skills import LibraryAnswer, LibrarySkillAnswer
from skillhouse.frontends.presentation.library import client_roots, library_lines, library_skill
from skillhouse.manage import STATES

PROBLEM = "problem"
"""As a state: all but those in use, and exported copies, with which nothing is wrong."""


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    asked, places = request.query, api.house.config.places
    client = asked.get("client")
    if client is not None:
        check_client(places, client)
    with api.fresh() as house:
        found = list(library_lines(house))
        ranks = house.services.recent.ranks()
    states = {one.state: 0 for one in found}
    for one in found:
        states[one.state] += 1
    roots = None if client is None else client_roots(places, client)
    found = filter_of(request, roots).lines(found)
    state = asked.get("state")
    if state == PROBLEM:
        found = [one for one in found if one.state not in ("in-use", "exported")]
    elif state is not None:
        found = [one for one in found if one.state == state]
    return paged(
        found,
        asked,
        key=lambda one: one.path,
        name="skills",
        value=lambda one: library_skill(one, ranks, places.home),
        more=lambda cursor: LibraryAnswer(next=cursor, states=states),
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
                schema={"enum": ["in-use", PROBLEM, *STATES]},
                what="Only skills of this state; `problem` are all that something is wrong with.",
                example="broken",
            ),
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
                }
            ],
            "next": None,
            "states": {"disabled": 1},
        },
        problems=(404, 409),
    ),
)

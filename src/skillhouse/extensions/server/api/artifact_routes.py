"""The routes about the files that calls of skills' code wrote: list, one call's, a file, remove."""

from __future__ import annotations

from typing import Any

from skillhouse.answers.json_form import ListAnswer, PageAnswer, plain
from skillhouse.answers.tools import ArtifactSetAnswer, artifact_set_answer
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.approval_routes import PAGES, short_list
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Endpoint, RouteResponse
from skillhouse.extensions.server.api.schemas import TEXT, listing, ref
from skillhouse.extensions.server.forms import attachment
from skillhouse.house import Access, AccessScope
from skillhouse.tools import ArtifactFile, ArtifactSet

BYTES = "application/octet-stream"
"""Of every file, whatever its name says: no browser shows it."""


def may_read(access: Access, found: ArtifactSet) -> bool:
    """Whether a key may have the files of a call: the owner's, or of its own agent and user."""
    return access.is_owner or (access.agent, access.user) == (found.agent, found.user)


def _found(api: ApiServices, request: ApiRequest) -> ArtifactSet:
    wanted = request.path["artifact"]
    found = api.house.services.artifacts.get(wanted)
    if not may_read(request.access, found):
        # In the words for none: whether others have files is nothing that is said.
        text = f"no files of a call have the id `{wanted}`"
        raise ApiProblem(404, "unknown-artifact", text)
    return found


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    found = [one for one in api.house.services.artifacts.sets() if may_read(request.access, one)]
    return short_list(request, "artifacts", found, artifact_set_answer)


def _show(api: ApiServices, request: ApiRequest) -> ArtifactSetAnswer:
    return artifact_set_answer(_found(api, request))


def _file(api: ApiServices, request: ApiRequest) -> RouteResponse:
    found = _found(api, request)
    file, data = api.house.services.artifacts.data(found.id, request.path["output"])
    disposition = attachment(file.name.rpartition("/")[2])
    headers = {"content-disposition": disposition, "etag": f'"{file.digest}"'}
    return RouteResponse(content=data, headers=headers)


def _remove(api: ApiServices, request: ApiRequest) -> ArtifactSetAnswer:
    found = _found(api, request)
    return artifact_set_answer(api.house.services.artifacts.remove(found.id))


_ID = "3fa9c1d25e6f7a8b3fa9c1d25e6f7a8b"
_SET = ArtifactSet(
    id=_ID,
    made=1_769_860_800.0,
    tool="charts:draw",
    agent="default",
    user="local",
    channel="mcp",
    files=(
        ArtifactFile(
            name="chart.png",
            bytes=20_480,
            digest="sha256:00",
            media_type="image/png",
            uri=f"skillhouse://artifacts/{_ID}/chart.png",
        ),
    ),
)
_EXAMPLE: Any = plain(artifact_set_answer(_SET))

ROUTES = (
    Endpoint(
        name="listArtifacts",
        method="GET",
        path="/artifacts",
        tag="calls",
        what="The calls whose files are kept, newest first.",
        run=_list,
        query=PAGES,
        answer=listing("artifacts", ArtifactSetAnswer, PageAnswer),
        example={"list": "artifacts", "total": 1, "artifacts": [_EXAMPLE], "next": None},
        problems=(409,),
    ),
    Endpoint(
        name="showArtifacts",
        method="GET",
        path="/artifacts/{artifact}",
        tag="calls",
        what="The kept files of one call.",
        run=_show,
        answer=ref(ArtifactSetAnswer),
        example=_EXAMPLE,
    ),
    Endpoint(
        name="getArtifact",
        method="GET",
        path="/artifacts/{artifact}/{output}",
        tag="calls",
        what="One of these files, to be saved: the bytes that the skill's code wrote.",
        run=_file,
        media=BYTES,
        answer=TEXT,
        example="",
    ),
    Endpoint(
        name="removeArtifacts",
        method="DELETE",
        path="/artifacts/{artifact}",
        tag="calls",
        what="Removes the kept files of one call.",
        run=_remove,
        scope=AccessScope.MANAGE,
        answer=ref(ArtifactSetAnswer),
        example=_EXAMPLE,
    ),
)

"""The stream of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillhouse.answers.approvals import QuestionEventAnswer
from skillhouse.answers.service import (
    CallEventAnswer,
    CompanionEventAnswer,
    CutEventAnswer,
    IndexEventAnswer,
    JobLineAnswer,
    ProgressAnswer,
    ResetEventAnswer,
)
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.events import READERS_MAX
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    EVENT_STREAM,
    JSON,
    ApiRequest,
    Endpoint,
    RouteParameter,
)
from skillhouse.extensions.server.api.schemas import TEXT, Schema, array, either, named, record


def _events(api: ApiServices, request: ApiRequest) -> Any:
    last_id, access = request.query.get("last-event-id", ""), request.access
    # INVARIANT: nothing is sent to a key that was revoked, though its connection is still open.
    is_kept, tokens = bool(access.id), api.tokens
    stream = api.events.open(
        access.user, last_id, holds=lambda: not is_kept or tokens.holds(access.id)
    )
    if stream is None:
        text = f"{READERS_MAX} readers are connected; close one"
        raise ApiProblem(429, "too-many-readers", text, headers={"retry-after": "5"})
    return stream


EVENTS: Mapping[str, tuple[str, type]] = {
    "answer": ("A question was answered, or has ended without an answer.", QuestionEventAnswer),
    "call": ("A call was recorded, or has ended.", CallEventAnswer),
    "index": ("Skills came, went or changed.", IndexEventAnswer),
    "companion": (
        "No companion app was open for a while, so soon only reads go on; or it is back.",
        CompanionEventAnswer,
    ),
    "job": ("A job began, went on or ended.", JobLineAnswer),
    "progress": ("How far a call is.", ProgressAnswer),
    "question": ("A person is asked.", QuestionEventAnswer),
    "reset": ("What was missed is not known: read everything again.", ResetEventAnswer),
}
"""The kinds of events: what each means, and what its data is."""


def _event(kind: str, what: str, data: type) -> Schema:
    """Return the schema of an event, whose data is a line of JSON (HTML Living Standard, 9.2)."""
    content = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": either(data, CutEventAnswer),
    }
    name = f"{kind.capitalize()}ServerSentEvent"
    shape = record({"id": TEXT, "event": {"const": kind}, "data": content})
    return named(name, {**shape, "description": what})


def _any_event() -> Schema:
    shapes = {kind: _event(kind, *words) for kind, words in EVENTS.items()}
    return {
        "oneOf": list(shapes.values()),
        "discriminator": {
            "propertyName": "event",
            "mapping": {kind: shape["$ref"] for kind, shape in shapes.items()},
        },
    }


ROUTES = (
    Endpoint(
        name="followEvents",
        method="GET",
        path="/events",
        tag="events",
        what="Events as they come; after `reset` everything is to be read again.",
        run=_events,
        query=(
            RouteParameter(
                name="last-event-id",
                schema={"type": "string", "maxLength": 64},
                what="The id of the last event that was read; what came since is sent first.",
                place="header",
            ),
        ),
        media=EVENT_STREAM,
        answer={
            "type": "string",
            "contentMediaType": EVENT_STREAM,
            "contentSchema": array(named("ServerSentEvent", _any_event())),
        },
        example='id: 3fa9-7\nevent: answer\ndata: {"id":"3fa9c1d2","state":"approved"}\n\n',
        problems=(429,),
    ),
)

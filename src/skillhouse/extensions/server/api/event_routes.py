"""The stream of events."""

from __future__ import annotations

from typing import Any

from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.events import READERS_MAX
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    EVENT_STREAM,
    ApiRequest,
    Endpoint,
    RouteParameter,
)


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
        answer={"type": "string"},
        example='id: 3fa9-7\nevent: answer\ndata: {"id":"3fa9c1d2","state":"approved"}\n\n',
        problems=(429,),
    ),
)

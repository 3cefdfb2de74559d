"""The routes about named tokens and browsers; a token is made on the command line alone."""

from __future__ import annotations

from typing import Any

from skillhouse.frontends.http.api.api_services import ApiServices
from skillhouse.frontends.http.api.approval_routes import is_visible
from skillhouse.frontends.http.api.problems import ApiProblem
from skillhouse.frontends.http.api.route_table import ApiRequest, Endpoint
from skillhouse.frontends.http.api.schemas import COUNT, TEXT, array, listing, maybe, record
from skillhouse.frontends.presentation.service_values import access_value
from skillhouse.runtime.access_tokens import AccessScope


def _list(api: ApiServices, request: ApiRequest) -> dict[str, Any]:
    tokens = [one for one in api.tokens.all() if is_visible(request.access, one.user)]
    found = [access_value(one) for one in tokens]
    return {"list": "tokens", "total": len(found), "tokens": found}


def _revoke(api: ApiServices, request: ApiRequest) -> dict[str, Any]:
    if not request.access.is_owner:
        text = "a token is revoked with the token that `skillhouse up` printed, or on its page"
        raise ApiProblem(403, "owner-wanted", text)
    return access_value(api.tokens.revoke(request.path["token"]))


_TOKEN = record(
    {
        "id": TEXT,
        "name": TEXT,
        "kind": TEXT,
        "user": TEXT,
        "agent": TEXT,
        "scopes": array(TEXT),
        "created_ms": COUNT,
        "expires_ms": maybe(COUNT),
    }
)
_EXAMPLE = {
    "id": "3fa9c1d25e6f",
    "name": "ci",
    "kind": "token",
    "user": "local",
    "agent": "builder",
    "scopes": ["call", "read"],
    "created_ms": 1_769_860_800_000,
    "expires_ms": None,
}
_MANAGE = AccessScope.MANAGE

ROUTES = (
    Endpoint(
        name="listTokens",
        method="GET",
        path="/tokens",
        tag="service",
        what="The named tokens, and the browsers that opened the page; none with its secret.",
        run=_list,
        scope=_MANAGE,
        answer=listing("tokens", _TOKEN),
        example={"list": "tokens", "total": 1, "tokens": [_EXAMPLE]},
    ),
    Endpoint(
        name="revokeToken",
        method="DELETE",
        path="/tokens/{token}",
        tag="service",
        what="Ends a token or a browser at once, in every process of this state.",
        run=_revoke,
        scope=_MANAGE,
        answer=_TOKEN,
        example=_EXAMPLE,
    ),
)

"""The routes about keys of this service: list the tokens and browsers, end one."""

from __future__ import annotations

from typing import Any

from skillhouse.frontends.http.api.api_services import ApiServices
from skillhouse.frontends.http.api.problems import ApiProblem
from skillhouse.frontends.http.api.route_table import ApiRequest, Endpoint
from skillhouse.frontends.http.api.schemas import COUNT, TEXT, array, listing, maybe, record
from skillhouse.frontends.presentation.service_values import access_value
from skillhouse.runtime.access_tokens import AccessScope


def _list(api: ApiServices, request: ApiRequest) -> dict[str, Any]:
    _check_owner(request)
    found = [access_value(one) for one in api.tokens.all()]
    return {"list": "tokens", "total": len(found), "tokens": found}


def _revoke(api: ApiServices, request: ApiRequest) -> dict[str, Any]:
    _check_owner(request)
    return access_value(api.tokens.revoke(request.path["token"]))


def _check_owner(request: ApiRequest) -> None:
    """Keep keys to the owner: a token must not end, or even know, the others."""
    if not request.access.is_owner:
        text = "tokens are managed with the token that `skillhouse up` printed"
        raise ApiProblem(403, "owner-wanted", text)


_TOKEN = record(
    {
        "id": TEXT,
        "name": TEXT,
        "kind": {"enum": ["token", "browser"]},
        "user": TEXT,
        "agent": TEXT,
        "scopes": array(TEXT),
        "created_ms": COUNT,
        "expires_ms": maybe(COUNT),
    }
)
_EXAMPLE = {
    "id": "a1b2c3d4e5f6",
    "name": "dashboard",
    "kind": "token",
    "user": "local",
    "agent": "default",
    "scopes": ["read"],
    "created_ms": 1_750_000_000_000,
    "expires_ms": None,
}

ROUTES = (
    Endpoint(
        name="listTokens",
        method="GET",
        path="/tokens",
        tag="service",
        what="The named tokens, and the browsers that opened the page; the owner's key only.",
        run=_list,
        answer=listing("tokens", _TOKEN),
        example={"list": "tokens", "total": 1, "tokens": [_EXAMPLE]},
    ),
    Endpoint(
        name="revokeToken",
        method="DELETE",
        path="/tokens/{token}",
        tag="service",
        what="Ends a token or browser at once, by id or name; the owner's key only.",
        run=_revoke,
        scope=AccessScope.MANAGE,
        answer=_TOKEN,
        example=_EXAMPLE,
    ),
)

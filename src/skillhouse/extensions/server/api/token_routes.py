"""The routes about named tokens and browsers."""

from __future__ import annotations

from skillhouse.answers.json_form import ListAnswer, PageAnswer, listed
from skillhouse.answers.service import NewTokenAnswer, TokenAnswer, token_answer
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.approval_routes import PAGES, is_visible, short_list
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint
from skillhouse.extensions.server.api.schemas import array, listing, record, ref
from skillhouse.house import TOKEN_DAYS, AccessScope
from skillhouse.house.access_tokens import NAME_MAX


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    tokens = [one for one in api.tokens.all() if is_visible(request.access, one.user)]
    return short_list(request, "tokens", tokens, token_answer)


def _revoke(api: ApiServices, request: ApiRequest) -> TokenAnswer:
    if not request.access.is_owner:
        text = "a token is revoked with the token that `skillhouse up` printed, or on its page"
        raise ApiProblem(403, "owner-wanted", text)
    return token_answer(api.tokens.revoke(request.path["token"]))


def _sign_out(api: ApiServices, request: ApiRequest) -> ListAnswer:
    if not request.access.is_owner:
        text = "browsers are signed out with the token that `skillhouse up` printed, or on its page"
        raise ApiProblem(403, "owner-wanted", text)
    own = request.access.id
    others = [one for one in api.tokens.all() if one.kind == "browser" and one.id != own]
    return listed("tokens", [token_answer(api.tokens.revoke(one.id)) for one in others])


def _new(api: ApiServices, request: ApiRequest) -> NewTokenAnswer:
    # INVARIANT: no key makes one that outlives it or does more: neither a named token, nor a
    # browser's cookie, which another server of this machine may have got.
    if request.access.kind != "start":
        text = "a token is made with the token that `skillhouse up` printed"
        raise ApiProblem(403, "owner-wanted", f"{text}, or by `skillhouse tokens new`")
    asked = request.body
    agent = asked.get("agent", "default")
    with api.fresh() as house:
        house.view(agent)  # Says which agents there are.
    scopes = [AccessScope(scope) for scope in asked["scopes"]]
    made, token = api.tokens.new(
        asked["name"], scopes, agent=agent, days=asked.get("days", TOKEN_DAYS)
    )
    return NewTokenAnswer(access=token_answer(made), token=token)


_NAME = {"type": "string", "minLength": 1, "maxLength": NAME_MAX}
_EXAMPLE = {
    "id": "3fa9c1d25e6f",
    "name": "ci",
    "kind": "token",
    "user": "local",
    "agent": "default",
    "scopes": ["call", "read"],
    "created_ms": 1_769_860_800_000,
    "created": "2026-01-31T12:00:00.000Z",
    "expires_ms": None,
    "expires": None,
    "used_ms": 1_769_864_400_000,
    "used": "2026-01-31T13:00:00.000Z",
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
        query=PAGES,
        answer=listing("tokens", TokenAnswer, PageAnswer),
        example={"list": "tokens", "total": 1, "tokens": [_EXAMPLE], "next": None},
        problems=(409,),
    ),
    Endpoint(
        name="newToken",
        method="POST",
        path="/tokens",
        tag="service",
        what="Makes a named token; the answer has it, once. Only the key of this start makes one.",
        run=_new,
        scope=_MANAGE,
        status=201,
        body=Body(
            schema=record(
                {
                    "name": _NAME,
                    "scopes": array({"enum": [scope.value for scope in AccessScope]})
                    | {"minItems": 1, "maxItems": len(AccessScope)},
                },
                optional={
                    "agent": _NAME,
                    "days": {"type": "integer", "minimum": 0, "maximum": 3650},
                },
                closed=True,
            ),
            example={"name": "ci", "scopes": ["call", "read"], "agent": "default", "days": 30},
        ),
        answer=ref(NewTokenAnswer),
        example={**_EXAMPLE, "used_ms": None, "used": None, "token": "skh_3fa9c1d25e6f_…"},
        problems=(409,),
    ),
    Endpoint(
        name="signOutOtherBrowsers",
        method="DELETE",
        path="/browsers",
        tag="service",
        what="Ends every browser but the one that asks; named tokens stay.",
        run=_sign_out,
        scope=_MANAGE,
        answer=listing("tokens", TokenAnswer),
        example={"list": "tokens", "total": 0, "tokens": []},
    ),
    Endpoint(
        name="revokeToken",
        method="DELETE",
        path="/tokens/{token}",
        tag="service",
        what="Ends a token or a browser at once, in every process of this state.",
        run=_revoke,
        scope=_MANAGE,
        answer=ref(TokenAnswer),
        example=_EXAMPLE,
    ),
)

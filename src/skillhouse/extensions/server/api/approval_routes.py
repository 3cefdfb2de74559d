"""The routes about questions, their answers, and what was approved for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from skillhouse.answers.approvals import (
    ApprovalAnswer,
    RevokedGrantAnswer,
    approval_answer,
)
from skillhouse.answers.json_form import ListAnswer, PageAnswer
from skillhouse.approval import OWNER, Answer, Approval, ApprovalError, ApprovedScript, Grant
from skillhouse.extensions.server.api.api_services import PAGE_MAX, ApiServices, paged
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint, RouteParameter
from skillhouse.extensions.server.api.schemas import array, listing, record, ref
from skillhouse.extensions.server.api.skill_routes import CURSOR
from skillhouse.house import Access, AccessScope

CHANNEL = "api"
PAGES = (
    RouteParameter(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
        what="Items of a page; 200 if left out.",
        example=50,
    ),
    CURSOR,
)
"""Of lists that are short as a rule, and were whole before they had pages."""
LATEST_MAX = 200


def short_list(
    request: ApiRequest,
    name: str,
    items: Sequence[Any],
    value: Callable[[Any], Struct] = lambda one: one,
) -> ListAnswer:
    """Return a page of a list of `PAGES`, whose items have ids."""
    return paged(
        items,
        request.query,
        key=lambda one: one.id,
        name=name,
        value=value,
        default=PAGE_MAX,
    )


def is_visible(access: Access, user: str) -> bool:
    """Whether something of that user may be shown; the owner sees everything."""
    return access.user in (OWNER, user)


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    broker = api.house.approvals
    wants_all = request.query.get("all", False)
    found = broker.latest(LATEST_MAX) if wants_all else broker.pending()
    shown = [one for one in found if is_visible(request.access, one.request.user)]
    return short_list(request, "approvals", shown, approval_answer)


def _found(api: ApiServices, request: ApiRequest) -> Approval:
    found = api.house.approvals.get(request.path["approval"])
    if not is_visible(request.access, found.request.user):
        # Whether another user has such a question is nothing that is said.
        raise ApprovalError("unknown", f"no approval begins with `{request.path['approval']}`")
    return found


def _show(api: ApiServices, request: ApiRequest) -> ApprovalAnswer:
    return approval_answer(_found(api, request))


def _answer(api: ApiServices, request: ApiRequest) -> ApprovalAnswer:
    found, asked = _found(api, request), request.body
    # INVARIANT: the digest proves that this content was shown; another question has another.
    if asked["content_digest"] != found.request.content_digest:
        text = "the answer is about another content than that of the question"
        raise ApiProblem(409, "another-call", text)
    answered = api.house.approvals.answer(
        found.id,
        Answer(asked["answer"]),
        by=request.access.user,
        channel=CHANNEL,
        nonce=found.request.nonce,
        message=asked.get("message", ""),
        rules=asked.get("rules", ()),
    )
    return approval_answer(answered)


def _grants(api: ApiServices, request: ApiRequest) -> ListAnswer:
    broker = api.house.approvals
    grants = [one for one in broker.listed_grants() if is_visible(request.access, one.user)]
    return short_list(request, "grants", grants)


def _scripts(api: ApiServices, request: ApiRequest) -> ListAnswer:
    scripts = api.house.approvals.scripts.all()
    found = [one for one in scripts if is_visible(request.access, one.user)]
    return short_list(request, "scripts", found)


def _revoke(api: ApiServices, request: ApiRequest) -> RevokedGrantAnswer:
    broker, wanted = api.house.approvals, request.path["grant"]
    for grant in broker.listed_grants():
        if grant.id == wanted and is_visible(request.access, grant.user):
            broker.revoke(grant.id)
            return RevokedGrantAnswer(id=grant.id)
    for script in broker.scripts.all():
        if script.id == wanted and is_visible(request.access, script.user):
            broker.scripts.revoke(script.id)
            return RevokedGrantAnswer(id=script.id)
    raise ApiProblem(404, "unknown-grant", f"no standing approval has the id `{wanted[:80]}`")


_EXAMPLE: dict[str, Any] = {
    "id": "3fa9c1d2",
    "state": "open",
    "tool": "exec",
    "title": "run git push",
    "agent": "default",
    "user": "local",
    "channel": "mcp",
    "client": "codex",
    "call_id": "call_1",
    "place": "/home/mika/project",
    "level": "",
    "out_of_band_only": False,
    "reasons": ["no rule matches; `exec` defaults to ask"],
    "facts": {
        "found": [{"label": "network", "value": "none"}],
        "sent": [{"label": "command", "value": "git push"}],
    },
    "always": ["exec git push"],
    "content": {"tool": "exec"},
    "content_digest": "sha256:00",
    "opened_ms": 1_769_860_800_000,
    "opened": "2026-01-31T12:00:00.000Z",
    "expires_ms": 1_769_864_400_000,
    "expires": "2026-01-31T13:00:00.000Z",
    "answer": None,
    "answered_by": None,
    "answered_on": None,
    "device": None,
    "message": None,
    "closed_ms": None,
    "closed": None,
}
_RULES = array({"type": "string", "minLength": 1, "maxLength": 8_192}) | {"maxItems": 50}

ROUTES = (
    Endpoint(
        name="listApprovals",
        method="GET",
        path="/approvals",
        tag="approvals",
        what="The open questions, oldest first, of every process that shares this state.",
        run=_list,
        query=(
            RouteParameter(
                name="all",
                schema={"type": "boolean"},
                what="Also the latest that are closed.",
                example=False,
            ),
            *PAGES,
        ),
        answer=listing("approvals", ApprovalAnswer, PageAnswer),
        example={"list": "approvals", "total": 1, "approvals": [_EXAMPLE], "next": None},
        problems=(409,),
    ),
    Endpoint(
        name="showApproval",
        method="GET",
        path="/approvals/{approval}",
        tag="approvals",
        what="One question with everything that an approval would cover.",
        run=_show,
        answer=ref(ApprovalAnswer),
        example=_EXAMPLE,
    ),
    Endpoint(
        name="answerApproval",
        method="POST",
        path="/approvals/{approval}/answer",
        tag="approvals",
        what="Answers a question; what signs is decided on the page or a paired device only.",
        run=_answer,
        scope=AccessScope.APPROVE,
        body=Body(
            schema=record(
                {
                    "answer": {"enum": [one.value for one in Answer]},
                    "content_digest": {"type": "string", "maxLength": 200},
                },
                optional={"message": {"type": "string", "maxLength": 2_000}, "rules": _RULES},
                closed=True,
            ),
            example={"answer": "once", "content_digest": "sha256:00"},
        ),
        answer=ref(ApprovalAnswer),
        example={**_EXAMPLE, "state": "approved", "answer": "once"},
    ),
    Endpoint(
        name="listGrants",
        method="GET",
        path="/grants",
        tag="approvals",
        what="The standing approvals.",
        run=_grants,
        query=PAGES,
        answer=listing("grants", Grant, PageAnswer),
        example={"list": "grants", "total": 0, "grants": [], "next": None},
        problems=(409,),
    ),
    Endpoint(
        name="listScripts",
        method="GET",
        path="/scripts",
        tag="approvals",
        what="The scripts that rules may run while they are the bytes that a person approved.",
        run=_scripts,
        query=PAGES,
        answer=listing("scripts", ApprovedScript, PageAnswer),
        example={"list": "scripts", "total": 0, "scripts": [], "next": None},
        problems=(409,),
    ),
    Endpoint(
        name="revokeGrant",
        method="DELETE",
        path="/grants/{grant}",
        tag="approvals",
        what="Revokes a standing approval, or an approved script.",
        run=_revoke,
        scope=AccessScope.APPROVE,
        answer=ref(RevokedGrantAnswer),
        example={"id": "81c0", "revoked": True},
    ),
)

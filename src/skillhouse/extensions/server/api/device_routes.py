"""The routes about paired devices: which there are, an end to one, and a code that pairs an app."""

from __future__ import annotations

from typing import Any

from skillhouse.answers.approvals import (
    ListedDeviceAnswer,
    PairingCodeAnswer,
    UnpairedDeviceAnswer,
    WithdrawnAnswer,
    device_answer,
)
from skillhouse.answers.json_form import ListAnswer, PageAnswer
from skillhouse.approval import CODE_SECONDS
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.approval_routes import PAGES, is_visible, short_list
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint
from skillhouse.extensions.server.api.schemas import listing, record, ref
from skillhouse.house import AccessScope
from skillhouse.presentation.pairing_code import code_answer


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    devices = api.house.services.enforcement.devices.all()
    shown = [one for one in devices if is_visible(request.access, one.user)]
    return short_list(request, "devices", shown, device_answer)


def _unpair(api: ApiServices, request: ApiRequest) -> UnpairedDeviceAnswer:
    if not request.access.is_owner:
        text = "a device is unpaired with the token that `skillhouse up` printed, or on its page"
        raise ApiProblem(403, "owner-wanted", text)
    ended = api.house.services.enforcement.devices.unpair(request.path["device"])
    if ended is None:
        raise ApiProblem(404, "unknown-device", f"no device `{request.path['device'][:80]}`")
    gone = WithdrawnAnswer(approvals=ended.approvals, grants=ended.grants)
    return UnpairedDeviceAnswer(id=ended.device.id, withdrawn=gone)


def _code(api: ApiServices, request: ApiRequest) -> PairingCodeAnswer:
    # INVARIANT: as with tokens, no key makes one that outlives it or does more: neither a named
    # token, nor a browser's cookie, which another server of this machine may have got.
    if request.access.kind != "start":
        text = "a code is made with the token that `skillhouse up` printed"
        raise ApiProblem(403, "owner-wanted", f"{text}, or by `skillhouse approvals pair --app`")
    code = api.house.services.companion.codes.issue(request.body["name"], user=request.access.user)
    return code_answer(request.body["page"], code, minutes=CODE_SECONDS // 60)


_EXAMPLE: dict[str, Any] = {
    "id": "3f0a5c2d9e1b7a64",
    "name": "phone",
    "user": "local",
    "is_app": True,
    "paired_ms": 1_769_860_800_000,
    "paired": "2026-01-31T12:00:00.000Z",
}

ROUTES = (
    Endpoint(
        name="listDevices",
        method="GET",
        path="/devices",
        tag="approvals",
        what="The paired devices; none with its secret.",
        run=_list,
        query=PAGES,
        answer=listing("devices", ListedDeviceAnswer, PageAnswer),
        example={"list": "devices", "total": 1, "devices": [_EXAMPLE], "next": None},
        problems=(409,),
    ),
    Endpoint(
        name="newPairingCode",
        method="POST",
        path="/devices/codes",
        tag="approvals",
        what="Makes a code that pairs a companion app, once. Only the key of this start makes one.",
        run=_code,
        scope=AccessScope.APPROVE,
        status=201,
        body=Body(
            schema=record(
                {
                    "name": {"type": "string", "minLength": 1, "maxLength": 64},
                    "page": {"type": "string", "pattern": "^https?://[^/?#@]+$", "maxLength": 200},
                },
                closed=True,
            ),
            example={"name": "phone", "page": "https://house.example"},
        ),
        answer=ref(PairingCodeAnswer),
        example={
            "code": "7KQ2-9FWD-X3MP",
            "address": "https://house.example/companion/#code=7KQ2-9FWD-X3MP",
            "minutes": 10,
            "picture": "<svg …",
        },
    ),
    Endpoint(
        name="unpairDevice",
        method="DELETE",
        path="/devices/{device}",
        tag="approvals",
        what="Ends a device at once, with every approval of it that could still be used.",
        run=_unpair,
        scope=AccessScope.APPROVE,
        answer=ref(UnpairedDeviceAnswer),
        example={
            "id": "3f0a5c2d9e1b7a64",
            "unpaired": True,
            "withdrawn": {"approvals": 0, "grants": 0},
        },
    ),
)

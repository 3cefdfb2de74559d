"""The signed answers of paired devices, which have no key of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import UNSET
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.approvals import DeviceAnsweredAnswer, DeviceTokenAnswer
from skillhouse.answers.errors import unserved
from skillhouse.answers.json_form import JsonAnswer
from skillhouse.approval import ApprovalBroker, ApprovalError, Devices, SignatureError
from skillhouse.extensions.server.forms import body_of, json_response
from skillhouse.floor import StateError

DEVICE_PATH = "/approvals/device"
"""A paired device posts its signed answer here; no approval has this id."""
DEVICE_TOKEN_PATH = "/approvals/device/token"  # noqa: S105 - a path.
"""A paired device requests a one-time token here, with the message of an answer `once`."""


class DeviceAnswers:
    """The endpoints, for which the guard requires no key: each message is signed."""

    def __init__(self, approvals: ApprovalBroker, devices: Devices) -> None:
        self._approvals = approvals
        self._devices = devices

    def routes(self) -> list[Route]:
        """Return the routes, which must precede those with an approval's id."""
        return [
            Route(DEVICE_PATH, self.answer, methods=["POST"]),
            Route(DEVICE_TOKEN_PATH, self.token, methods=["POST"]),
        ]

    async def answer(self, request: Request) -> Response:
        return await taken(request, self._answered)

    async def token(self, request: Request) -> Response:
        return await taken(request, self._token)

    def _answered(self, headers: Mapping[str, str], body: bytes) -> DeviceAnsweredAnswer:
        approval = self._devices.answer(self._approvals, headers, body)
        return DeviceAnsweredAnswer(approval=approval.id, state=approval.state.value)

    def _token(self, headers: Mapping[str, str], body: bytes) -> DeviceTokenAnswer:
        return DeviceTokenAnswer(token=self._devices.token(self._approvals, headers, body))


async def taken(
    request: Request, take: Callable[[Mapping[str, str], bytes], JsonAnswer]
) -> Response:
    """Return what comes of a signed message, or why it is not taken."""
    body = await body_of(request)
    try:
        answer = await run_in_threadpool(take, dict(request.headers), body)
    except SignatureError as error:
        return _error(error.code, str(error), 401)
    except ApprovalError as error:
        return _error(error.code, str(error), 409)
    except StateError:
        return _error("house-unusable", "try again", 500)
    return json_response(answer)


def _error(code: str, message: str, status: int) -> Response:
    return json_response(unserved(code, message, UNSET), status)

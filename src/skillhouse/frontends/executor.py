"""Serves JSON-RPC 2.0 over HTTP: `POST /rpc` with a bearer token, and nothing else.

For both sides of two containers: the executor serves `executor_methods`, and the core, for what
skills ask of it, `core_methods`. Needs the extra `server`.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skillhouse.floor import MissingExtraError
from skillhouse.sandbox import FRAME_BYTES, Method, respond

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

TOKEN_MIN = 16
"""Fewest characters of a token: a shorter one can be guessed."""


def rpc_app(methods: Mapping[str, Method], *, token: str) -> ASGIApp:
    """Return the application that answers `POST /rpc`.

    Without the token the answer is 401 and nothing is read; a body that is no JSON, over the bound
    or over a deadline is answered as JSON-RPC or HTTP says.

    Raises:
        MissingExtraError: the packages of the extra `server` are not installed.
        ValueError: the token is too short.
    """
    try:
        from starlette.applications import Starlette  # noqa: PLC0415 - an extra.
        from starlette.responses import Response  # noqa: PLC0415
        from starlette.routing import Route  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtraError("server", error.name or "starlette") from error
    if len(token) < TOKEN_MIN:
        raise ValueError(f"expected a token of at least {TOKEN_MIN} characters")

    async def post(request: Request) -> Response:
        if not _is_ours(request, token):
            return Response(status_code=401, headers={"WWW-Authenticate": "Bearer"})
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return Response(status_code=415)
        data = await _body(request)
        if data is None:
            return Response(status_code=413)
        answer = await respond(data, methods)
        if answer is None:
            return Response(status_code=204)
        return Response(answer, media_type="application/json")

    return Starlette(routes=[Route("/rpc", post, methods=["POST"])])


def _is_ours(request: Request, token: str) -> bool:
    given = request.headers.get("authorization", "")
    expected = f"Bearer {token}"
    # A browser sends an Origin; no caller of ours is one.
    has_origin = "origin" in request.headers
    return hmac.compare_digest(given.encode(), expected.encode()) and not has_origin


async def _body(request: Request) -> bytes | None:
    """Return the body, or None when it is too long."""
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > FRAME_BYTES:
            return None
    return bytes(found)

"""The seven management operations (S004-67) at one address, for programs that have the token."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.errors import unserved
from skillhouse.extensions.server.forms import body_of, json_response
from skillhouse.floor import ConfigError
from skillhouse.presentation.operations import READS, answer, operation_answers
from skillhouse.skill import SKILL_FILE_MAX

if TYPE_CHECKING:
    from starlette.requests import Request

    from skillhouse.extensions.server.status import StatusReader

OPERATIONS_PATH = "/api/operations"
OPERATIONS_METHODS = ("GET", "HEAD", "POST")
REQUEST_MAX = 2 * SKILL_FILE_MAX
"""Bytes of a request: a whole SKILL.md, with the escapes of JSON."""
JSON_TYPE = "application/json"


class OperationsApi:
    """`POST {"operation": "SKILLS_CREATE", "arguments": {…}}`; a GET lists the operations."""

    def __init__(self, reader: StatusReader, *, read_only: str = "") -> None:
        """`read_only` is why nothing may be changed here; empty if it may."""
        self._reader = reader
        self._read_only = read_only

    def routes(self) -> list[Route]:
        return [
            Route(OPERATIONS_PATH, self.list),
            Route(OPERATIONS_PATH, self.run, methods=["POST"]),
        ]

    def list(self, _: Request) -> Response:
        return json_response(operation_answers())

    async def run(self, request: Request) -> Response:
        # A page of another server can make the browser send its cookie, but no such header.
        if "authorization" not in request.headers:
            return _refused(403, "token-wanted", "send the token as `Authorization: Bearer TOKEN`")
        if request.headers.get("content-type", "").partition(";")[0].strip() != JSON_TYPE:
            return _refused(415, "json-wanted", f"send the request as {JSON_TYPE}")
        try:
            asked = json.loads(await body_of(request, limit=REQUEST_MAX))
        except HTTPException:
            return _refused(413, "too-large", f"expected at most {REQUEST_MAX} bytes")
        except (ValueError, RecursionError):
            return _refused(400, "not-json", "the body is no JSON")
        shape = {"operation": str, "arguments": dict}
        if not isinstance(asked, dict) or any(
            key not in shape or not isinstance(value, shape[key]) for key, value in asked.items()
        ):
            return _refused(400, "wrong-shape", "expected `operation`, a text, and `arguments`")
        return await run_in_threadpool(
            self._answer, asked.get("operation", ""), asked.get("arguments", {})
        )

    def _answer(self, operation: str, arguments: dict[str, Any]) -> Response:
        if self._read_only and operation not in READS:
            return _refused(403, "read-only", f"nothing is changed here: {self._read_only}")
        try:
            # Another server of the state may have made the skill that is meant.
            self._reader.scan()
            with self._reader.using() as house:
                return json_response(answer(house, operation, arguments))
        except ConfigError as error:
            return _refused(400, "wrong-request", str(error))
        finally:
            if operation not in READS:
                self._reader.expire()


def _refused(status: int, code: str, message: str) -> Response:
    return json_response(unserved(code, message), status)

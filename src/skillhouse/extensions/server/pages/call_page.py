"""The page of one call of a skill's code: where it failed, and what the code logged and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.audit import AuditEntry, AuditLog, find_record
from skillhouse.extensions.server.forms import json_response
from skillhouse.frontends.answers.audit import (
    PARTS,
    code_calls,
    code_lists,
    detail_of,
    entry_answer,
)
from skillhouse.frontends.answers.json_form import members
from skillhouse.frontends.answers.tools import code_answer

CALLS_SHOWN = 20
"""Calls of skills' code in the list of the JSON, newest first."""
ID_MAX = 64
"""Characters of a record's id."""


class CallPage:
    """Shows records as the log has them; it changes nothing."""

    def __init__(self, log: AuditLog, page: Callable[..., Response]) -> None:
        self._log = log
        self._page = page

    def routes(self) -> list[Route]:
        return [
            Route("/calls/{id}", self.call),
            Route("/api/calls", self.api_calls),
            Route("/api/calls/{id}", self.api_call),
        ]

    def call(self, request: Request) -> Response:
        entry = self._entry(request)
        record, after = entry.record, entry.outcome or entry.record
        return self._page(
            request,
            "call.html",
            entry=entry,
            record=record,
            after=after,
            asked=after.confirmation or record.confirmation,
            kept=code_lists(detail_of(entry)),
            detail=plain_detail(detail_of(entry)),
        )

    def api_calls(self, _: Request) -> Response:
        return json_response([_value(one) for one in code_calls(self._log, most=CALLS_SHOWN)])

    def api_call(self, request: Request) -> Response:
        return json_response(_value(self._entry(request)))

    def _entry(self, request: Request) -> AuditEntry:
        wanted = request.path_params["id"]
        is_id = len(wanted) <= ID_MAX and wanted.isascii() and wanted.isalnum()
        entry = find_record(self._log.path, wanted, key=self._log.key) if is_id else None
        if entry is None:
            raise HTTPException(404)
        return entry


def plain_detail(detail: Mapping[str, object]) -> dict[str, object]:
    """Return the detail of a record without what has a part of its own, and without empty values.

    >>> plain_detail({"exit_code": 0, "limit": "", "log": ["a"], "approval": "27a0"})
    {'exit_code': 0}
    """
    own = (*PARTS, "approval", "answer", "answered_by", "answered_on")
    return {
        name: value
        for name, value in detail.items()
        if name not in own and value not in ("", None, [], {})
    }


def _value(entry: AuditEntry) -> dict[str, Any]:
    return {**members(entry_answer(entry)), "code": code_answer(entry)}

"""Errors as problem details (RFC 9457), each with a stable code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from skillhouse.answers.errors import ProblemAnswer, error_code, problem_answer
from skillhouse.audit import AuditError
from skillhouse.floor import (
    AmbiguousSkillError,
    ConfigError,
    DecodeError,
    InternalFaultError,
    MissingExtraError,
    PathError,
    StateError,
    UnknownSkillError,
    as_error,
)
from skillhouse.floor.faults import SystemRefusalError
from skillhouse.registry import RepositoryError
from skillhouse.tools import UnknownToolError

BROKEN = "something went wrong"
WHERE = "the terminal where `skillhouse up` runs says what"

_STATUS_OF_CODE: Mapping[str, int] = {
    "unknown": 404,
    "unknown-token": 404,
    "unknown-artifact": 404,
    "not-deleted": 404,
    "not-allowed": 403,
    "not-a-person": 403,
    "token-name": 422,
    "token-scopes": 422,
    "token-user": 422,
    "frontmatter": 422,
    "too-large": 413,
    "net": 502,
    "record-ambiguous": 409,
    "not-installed": 404,
    "key-reused": 422,
    "unknown-skill": 404,
    "unknown-version": 404,
    "not-configured": 404,
    "unknown-fix": 404,
}
_STATUS_OF_CLASS: tuple[tuple[type[BaseException], int], ...] = (
    (UnknownSkillError, 404),
    (UnknownToolError, 404),
    (AmbiguousSkillError, 409),
    (PathError, 404),
    (DecodeError, 422),
    (ConfigError, 422),
    (StateError, 503),
    (AuditError, 503),
    (MissingExtraError, 503),
    # What a repository answers is not of our making.
    (RepositoryError, 502),
)


class ApiProblem(Exception):  # noqa: N818 - it is an answer.
    """An answer that is a problem; `more` are members of its own."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers
        self.more = more

    def answer(self) -> ProblemAnswer:
        return problem_answer(self.status, self.code, str(self), **self.more)


def broken_text(fault: InternalFaultError) -> str:
    """Return what is said of a fault: the name of its report, and nothing of this machine."""
    return f"{BROKEN}, report `{fault.report}`; {WHERE}"


def problem_of(error: Exception) -> ApiProblem:
    """Return an error as a problem; of an unforeseen one it has the report's name."""
    if isinstance(error, ApiProblem):
        return error
    error = as_error(error)
    if isinstance(error, InternalFaultError):
        return ApiProblem(500, "broken", broken_text(error), report=error.report)
    if isinstance(error, SystemRefusalError):
        # Its text could describe this machine.
        return ApiProblem(500, "broken", f"{BROKEN}; {WHERE}")
    code = error_code(error)
    status = _STATUS_OF_CODE.get(code, 0)
    if not status:
        fitting = (status for kind, status in _STATUS_OF_CLASS if isinstance(error, kind))
        status = next(fitting, 409)
    more: dict[str, Any] = {}
    if isinstance(error, AmbiguousSkillError):
        more["candidates"] = list(error.candidates)
    elif near := getattr(error, "nearest", ()):
        more["candidates"] = list(near)
    if isinstance(error, ConfigError) and error.known and not error.suggestion:
        more["hint"] = f"known are {', '.join(f'`{one}`' for one in error.known)}"
    return ApiProblem(status, code, str(error), **more)

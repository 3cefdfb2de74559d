"""Work of the API that takes long, and how far it is."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from skillhouse.frontends.answers.errors import ProblemAnswer
from skillhouse.frontends.answers.json_form import Count, JsonAnswer

JobState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]


class JobLineAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A job without what came of it, as events have it."""

    id: str
    kind: str
    state: JobState
    message: str
    progress: Count
    total: Count | None
    unit: str
    begun_ms: Count
    ended_ms: Count | None


class JobAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Work that takes long; `result` or `problem` is there once it has ended."""

    flat_members = ("line",)
    line: JobLineAnswer
    result: Any
    problem: ProblemAnswer | None

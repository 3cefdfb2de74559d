"""Findings about files and what to do about them, and hints of skills."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from msgspec import UnsetType

from skillhouse.answers.json_form import Count, JsonAnswer

if TYPE_CHECKING:
    from skillhouse.floor import Diagnostic


class DiagnosticAnswer(JsonAnswer, frozen=True, kw_only=True):
    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    path: str | None
    line: Count | None
    field: str | None
    hint: str | None
    mend: str | None
    """The name of `hint` before 0.2, which goes with 0.3."""
    detail: str | None


class HintedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    file: str
    words: tuple[str, ...]
    load: str


class SkillHintAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a model gets unasked about skills that surely fit; null where none does."""

    hint: str | None
    skills: list[HintedSkillAnswer]


class DeclaredToolAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A tool that a manifest declares."""

    full_name: str
    level: str
    language: str


class FixedFileAnswer(JsonAnswer, frozen=True, kw_only=True):
    path: str
    codes: tuple[str, ...]


class ValidationAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What `validate` says besides its findings."""

    skills: Count
    tools: list[DeclaredToolAnswer]
    hosts: dict[str, str] | UnsetType
    """What is granted here of each host that the code asks for; left out where it asks for none."""
    fixed: list[FixedFileAnswer] | UnsetType


def diagnostic_answers(diagnostics: Iterable[Diagnostic]) -> list[DiagnosticAnswer]:
    return [
        DiagnosticAnswer(
            code=found.code,
            severity=found.severity.value,
            message=found.message,
            path=None if found.path is None else str(found.path),
            line=found.line,
            field=found.field or None,
            hint=found.hint or None,
            mend=found.hint or None,
            detail=found.detail or None,
        )
        for found in diagnostics
    ]

"""One skill with all that is known of it, and its files."""

from __future__ import annotations

from typing import Any

from skillhouse.answers.findings import DiagnosticAnswer
from skillhouse.answers.json_form import Count, HintAnswer, JsonAnswer
from skillhouse.answers.policy import ExplanationAnswer
from skillhouse.answers.skills import (
    CodeFactsAnswer,
    ContentFactsAnswer,
    SkillAnswer,
)


class FilesAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What is said of a skill's files besides their names."""

    directory: str
    resources_omitted: Count
    resources_more: bool
    types: dict[str, str]


class FileContentAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    content: str


class ShownCodeAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What is said of a skill of code alone."""

    tree_digest: str | None
    code: CodeFactsAnswer | None


class ShownSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Everything that is known of a skill, but its body."""

    flat_members = ("skill", "facts", "files")
    skill: SkillAnswer
    facts: ContentFactsAnswer
    frontmatter: dict[str, Any]
    files: ShownCodeAnswer
    state: str
    state_reason: str
    listing: str
    decision: ExplanationAnswer


class UnusableSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Why a skill cannot be shown."""

    flat_members = ("advice",)
    name: str
    state: str
    location: str
    line: Count | None
    reason: str
    advice: HintAnswer
    diagnostics: list[DiagnosticAnswer]

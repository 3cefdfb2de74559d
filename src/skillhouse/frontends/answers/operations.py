"""The seven management operations (S004-67), and what came of one."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from skillhouse.frontends.answers.json_form import JsonAnswer
from skillhouse.frontends.answers.skills import DefinitionAnswer


class OperationArgumentAnswer(JsonAnswer, frozen=True, kw_only=True):
    type: str
    required: bool


class OperationAnswer(JsonAnswer, frozen=True, kw_only=True):
    operation: str
    arguments: dict[str, OperationArgumentAnswer]


class OperationResultAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What came of an operation, or why nothing did, in the words of the profile."""

    success: bool = True
    error: str | UnsetType = UNSET
    skills: list[DefinitionAnswer] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    skill: DefinitionAnswer | UnsetType = UNSET
    notice: str | UnsetType = UNSET

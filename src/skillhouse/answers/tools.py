"""Tools, the results of calls, and the interpreters of skills' code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType

from skillhouse import sandbox
from skillhouse import tools as toolbox
from skillhouse.answers.audit import (
    PARTS,
    code_lists,
    detail_of,
)
from skillhouse.answers.json_form import JsonAnswer, copied
from skillhouse.audit import timestamp
from skillhouse.sandbox import SandboxStatus

if TYPE_CHECKING:
    from skillhouse.audit import AuditEntry
    from skillhouse.sandbox import Python, PythonPlaces
    from skillhouse.tools import ArtifactFile, ArtifactSet, Tool, ToolResult


class InterpreterAnswer(JsonAnswer, frozen=True, kw_only=True):
    program: str
    version: str
    why: str


class ToolPythonAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The interpreter that runs a tool and why, or the problem."""

    program: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    why: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET


class ToolAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A tool; `skill` and `level` are null for a built-in one, `python` but for Python."""

    name: str
    full_name: str
    skill: str | None
    level: str | None
    python: ToolPythonAnswer | None
    description: str
    parameters: dict[str, Any]


class ArtifactAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A file that a call of a skill's code wrote, as it is kept; `media_type` is by its name."""

    name: str
    bytes: int
    digest: str
    media_type: str
    uri: str


class ArtifactSetAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The kept files of one call, and whose call it was."""

    id: str
    made: str
    tool: str
    agent: str
    user: str
    channel: str
    files: tuple[ArtifactAnswer, ...]


class SavedArtifactAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A kept file, and where it was written."""

    flat_members = ("file",)
    file: ArtifactAnswer
    path: str


class ResultAnswer(JsonAnswer, frozen=True, kw_only=True):
    status: Literal["ok", "error", "denied", "pending"]
    content: str
    data: Mapping[str, Any] | None
    approval_id: str | None
    artifacts: tuple[ArtifactAnswer, ...] | UnsetType = UNSET
    """The files that its code wrote, if any, and those that are not kept, each with the reason."""
    artifacts_left_out: tuple[str, ...] | UnsetType = UNSET


class CallResultAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a call came to; `request` is the id that its record has."""

    flat_members = ("result",)
    result: ResultAnswer
    request: str


class ForecastAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the gate would answer to a call as things are now; it grants nothing."""

    effect: Literal["allow", "ask", "deny"]
    reasons: tuple[str, ...]
    """Why, the one that decides first."""
    title: str
    """What a person would be asked."""


class CodeAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the record of a call has of a skill's code."""

    record: str | None
    frames: tuple[str, ...]
    log: tuple[str, ...]
    output: tuple[str, ...]


class CodeCallAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a call came to, with what its record has of a skill's code."""

    flat_members = ("result", "code")
    result: ResultAnswer
    code: CodeAnswer


class InterpretersAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The interpreters that cells can run, the default first, and why not the others."""

    pythons: tuple[InterpreterAnswer, ...]
    unusable_pythons: tuple[str, ...]


class SandboxLevelsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the test of each level found."""

    levels: dict[str, SandboxStatus]


class SandboxAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The level of the sandbox with its probes, and the interpreters."""

    flat_members = ("status", "interpreters")
    status: SandboxStatus
    interpreters: InterpretersAnswer


def tool_answer(tool: Tool) -> ToolAnswer:
    code = tool if isinstance(tool, toolbox.SkillCodeTool) else None
    return ToolAnswer(
        name=tool.name,
        full_name=code.full_name if code else tool.name,
        skill=code.skill.manifest.name if code else None,
        level=code.level if code else None,
        python=_python_of(code) if code else None,
        description=tool.description,
        parameters=dict(tool.schema),
    )


def result_answer(result: ToolResult) -> ResultAnswer:
    files = tuple(map(_artifact, result.artifacts))
    left_out = result.artifacts_left_out or UNSET
    return copied(ResultAnswer, result, artifacts=files or UNSET, artifacts_left_out=left_out)


def _artifact(file: ArtifactFile) -> ArtifactAnswer:
    return copied(ArtifactAnswer, file)


def artifact_set_answer(found: ArtifactSet) -> ArtifactSetAnswer:
    made, files = timestamp(round(found.made * 1_000)), tuple(map(_artifact, found.files))
    return copied(ArtifactSetAnswer, found, made=made, files=files)


def saved_artifact(file: ArtifactFile, path: Path) -> SavedArtifactAnswer:
    return SavedArtifactAnswer(file=_artifact(file), path=str(path))


def code_answer(entry: AuditEntry | None) -> CodeAnswer:
    found = code_lists(detail_of(entry))
    record = None if entry is None else entry.record.id
    return CodeAnswer(record=record, **{name: tuple(found.get(name, ())) for name in PARTS})


def interpreters_answer(places: PythonPlaces) -> InterpretersAnswer:
    found = (sandbox.default_python(), *sandbox.installed_pythons(places))
    return InterpretersAnswer(
        pythons=tuple(map(_interpreter, found)),
        unusable_pythons=tuple(sandbox.unusable_pythons(places)),
    )


def _interpreter(python: Python) -> InterpreterAnswer:
    return InterpreterAnswer(program=str(python.program), version=python.release, why=python.why)


def _python_of(tool: toolbox.SkillCodeTool) -> ToolPythonAnswer | None:
    try:
        python = tool.python()
    except sandbox.SandboxError as error:
        return ToolPythonAnswer(problem=str(error))
    if python is None:
        return None
    found = _interpreter(python)
    return ToolPythonAnswer(program=found.program, version=found.version, why=found.why)

"""What came of a stop or a reload as plain values, for `--json` and the HTTP API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from skillhouse.floor import Diagnostic, Severity

if TYPE_CHECKING:
    from skillhouse.house.access_tokens import Access
    from skillhouse.manage.code_reload import LoadedCode, Reloaded
    from skillhouse.tiers import StopReport


def access_value(access: Access) -> dict[str, Any]:
    """Return a token or browser; what it opens with is kept nowhere."""
    return {
        "id": access.id,
        "name": access.name,
        "kind": access.kind,
        "user": access.user,
        "agent": access.agent,
        "scopes": sorted(access.scopes),
        "created_ms": access.created_ms,
        "expires_ms": access.expires_ms or None,
        "used_ms": access.used_ms or None,
    }


def stop_value(report: StopReport) -> dict[str, Any]:
    return {
        "new": report.is_new,
        "ended": report.ended,
        "silent": list(report.silent),
        "killed": report.killed,
        "done": list(report.done),
        "failed": [{"step": name, "error": why} for name, why in report.failed],
    }


def failures(found: Iterable[LoadedCode], problems: Sequence[Diagnostic]) -> list[tuple[str, str]]:
    """Return what of skills' code cannot be used, with the reason."""
    loaded = tuple(found)
    whole = [(skill.skill, skill.error) for skill in loaded if skill.error]
    single = [
        (f"{skill.skill}:{tool}", "the manifest declares it, and the code does not export it")
        for skill in loaded
        if skill.lacking is not None
        for tool in skill.lacking.tools
    ]
    errors = [
        (str(problem.path or ""), problem.message)
        for problem in problems
        if problem.severity is Severity.ERROR
    ]
    return whole + single + errors


def loaded_names(found: Iterable[LoadedCode]) -> list[str]:
    """Return the tools whose code was loaded, or met by an earlier call."""
    return [name for skill in found if not skill.untried for name in skill.tools]


def untried_names(found: Iterable[LoadedCode]) -> list[str]:
    """Return the tools that are offered, and whose code no one may run without a question."""
    return [name for skill in found if skill.untried for name in skill.tools]


def reload_more(done: Reloaded, problems: Sequence[Diagnostic]) -> dict[str, Any]:
    """Return what a reload says besides the names of the tools that were loaded."""
    return {
        "not_tried": untried_names(done.loaded),
        "failed": [
            {"name": name, "error": error} for name, error in failures(done.loaded, problems)
        ],
        "steps": [{"directory": str(directory), "step": step} for directory, step in done.steps],
    }

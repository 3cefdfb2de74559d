"""The status and a skill as plain JSON values, made of those that every frontend gives."""

from __future__ import annotations

from typing import Any

import skillhouse
from skillhouse.frontends.http.status import HouseStatus, SkillDetail, Status
from skillhouse.frontends.presentation.json_values import (
    content_value,
    diagnostic_values,
    explanation_value,
    index_value,
    skill_value,
)


def status_value(status: Status) -> dict[str, Any]:
    """Return the counts and roots of a house."""
    found = status.found
    return {
        "version": skillhouse.__version__,
        "project": str(status.project),
        "trusted": found.is_trusted,
        "profile": status.profile,
        "skills": len(found.view.visible),
        "hidden": len(found.view.hidden),
        "shadowed": len(found.shadowed),
        "diagnostics": len(found.index.diagnostics),
        "errors": found.errors,
        "audit": [{"code": one.code, "message": one.message} for one in status.audit],
        "catalog": found.catalog,
        "roots": [
            {
                "path": str(root.path),
                "scope": root.scope,
                "state": root.state,
                "skills": root.skills,
            }
            for root in found.roots
        ],
    }


def skills_value(found: HouseStatus) -> dict[str, Any]:
    """Return all skills and findings, as `skillhouse list --json` does."""
    return {
        **index_value(found.index),
        "skills": [skill_value(skill) for skill in found.view.visible.skills],
        "hidden": [skill_value(skill) for skill in found.view.hidden],
        "catalog": found.catalog,
    }


def detail_value(detail: SkillDetail) -> dict[str, Any]:
    """Return one skill with its body, as `skillhouse show` and `load` together do."""
    skill, content = detail.skill, detail.content
    nothing: dict[str, Any] = {"body": None, "resources": [], "resources_omitted": 0}
    return {
        **skill_value(skill),
        **(nothing if content is None else content_value(content)),
        "problem": detail.problem or None,
        "diagnostics": diagnostic_values(detail.findings),
        "frontmatter": dict(skill.frontmatter.fields),
        "tree_digest": detail.tree_digest or None,
        "decision": explanation_value(detail.explanation),
        "shadowed_by": None if detail.shadowed_by is None else detail.shadowed_by.id,
    }


def error_value(code: str, message: str, nearest: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what went wrong; `nearest` is what to ask for instead."""
    return {"error": {"code": code, "message": message, "nearest": list(nearest)}}

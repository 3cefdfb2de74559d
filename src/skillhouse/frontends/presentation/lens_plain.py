"""The lens as plain JSON values; it stands alone so that other verbs do not load it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from skillhouse.runtime.lens import Lens, LensProblem, LensSkill


def lens_value(lens: Lens, problems: Iterable[LensProblem]) -> dict[str, Any]:
    """Return what each client makes of a place; paths are short, fit to be published."""
    return {
        "start": lens.tilde(lens.start),
        "project": lens.tilde(lens.project),
        "clients": [
            {
                "name": client.name,
                "client": client.profile.client,
                "checked": client.profile.checked,
                "roots": [lens.short(root) for root in client.roots],
                "budget": None
                if client.budget is None
                else {**dataclasses.asdict(client.budget), "over": client.budget.over},
            }
            for client in lens.clients
        ],
        "skills": [lens_skill_value(lens, skill) for skill in lens.skills],
        "misses": [{"code": miss.code, "path": lens.short(miss.path)} for miss in lens.misses],
        "problems": [dataclasses.asdict(problem) for problem in problems],
    }


def lens_skill_value(lens: Lens, skill: LensSkill) -> dict[str, Any]:
    """Return what each client makes of one file."""
    return {
        "name": skill.name,
        "file": lens.short(skill.file),
        "places": [lens.short(place) for place in skill.places],
        "root": lens.short(skill.root),
        "description_chars": skill.description_chars,
        "clients": {
            client.name: {
                "state": verdict.state.value,
                "name": verdict.name,
                "code": verdict.code,
                "reason": verdict.reason,
                "line": verdict.line,
                "taken": lens.short(verdict.other) if verdict.other else "",
                "cut": verdict.cut.value,
            }
            for client, verdict in zip(lens.clients, skill.verdicts, strict=True)
        },
    }

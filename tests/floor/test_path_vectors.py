"""Every path vector: a path from outside to a file of the skill, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import PathError, confine
from tests.vectorfile import vectors


def lay_out(base: Path, tree: dict[str, str]) -> Path:
    skill = base / "skill"
    skill.mkdir()
    for relative, kind in tree.items():
        place = skill / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "dir":
            place.mkdir(exist_ok=True)
        elif kind == "file":
            place.write_text(relative)
        else:
            place.symlink_to(kind.removeprefix("link:"))
    return skill


@pytest.mark.req("S003-49", "S003-50", "S003-51", "S003-52", "S003-53", "S003-54", "S003-57")
@pytest.mark.parametrize(("given", "expect"), vectors("paths"))
def test_a_path_is_walked_as_its_vector_says(
    given: dict[str, Any], expect: dict[str, Any], tmp_path: Path
) -> None:
    skill = lay_out(tmp_path, given["tree"])
    assert outcome(skill, given["relative"], given.get("mode", "any")) == expect


def outcome(skill: Path, relative: str, mode: str) -> dict[str, str]:
    try:
        found = confine(skill, relative, mode=mode)
    except PathError as error:
        return {"outcome": "refused", "code": error.code}
    return {"outcome": "ok", "path": found.relative_to(skill.resolve()).as_posix()}

"""Tests of tools/path_rules.py: a skill that may not be read is not read by a command either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.permission import Effect, Rule
from skillhouse.sandbox import SandboxLevel, detect
from tests.runtime.places import write_skill
from tests.tools.houses import house_at

# Left out of the fast part: it starts processes.
pytestmark = pytest.mark.slow

ALLOW_EXEC = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
ASK_SKILLS = Rule(effect=Effect.ASK, action="skill", pattern="*")


@pytest.mark.parametrize("way", ["root", "link to the root", "link above it"])
def test_a_skill_in_the_workspace_is_hidden_by_whatever_way_it_was_found(
    tmp_path: Path, need: Any, way: str
) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no usable sandbox")
    skills = tmp_path / "project/inside/skills"
    write_skill(skills / "pdf", body="the secret body\n")
    links = tmp_path / "links"
    links.mkdir()
    roots = {
        "root": skills,
        "link to the root": links / "root",
        "link above it": links / "above/skills",
    }
    (links / "root").symlink_to(skills)
    (links / "above").symlink_to(skills.parent)
    with house_at(tmp_path, ALLOW_EXEC, ASK_SKILLS, roots=[roots[way]]) as house:
        assert "explicit:pdf" in {skill.id for skill in house.index.skills}
        script = "cat inside/skills/pdf/SKILL.md; echo done"
        result = house.call_sync("exec", {"command": "sh", "params": ["-c", script]})
    assert "done" in result.content
    assert "the secret body" not in result.content

"""Tests of tools/path_rules.py: a skill that may not be read is not read by a command either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.discovery import discover
from skillhouse.permission import Effect, Layer, Permission, Rule, decide
from skillhouse.sandbox import SandboxLevel, detect
from skillhouse.skill import Skill
from skillhouse.tools import PermissionRequest, Session, Workspace
from skillhouse.tools.path_rules import PathRules
from tests.house.places import write_skill
from tests.tools.houses import house_at

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


def rule(effect: str, pattern: str, action: str = "skill") -> Rule:
    return Rule(effect=Effect(effect), action=action, pattern=pattern)


NAMES = ("docx", "pdf", "pptx")


@pytest.mark.parametrize(
    ("rules", "changes", "closed"),
    [
        ((), {}, ""),
        ((rule("allow", "pdf"),), {}, ""),
        ((rule("deny", "pdf"),), {}, "pdf"),
        ((rule("ask", "p*"), rule("allow", "pdf")), {}, "pptx"),
        ((rule("deny", "docx", "*"),), {}, "docx"),
        ((rule("deny", "*", "write"),), {}, ""),
        # Rules that allow decide where the default does not.
        ((rule("allow", "pdf"),), {"default": Effect.ASK}, "docx pptx"),
        ((), {"default": Effect.DENY}, "docx pdf pptx"),
        # What binds bytes is decided one by one.
        ((), {"skill_digest": "sha256:1"}, "pdf"),
        ((), {"caution": "hidden text"}, "pdf"),
        ((), {"level": "sign"}, "pdf"),
    ],
)
def test_a_skill_is_closed_as_its_own_decision_says(
    tmp_path: Path, rules: tuple[Rule, ...], changes: dict[str, Any], closed: str
) -> None:
    """Most are decided together: 10,000 took 0.6 s one by one."""
    layers = (Layer(name="user", rules=rules),)
    for name in NAMES:
        write_skill(tmp_path / "skills" / name)
    decided: list[str] = []

    def need(skill: Skill) -> PermissionRequest:
        permission = Permission(action="skill", resource=skill.name)
        values = {"default": Effect.ALLOW, "why": "", **changes}
        return PermissionRequest(permission=permission, **values)

    def by_rules(request: PermissionRequest, _: Session) -> tuple[Any, str]:
        decided.append(request.permission.resource)
        binds = {"skill_digest", "caution", "level"} & set(changes)
        effect = Effect.ASK if binds and decided[-1] == "pdf" else request.default
        return decide(layers, request.permission, default=effect), ""

    session = Session(
        agent="a", user="u", channel="c", visible=discover([tmp_path / "skills"]), skill_need=need
    )
    paths = PathRules(Workspace(tmp_path), session, layers, by_rules)
    found = [name for name in NAMES if paths.masks(f"skills/{name}")]
    assert found == closed.split()
    strict = any(one.effect is not Effect.ALLOW and one.action != "write" for one in rules)
    assert len(set(decided)) == (len(NAMES) if strict or changes else 1)

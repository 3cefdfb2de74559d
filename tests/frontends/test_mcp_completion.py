"""Tests of frontends/mcp/completion.py: what a client offers while its user types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from skillhouse.frontends.mcp.completion import TEMPLATE, VALUES_MAX
from skillhouse.permission import Effect, Layer, Rule
from tests.frontends.mcp_inside import ERAS, Inside, talk
from tests.house.places import write_skill

# It starts servers.
pytestmark = pytest.mark.slow

SKILLS = ResourceTemplateReference(type="ref/resource", uri=TEMPLATE)
DENIED = Layer(name="user", rules=(Rule(effect=Effect.DENY, action="skill", pattern="secret-*"),))


def inside_of(tmp_path: Path, **skills: str) -> Inside:
    """Return a place with skills by name, each with lines of its frontmatter."""
    inside = Inside(tmp_path, layers=(DENIED,))
    for name, lines in skills.items():
        directory = inside.places.home / ".agents/skills" / name.replace("_", "-")
        write_skill(directory, "Does things.")
        if lines:
            file = directory / "SKILL.md"
            file.write_text(file.read_text().replace("description:", f"{lines}\ndescription:", 1))
    inside.house = inside.another()
    return inside


def completed(inside: Inside, ref: Any, name: str, value: str, mode: str, **server: Any) -> Any:
    async def work(client: Any) -> Any:
        try:
            return (await client.complete(ref, {"name": name, "value": value})).completion
        except MCPError as error:
            return error

    return talk(inside, work, mode, **server)


@pytest.mark.parametrize("mode", ERAS)
def test_names_of_skills_that_the_caller_may_see(tmp_path: Path, mode: str) -> None:
    inside = inside_of(tmp_path, notes="", node_js="", poem="", secret_notes="")
    found = completed(inside, SKILLS, "skill", "no", mode)
    assert found.values == ["user/node-js", "user/notes"]
    assert (found.total, found.has_more) == (2, False)
    assert completed(inside, SKILLS, "skill", "user/po", mode).values == ["user/poem"]
    assert completed(inside, SKILLS, "skill", "secret", mode).values == []
    every = completed(inside, SKILLS, "skill", "", mode).values
    assert "user/secret-notes" not in every
    assert "user/notes" in every


def test_at_most_a_hundred_values(tmp_path: Path) -> None:
    inside = inside_of(tmp_path, **{f"many_{number}": "" for number in range(VALUES_MAX + 5)})
    found = completed(inside, SKILLS, "skill", "many", "auto")
    assert (len(found.values), found.total, found.has_more) == (VALUES_MAX, VALUES_MAX + 5, True)


def test_values_that_a_hint_names(tmp_path: Path) -> None:
    lines = "arguments: [where, how]\nargument-hint: '[staging|production] <fast|slow>'"
    hostile = "argument-hint: '[a b|`rm -rf`|c]'"
    inside = inside_of(tmp_path, deploy=lines, hostile=hostile, plain="argument-hint: '[text]'")

    def of(prompt: str, name: str, value: str = "", **server: Any) -> Any:
        ref = PromptReference(type="ref/prompt", name=prompt)
        found = completed(inside, ref, name, value, "auto", **server)
        return found.message if isinstance(found, MCPError) else found.values

    assert of("deploy", "where") == ["staging", "production"]
    assert of("deploy", "how", "s") == ["slow"]
    assert of("deploy", "else") == []
    assert of("plain", "arguments") == []
    assert of("hostile", "arguments") == []
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("no-such", {}),
        ("deploy", {"is_of_user": False}),
    )
    for prompt, server in cases:
        assert of(prompt, "where", **server) == f"no prompt `{prompt}`"


def test_a_template_of_nobody(tmp_path: Path) -> None:
    inside = inside_of(tmp_path, notes="")
    for uri, name in (("file:///{+path}", "path"), (TEMPLATE, "path"), ("", "skill")):
        ref = ResourceTemplateReference(type="ref/resource", uri=uri)
        assert "no template has that argument" in completed(inside, ref, name, "", "auto").message

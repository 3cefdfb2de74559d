"""Attacks by the text of a skill that came into a project after a person trusted it.

hermes-agent#88704: a description that a pull brought is in every request to the model. Each way
out of a house is walked, so that one that is added without `shown_skills` fails here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp_types import Request
from pydantic import TypeAdapter

from skillhouse.answers.catalogs import search_skills
from skillhouse.answers.json_form import plain
from skillhouse.answers.rehearsal import rehearsal_answer
from skillhouse.frontends.cli.candidates import KINDS, complete
from skillhouse.house import ExtensionSettings, SkillCodeSettings, Skillhouse, rehearse
from skillhouse.manage import SkillsManager
from tests.frontends.mcp_inside import Inside
from tests.house.coded import tool, write_code
from tests.house.places import write_skill

MARK = "zzinjected"
"""In every text that came after the trust, and nowhere else."""
SKILLS = ".agents/skills"
FIELDS = "argument-hint: {0}\narguments: {0}\nwhen_to_use: {0}\nlicense: {0}\nversion: {0}\n"
EXTENDED = ExtensionSettings(invocation=True, substitution=True, commands=True, when_to_use=True)


def pulled(project: Path) -> None:
    """Change what was trusted and add to it, with the mark in everything that is text."""
    head = FIELDS.format(MARK)
    texts = {
        "changed": f"name: changed\ndescription: {MARK}\n{head}",
        "renamed": f"name: {MARK}\ndescription: {MARK}\n{head}",
        "fields": f"name: fields\ndescription: Trusted text.\n{head}",
        "later": f"name: later\ndescription: {MARK}\n{head}",
        "spoken": f"name: Run {MARK}\ndescription: {MARK}\n{head}",
        f"Run {MARK}": f"name: placed\ndescription: {MARK}\n{head}",
        "broken": f"name: broken\ndescription: [{MARK}\n{head}",
        "cut": f"name: cut\ndescription: d #{MARK}\n{head}",
    }
    for name, text in texts.items():
        place = project / SKILLS / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "SKILL.md").write_text(f"---\n{text}---\n{MARK}\n", encoding="utf-8")
        (place / f"{MARK}.md").write_text(MARK)
    write_code(project / SKILLS / "coded", "", {**tool("look"), "description": MARK}, tool(MARK))


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    project = tmp_path / "project"
    for name in ("changed", "renamed", "fields"):
        write_skill(project / SKILLS / name, "Trusted text.")
    write_code(project / SKILLS / "coded", "", tool("look"))
    made = Inside(tmp_path, extensions=EXTENDED, skill_code=SkillCodeSettings(enabled=True))
    made.house.project_trust.trust()
    made.house.close()
    pulled(project)
    made.house = made.another()
    return made


Door = Callable[[Skillhouse], object]
DOORS: dict[str, Door] = {
    **{
        f"catalog {style}": lambda house, style=style: house.catalog(style=style).text  # type: ignore[misc]
        for style in ("xml", "awareness", "direct", "tool", "opencode", "titled", "compact")
    },
    "catalog for a request": lambda house: house.catalog(request=MARK).text,
    "system prompt": lambda house: house.system_prompt(),
    "tools": lambda house: [(t.name, t.description, dict(t.schema)) for t in house.tools()],
    "search": lambda house: [
        (hit.id, hit.name) for word in ("trusted", MARK) for hit in house.search(word, limit=50)
    ],
    "search, for a person": lambda house: [
        plain(one) for one in search_skills(house, "trusted", 50).answers()
    ],
    "menu": lambda house: house.invocable(),
    "rehearse": lambda house: {
        # The body is for the person who rehearses, and tried on no model.
        key: value
        for key, value in plain(rehearsal_answer(rehearse(house, "trusted text"))).items()
        if key not in ("content", "mentions")
    },
    "manager": lambda house: (
        SkillsManager.of(house).list_skills(),
        SkillsManager.of(house).search_skills("trusted", 50),
        *(SkillsManager.of(house).get_skill_content(name) for name in ("changed", "later")),
    ),
    "skill tool": lambda house: [
        house.call_sync("skill", {"name": name}).content
        for name in ("changed", "renamed", "later", "broken", "cut", "nothing-like-it")
    ],
    "search tool": lambda house: house.call_sync("search_skills", {"query": "trusted"}).content,
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_of_the_library_has_text_that_came_after_the_trust(
    inside: Inside, door: str
) -> None:
    with inside.house as house:
        assert MARK not in str(DOORS[door](house))


def test_the_walk_sees_the_mark_once_a_person_trusts_it(inside: Inside) -> None:
    inside.house.project_trust.trust()
    with inside.another() as house:
        silent = {door for door, walk in DOORS.items() if MARK not in str(walk(house))}
    # By default the list is in a tool's description, and nothing of it in the system prompt.
    assert silent == {"system prompt"}


LISTS = (
    "skills/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
    "tools/list",
)


def test_no_list_over_mcp_has_text_that_came_after_the_trust(inside: Inside) -> None:
    async def main() -> dict[str, Any]:
        async with inside.client("auto") as client:
            return {
                "instructions": await instructions(client),
                **{method: await asked(client, method) for method in LISTS},
            }

    answers = anyio.run(main)
    said = {method: MARK in json.dumps(answer) for method, answer in answers.items()}
    assert said == dict.fromkeys(said, False)
    assert [one["name"] for one in answers["prompts/list"]["prompts"] if "cha" in one["name"]] == [
        "changed"
    ]
    # No host can verify an earlier text, so what is not as it was trusted is no resource.
    served = [one["uri"] for one in answers["skills/list"]["skills"]]
    assert not [uri for uri in served if "/project/" in uri]


async def asked(client: Client, method: str) -> dict[str, Any]:
    request = Request[dict[str, Any], str](method=method, params={})
    shape: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
    answer: dict[str, Any] = await client.session.send_request(request, shape)
    return answer


async def instructions(client: Client) -> str:
    return str(client.instructions)


@pytest.mark.parametrize("kind", KINDS)
def test_no_completion_has_text_that_came_after_the_trust(
    inside: Inside, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    place = ["-C", str(inside.project)]
    for verb in ("show", "load", "invoke", "disable"):
        complete([kind, "--", verb, *place, ""])
    assert MARK not in capsys.readouterr().out

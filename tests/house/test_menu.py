"""Tests of house/menu.py and of the house's face for people: who may start which skill."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.floor import ConfigError
from skillhouse.house import ExtensionSettings, Invocable, Skillhouse
from skillhouse.permission import Layer
from skillhouse.tools import CallerFields, ToolResult
from tests.profiles.houses import house_under, rule
from tests.tools.houses import Person

ON = ExtensionSettings(
    invocation=True, substitution=True, when_to_use=True, paths=True, commands=True
)


def write(base: Path, name: str, fields: str = "", body: str = "Body of it.\n") -> Path:
    directory = base / "skills" / name
    directory.mkdir(parents=True)
    head = f"---\nname: {name}\ndescription: About {name}.\n{fields}---\n"
    (directory / "SKILL.md").write_text(head + body)
    return directory


def house_in(base: Path, *rules: Any, on: ExtensionSettings = ON, **more: Any) -> Skillhouse:
    return house_under(base, "default", *rules, roots=[base / "skills"], extensions=on, **more)


def invoke(
    house: Skillhouse, name: str, arguments: str = "", **who: Unpack[CallerFields]
) -> ToolResult:
    return anyio.run(lambda: house.invoke(name, arguments, **who))


def names(house: Skillhouse, agent: str = "default") -> list[str]:
    found = (entry.name for entry in house.invocable(agent))
    return [name for name in found if name not in ("github", "weather", "web-search")]


def offered(house: Skillhouse) -> str:
    """Return all that a model is shown."""
    shown = [f"{tool.name} {tool.description} {dict(tool.schema)}" for tool in house.tools()]
    return "\n".join([*shown, house.catalog().text, house.system_prompt()])


def test_a_skill_for_people_alone_is_not_for_the_model_and_a_person_starts_it(
    tmp_path: Path,
) -> None:
    place = write(tmp_path, "deploy", "disable-model-invocation: true\n")
    (place / "steps.md").write_text("The steps.\n")
    with house_in(tmp_path) as house:
        assert "deploy" not in offered(house)
        assert "deploy" not in [hit.name for hit in house.search("deploy", limit=50)]
        assert house.call_sync("search_skills", {"query": "deploy"}).content.find("About") == -1
        assert house.call_sync("skill", {"name": "deploy"}).is_error
        assert house.call_sync("skill", {"name": "explicit:deploy"}).is_error
        assert names(house) == ["deploy"]
        result = invoke(house, "deploy")
        assert (result.status, "Body of it." in result.content) == ("ok", True)
        newest = read_records(house.audit_log.path, limit=1)[0].record
        assert (newest.tool, newest.user, newest.channel) == ("invoke", "local", "library")


def test_a_skill_for_the_model_alone_is_in_no_menu(tmp_path: Path) -> None:
    write(tmp_path, "background", "user-invocable: false\n")
    with house_in(tmp_path) as house:
        assert names(house) == []
        result = invoke(house, "background")
        assert result.status == "denied"
        assert (
            result.content == "skill `background` is for the model alone (`user-invocable: false`)"
        )
        assert "background" in offered(house)
        assert house.call_sync("skill", {"name": "background"}).status == "ok"


OFF = ExtensionSettings(invocation=False, substitution=False)


def test_the_default_profile_heeds_who_may_start_a_skill_and_fills_arguments(
    tmp_path: Path,
) -> None:
    write(tmp_path, "deploy", "disable-model-invocation: true\n", body="To $ARGUMENTS.\n")
    write(tmp_path, "background", "user-invocable: false\n")
    with house_in(tmp_path, on=ExtensionSettings()) as house:
        assert names(house) == ["deploy"]
        told = f"{offered(house)}{house.catalog().text}{house.view().prompts().instructions()}"
        assert ("deploy" in told, "background" in told) == (False, True)
        assert house.call_sync("skill", {"name": "deploy"}).is_error
        assert not house.search("deploy")
        assert "To the moon." in invoke(house, "deploy", "the moon").content


def test_the_fields_say_nothing_where_they_are_off(tmp_path: Path) -> None:
    write(tmp_path, "deploy", "disable-model-invocation: true\nwhen_to_use: On Mondays.\n")
    write(tmp_path, "background", "user-invocable: false\npaths: src/**\n")
    with house_in(tmp_path, on=OFF) as house:
        assert names(house) == ["background", "deploy"]
        assert house.call_sync("skill", {"name": "deploy"}).status == "ok"
        assert "On Mondays" not in offered(house)
        assert "background" in offered(house)
        result = invoke(house, "deploy", "to the moon")
        assert "Body of it.\n\nARGUMENTS: to the moon" in result.content


def test_menus_show_hints_and_an_id_where_a_name_is_not_enough(tmp_path: Path) -> None:
    write(tmp_path, "fix", "argument-hint: '[issue]'\n")
    with house_in(tmp_path) as house:
        assert (
            Invocable(name="fix", description="About fix.", argument_hint="[issue]")
            in house.invocable()
        )
        with pytest.raises(ConfigError, match="unknown agent"):
            house.invocable("nobody")


def test_rules_about_people_hold_and_those_about_a_model_do_not(tmp_path: Path) -> None:
    for name in ("by-user", "by-action", "by-agent", "free"):
        write(tmp_path, name)
    rules = (rule("deny", "by-user"), rule("deny", "by-action", action="invoke"))
    agents = {"default": Layer(name="agent", rules=(rule("deny", "by-agent"),))}
    with house_in(tmp_path, *rules, agents=agents) as house:
        assert names(house) == ["by-agent", "free"]
        assert house.call_sync("skill", {"name": "by-agent"}).is_error
        assert invoke(house, "by-agent").status == "ok"
        refused = invoke(house, "by-user")
        assert (refused.status, refused.content) == (
            "denied",
            "denied: a rule denies `skill by-user`",
        )
        assert invoke(house, "by-action").status == "denied"
        assert "no skill `by-nobody`" in invoke(house, "by-nobody").content


def test_an_asking_rule_about_starting_is_asked_about(tmp_path: Path) -> None:
    write(tmp_path, "deploy")
    person = Person([Answer.NO, Answer.ONCE])
    asking = rule("ask", "deploy", action="invoke")
    with house_in(tmp_path, asking, person=person) as house:
        refused = invoke(house, "deploy")
        assert (refused.status, "Body" in refused.content) == ("denied", False)
        assert invoke(house, "deploy").status == "ok"
    assert [request.tool for request in person.asked] == ["invoke", "invoke"]


def test_a_skill_that_is_off_is_not_started(tmp_path: Path) -> None:
    write(tmp_path, "deploy")
    with house_in(tmp_path) as house:
        house.management.set_enabled("deploy", enabled=False)
        assert names(house) == []
        assert invoke(house, "deploy").content == "skill `deploy` is off"


def test_a_project_skill_that_changed_since_it_was_trusted_is_asked_about(tmp_path: Path) -> None:
    place = tmp_path / "project/.agents/skills/deploy"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: deploy\ndescription: x\n---\nOld.\n")
    person = Person([Answer.NO])
    with house_in(tmp_path, person=person) as house:
        house.project_trust.trust()
        assert invoke(house, "deploy").status == "ok"
        (place / "SKILL.md").write_text("---\nname: deploy\ndescription: x\n---\nNew.\n")
        house.refresh()
        refused = invoke(house, "deploy")
        assert (refused.status, "New." in refused.content) == ("denied", False)
        assert "has changed since the project was trusted" in refused.content
    assert len(person.asked) == 1


def test_when_to_use_is_listed_cut_and_searched(tmp_path: Path) -> None:
    write(tmp_path, "deploy", "when_to_use: Whenever the flamingo sings.\n")
    with house_in(tmp_path) as house:
        assert "About deploy. - Whenever the flamingo sings." in house.catalog().text
        assert [hit.name for hit in house.search("flamingo")] == ["deploy"]
        assert "flamingo" not in house.invocable()[0].description
        short = house.view().catalog(style="xml", budget_tokens=1)
        assert short.included == ()


def test_a_skill_about_files_is_listed_once_one_is_worked_on(tmp_path: Path) -> None:
    write(tmp_path, "style", "paths: src/**/*.py\n")
    source = tmp_path / "project/src/deep"
    source.mkdir(parents=True)
    (source / "a.py").write_text("x\n")
    (tmp_path / "project/b.md").write_text("x\n")
    with house_in(tmp_path) as house:
        assert "style" not in offered(house)
        assert "style" in [hit.name for hit in house.search("style")]
        assert "style" in house.view().catalog(files=["src/b.py"]).text
        for tool, path in (("list", "src/deep"), ("read", "b.md"), ("read", "src/none.py")):
            house.call_sync(tool, {"path": path})
        assert "style" not in offered(house)
        assert house.call_sync("read", {"path": "src/deep/a.py"}).status == "ok"
        assert "<name>style</name>" in offered(house)
        assert "'style'" in offered(house)
        (source / "a.py").write_text("y\n")
        write(tmp_path, "other")
        house.refresh()
        assert "<name>style</name>" in offered(house)


def test_a_skill_that_is_not_listed_can_be_found_and_loaded(tmp_path: Path) -> None:
    write(tmp_path, "style", "paths: src/**/*.py\n")
    with house_in(tmp_path) as house:
        assert house.call_sync("skill", {"name": "style"}).status == "ok"
        assert invoke(house, "style").status == "ok"


def test_a_field_that_cannot_be_read_is_among_the_findings(tmp_path: Path) -> None:
    write(tmp_path, "deploy", "disable-model-invocation: maybe\n")
    with house_in(tmp_path) as house:
        assert [found.code for found in house.index.diagnostics] == ["invocation-field"]
        assert "deploy" not in offered(house)
    with house_in(tmp_path, on=OFF) as house:
        assert house.index.diagnostics == ()

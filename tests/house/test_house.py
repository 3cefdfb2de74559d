"""Tests of house/house.py."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError, UnknownSkillError
from skillhouse.floor.structs import replace
from skillhouse.house import Caller, Skillhouse, configured, rehearse
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import validate
from tests.house.places import make_places, write_skill


def deny(pattern: str) -> Layer:
    rule = Rule(effect=Effect.DENY, action="skill", pattern=pattern, reason="not here")
    return Layer(name="user", rules=(rule,))


def test_a_house_without_anything_has_the_builtin_skills(tmp_path: Path) -> None:
    house = Skillhouse(configured(make_places(tmp_path)))
    names = [skill.id for skill in house.index.skills]
    assert names == ["builtin:github", "builtin:weather", "builtin:web-search"]
    assert house.index.diagnostics == ()


def test_explicit_roots_come_before_the_environments_and_the_users(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"SKILLHOUSE_SKILLS_DIR": str(tmp_path / "b")})
    for root in (tmp_path / "a", tmp_path / "b", places.home / ".agents/skills"):
        write_skill(root / "pdf", description=f"From {root.name}.")
    house = Skillhouse(configured(places), roots=[tmp_path / "a"])
    assert house.index.get("pdf").description == "From a."
    assert [skill.description for skill in house.index.shadowed] == ["From b.", "From skills."]
    assert house.index.get("user:pdf").description == "From skills."


def test_a_denied_skill_is_neither_listed_nor_found(tmp_path: Path) -> None:
    house = Skillhouse(configured(make_places(tmp_path)), layers=(deny("weather"),))
    assert "weather" not in house.catalog().text
    assert [hit.name for hit in house.search("weather in Tokyo")] != ["weather"]
    assert [skill.name for skill in house.view().hidden] == ["weather"]
    explained = house.policy.explain_skill(house.index.get("weather"))
    assert explained.reason == "rule `skill weather` of user policy: not here"


def test_the_catalog_keeps_to_the_configured_budget(tmp_path: Path) -> None:
    house = Skillhouse(configured(make_places(tmp_path)), catalog_budget_tokens=100)
    catalog = house.catalog()
    # Every skill is named, and none described whole.
    assert [skill.name for skill in catalog.included] == ["github", "weather", "web-search"]
    assert (catalog.omitted, catalog.cut) == ((), catalog.included)
    assert catalog.tokens <= 100
    assert [skill.name for skill in house.catalog(budget_tokens=10).omitted] == [
        "github",
        "weather",
        "web-search",
    ]
    assert house.search("weather")[0].name == "weather"


@pytest.mark.under("opencode")
@pytest.mark.req("S000-51", "S001-6", "S001-37")
def test_a_skill_that_is_added_is_found_after_a_refresh(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    house = Skillhouse(configured(places))
    with pytest.raises(UnknownSkillError):
        house.index.get("notes")
    write_skill(places.home / ".claude/skills/notes", description="记笔记。")
    house.refresh()
    assert house.load("notes").body == "Body.\n"


@pytest.mark.under("opencode")
@pytest.mark.req("S000-51")
def test_each_start_has_the_skills_as_they_are_then(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    notes = places.home / ".claude/skills/notes"

    def start() -> dict[str, str]:
        with Skillhouse(configured(places)) as house:
            found = [skill for skill in house.index.skills if skill.scope != "builtin"]
            return {skill.name: house.load(skill.name).body for skill in found}

    write_skill(places.home / ".claude/skills/kept")
    assert start() == {"kept": "Body.\n"}
    write_skill(notes)
    assert start() == {"kept": "Body.\n", "notes": "Body.\n"}
    assert start() == {"kept": "Body.\n", "notes": "Body.\n"}
    write_skill(notes, body="Another.\n")
    assert start() == {"kept": "Body.\n", "notes": "Another.\n"}
    shutil.rmtree(notes)
    assert start() == {"kept": "Body.\n"}


@pytest.mark.under("opencode")
@pytest.mark.req("S001-35", "S001-38")
def test_two_places_do_not_share_skills(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (make_places(tmp_path / name) for name in ("one", "two"))
    write_skill(one.home / ".agents/skills/only-here")
    assert Skillhouse(configured(one)).index.get("only-here").scope == "user"
    with pytest.raises(UnknownSkillError):
        Skillhouse(configured(two)).index.get("only-here")


def test_an_unknown_override_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Skillhouse(configured(make_places(tmp_path)), profil="x")  # type: ignore[call-arg]
    assert caught.value.suggestion == "profile"


def test_project_roots_are_found_from_a_subdirectory_up_to_the_git_root(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    below = places.start / "src/deep"
    below.mkdir(parents=True)
    write_skill(places.start / ".claude/skills/top")
    write_skill(below / ".agents/skills/near")
    write_skill(tmp_path / ".agents/skills/outside")
    house = Skillhouse(configured(replace(places, start=below)))
    house.project_trust.trust()
    names = [skill.name for skill in house.index.skills if skill.scope == "project"]
    assert names == ["near", "top"]


IN_BACKTICKS = re.compile(r"`([a-z][a-z_]{2,})`")


@pytest.mark.slow
@pytest.mark.req("S000-68", "S000-65", "S000-66", "S000-67")
def test_the_builtin_skills_are_valid_and_use_commands_that_need_no_shell(tmp_path: Path) -> None:
    house = Skillhouse(configured(make_places(tmp_path)))
    tools = {tool.name: tool for tool in house.tools()}
    for skill in house.index.skills:
        assert validate(skill.directory) == ()
        rehearsal = rehearse(house, skill.name)
        assert rehearsal.skill == skill
        assert rehearsal.mentions
        commands = [v for v in rehearsal.mentions if v.mention.kind == "command"]
        assert all(verdict.argv is not None for verdict in commands)
        named = {v.mention.text for v in rehearsal.mentions if v.mention.kind == "tool"}
        assert named <= set(tools)
        # A word in backticks is a tool of the house, an argument of one, or a program it runs.
        arguments = {word for name in named for word in tools[name].schema["properties"]}
        assert rehearsal.content is not None
        programs = {verdict.argv[0] for verdict in commands if verdict.argv}
        words = set(IN_BACKTICKS.findall(rehearsal.content.body))
        assert words <= named | arguments | programs


@pytest.mark.req("S000-67")
def test_the_skill_about_the_web_names_both_tools_and_what_each_would_meet(tmp_path: Path) -> None:
    rehearsal = rehearse(Skillhouse(configured(make_places(tmp_path))), "search the web for news")
    assert rehearsal.skill is not None
    assert rehearsal.skill.name == "web-search"
    assert {v.mention.text: v.effect for v in rehearsal.mentions} == {
        "web_search": Effect.ALLOW,
        "fetch": Effect.ASK,
    }


def test_the_environment_of_this_process_is_where_a_bare_house_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [name for name in os.environ if name.startswith(("SKILLHOUSE_", "XDG_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert Skillhouse().config.places.start == tmp_path


def test_a_caller_is_one_value_or_keywords_and_never_both(tmp_path: Path) -> None:
    with Skillhouse(configured(make_places(tmp_path)), roots=[tmp_path]) as house:
        caller = Caller(agent="default", user="mika", channel="chat", session_id="s1")
        by_value = house.conversation(caller=caller)
        by_keywords = house.conversation(user="mika", channel="chat", session_id="s1")
        assert by_value.session() == by_keywords.session()
        assert (by_value.session().client, by_value.session().connection) == (
            "chat",
            house.services.connection,
        )
        with pytest.raises(TypeError, match="both `caller` and the keyword `user`"):
            house.conversation(caller=caller, user="mika")

"""Tests of tools/offer.py: what an agent is offered, and what is listed of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.house import Settings, Skillhouse, configured, load_config
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import load_profile
from skillhouse.tools import BUILTIN_TOOLS, ToolNotOfferedError, UnknownToolError
from tests.house.places import make_places, write_skill

ABOUT_SKILLS = ["skill", "search_skills"]
EXEC = ["exec", "exec_output", "exec_stop"]
REST = ["read", "list", "write", "edit", *EXEC, "fetch", "web_search"]
PROFILES = ("default", "openseed", "opencode", "claude-desktop", "claude-code", "gemini-cli")


def rule(words: str) -> Rule:
    effect, action, pattern = words.split(" ", 2)
    return Rule(effect=Effect(effect), action=action, pattern=pattern)


def layer(*words: str, name: str = "user", trusted: bool = True) -> Layer:
    return Layer(name=name, rules=tuple(map(rule, words)), trusted=trusted)


def house_of(tmp_path: Path, *lists: str, rules: tuple[Layer, ...] = ()) -> Skillhouse:
    return Skillhouse(
        configured(make_places(tmp_path)), offered_tools=lists or ("all",), layers=rules
    )


def names(house: Skillhouse, agent: str = "default") -> list[str]:
    return [tool.name for tool in house.tools(agent=agent)]


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (("all",), [*ABOUT_SKILLS, *REST]),
        (("skills",), ABOUT_SKILLS),
        (("skills", "read"), [*ABOUT_SKILLS, "read"]),
        (("web_*", "exec"), [*EXEC, "web_search"]),
        (("pdf:*",), []),
        (("sign", "memory_search"), []),
    ],
)
def test_an_agent_is_offered_what_its_list_names(tmp_path, lists, expected):
    assert names(house_of(tmp_path, *lists)) == expected


@pytest.mark.parametrize("profile", PROFILES)
def test_skills_are_the_tools_about_skills_of_each_profile(tmp_path, profile):
    places = make_places(tmp_path)
    for folder in (".agents", ".claude", ".gemini"):
        write_skill(places.home / folder / "skills/pdf")
    house = Skillhouse(configured(places), profile=profile, offered_tools=("skills",))
    expected = [one.name for one in load_profile(profile, None).tools]
    assert names(house) == expected


def test_every_builtin_tool_has_a_name_that_lists_know(tmp_path):
    config = configured(make_places(tmp_path), Settings())
    house = Skillhouse(config)
    about = {one.name for one in house.policy.profile.tools}
    assert set(names(house)) <= about | set(BUILTIN_TOOLS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("exce", "unknown tool `exce` in `tools`; did you mean `exec`"),
        ("Skills", "unknown tool `Skills` in `tools`; did you mean `skills`"),
        ("zzzz", "unknown tool `zzzz` in `tools`, known are all, edit, exec, exec_output"),
    ],
)
def test_an_unknown_name_is_an_error_that_says_what_there_is(tmp_path, name, message):
    with pytest.raises(ConfigError) as caught:
        house_of(tmp_path, name)
    assert str(caught.value).startswith(message)


def test_a_call_of_a_tool_that_is_not_offered_says_so(tmp_path):
    with house_of(tmp_path, "skills") as house:
        with pytest.raises(UnknownToolError) as caught:
            house.call_sync("exec", {"command": "ls"})
        forecast = house.forecast("exec", {"command": "ls"})
    said = "tool `exec` is not offered to this agent; offered are search_skills, skill"
    assert (type(caught.value), str(caught.value)) == (ToolNotOfferedError, said)
    assert (forecast.effect, forecast.reasons) == (Effect.DENY, (said,))


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        (("deny exec *",), {*EXEC}),
        # Of commands the strictest of all rules holds, whatever their order.
        (("deny exec *", "allow exec git *"), {*EXEC}),
        (("allow exec *", "deny exec rm *"), set()),
        (("deny fetch *",), {"fetch"}),
        (("deny fetch *", "allow fetch GET https://a.example*"), set()),
        (("allow fetch GET https://a.example*", "deny fetch *"), {"fetch"}),
        (("deny write *",), {"write", "edit"}),
        (("deny read /*",), {"read"}),
        (("deny read /home/*",), set()),
        (("deny search_skills *",), {"search_skills"}),
        (("deny skill *",), {"skill", "search_skills"}),
        (("deny * *",), {*ABOUT_SKILLS, *REST}),
    ],
)
def test_a_tool_that_rules_deny_wholly_is_not_listed(tmp_path, rules, missing):
    found = names(house_of(tmp_path, rules=(layer(*rules),)))
    assert set(ABOUT_SKILLS + REST) - set(found) == missing


CALLS = {
    "exec": {"command": "git status"},
    "fetch": {"url": "https://a.example/"},
    "write": {"path": "a.txt", "content": "a"},
    "search_skills": {"query": "rain"},
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_tool_that_rules_deny_wholly_names_the_rule(tmp_path, name):
    with house_of(tmp_path, rules=(layer(f"deny {name} *"),)) as house:
        assert name not in names(house)
        result = house.call_sync(name, CALLS[name])
    assert (result.status, result.content) == (
        "denied",
        f"denied: rule `{name} *` of user policy",
    )


def test_a_deny_of_a_project_hides_a_tool_and_its_allow_shows_none(tmp_path):
    denied = layer("deny fetch *")
    allowing = layer("allow fetch *", name="project", trusted=False)
    assert "fetch" not in names(house_of(tmp_path, rules=(denied, allowing)))
    denying = layer("deny fetch *", name="project", trusted=False)
    assert "fetch" not in names(house_of(tmp_path, rules=(denying,)))


def config_of(tmp_path: Path, user: str, managed: str = "", flag: tuple[str, ...] | None = None):
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text(user, encoding="utf-8")
    places.managed_file.write_text(managed, encoding="utf-8")
    return load_config(places, Settings(tools=flag))


BOTH = 'tools = ["skills", "read"]\n[agents.coder]\ntools = ["exec", "read"]\n[agents.plain]\n'


@pytest.mark.parametrize(
    ("managed", "flag", "expected"),
    [
        ("", None, ([*ABOUT_SKILLS, "read"], ["read", *EXEC])),
        ("", ("skills",), (ABOUT_SKILLS, [])),
        # Whoever starts a server cannot offer more than the configuration does.
        ("", ("all",), ([*ABOUT_SKILLS, "read"], ["read", *EXEC])),
        ('tools = ["read"]', ("all",), (["read"], ["read"])),
    ],
)
def test_lists_of_the_files_and_the_flag_only_take_away(tmp_path, managed, flag, expected):
    house = Skillhouse(config_of(tmp_path, BOTH, managed, flag))
    assert (names(house), names(house, "coder")) == expected
    assert names(house, "plain") == names(house)


def test_a_wrong_name_in_a_file_names_the_key(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown tool `rede` in `agents\.coder\.tools`"):
        Skillhouse(config_of(tmp_path, '[agents.coder]\ntools = ["rede"]\n'))


@pytest.mark.parametrize("lists", [("exec",), ("write", "fetch")])
def test_no_prompt_names_a_tool_that_is_not_offered(tmp_path, lists):
    view = house_of(tmp_path, *lists).view()
    assert (view.system_prompt(), view.prompts().instructions()) == ("", "")


def test_prompts_do_without_a_search_that_is_denied(tmp_path):
    house = house_of(tmp_path, rules=(layer("deny search_skills *"),))
    assert "search_skills" not in house.view().prompts().instructions()
    assert all("search_skills" not in tool.description for tool in house.tools())

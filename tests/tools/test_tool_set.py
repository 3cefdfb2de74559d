"""Tests of tools/tool_set.py: what an agent is offered, and what is listed of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from skillhouse.floor import ConfigError
from skillhouse.house import Settings, Skillhouse, configured, load_config
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import load_profile
from skillhouse.tools import (
    BUILTIN_TOOLS,
    Plan,
    Session,
    Tool,
    ToolNotOfferedError,
    ToolVisibility,
    UnknownToolError,
)
from skillhouse.tools.call import object_schema
from skillhouse.tools.tool_set import ToolNames, ToolSet
from tests.house.places import make_places, write_skill

ABOUT_SKILLS = ["skill", "search_skills"]
EXEC = ["exec", "exec_output", "exec_stop"]
REST = ["read", "list", "write", "edit", *EXEC, "fetch", "web_search"]
PROFILES = ("default", "openseed", "opencode", "claude-desktop", "claude-code", "gemini-cli")


class Named(Tool):
    description = "Does nothing"
    schema: Mapping[str, Any] = object_schema({"n": {"type": "integer"}})

    def __init__(self, name: str, full_name: str = "") -> None:
        self.name = name
        self.full_name = full_name

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        raise NotImplementedError


class Makers(dict[str, Any]):
    """Makers of tools, and the names of those that were made."""

    def __init__(self, *names: str) -> None:
        super().__init__({name: lambda name=name: self._make(name) for name in names})
        self.made: list[str] = []

    def _make(self, name: str) -> Tool:
        self.made.append(name)
        return Named(name)


def test_a_tool_is_made_once_and_no_other_with_it():
    makers = Makers("read", "exec")
    tools = ToolSet([Named("mine")], makers, ToolVisibility())
    assert tools.get("read") is tools.get("read")
    assert tools.get("none") is None
    assert makers.made == ["read"]


def test_the_shown_tools_are_in_their_order_and_within_the_offer():
    makers = Makers("read", "exec", "fetch")
    own = Named("a__b", "a:b")
    tools = ToolSet([own], makers, ToolVisibility(lists=(("fetch", "read", "a:*"),)))
    assert list(tools.shown()) == ["read", "fetch", "a__b"]
    assert tools.get("a:b") is own
    assert tools.get("exec") is not None


def test_threads_that_ask_at_once_get_one_tool():
    start = threading.Barrier(4)
    makers = Makers("read")
    tools = ToolSet([], makers, ToolVisibility())

    def ask(_: int) -> Tool | None:
        start.wait()
        return tools.get("read")

    with ThreadPoolExecutor(4) as pool:
        found = set(map(id, pool.map(ask, range(4))))
    assert (len(found), makers.made) == (1, ["read"])


@pytest.mark.parametrize("made", [object(), Named("another")])
def test_what_a_maker_makes_must_be_the_tool_of_that_name(made):
    tools = ToolSet([], {"read": lambda: made}, ToolVisibility())
    with pytest.raises(TypeError, match="named `read`"):
        tools.get("read")


def test_a_schema_that_is_none_is_refused_before_any_call():
    broken = Named("one")
    broken.schema = {"type": "objekt", "properties": {}}
    with pytest.raises(jsonschema_rs.ValidationError):
        ToolSet([broken], {}, ToolVisibility())


def test_what_is_wrong_with_arguments_is_said_by_the_tool_s_schema():
    tools = ToolSet([Named("one")], {}, ToolVisibility())
    one = tools.get("one")
    assert one is not None
    assert tools.argument_fault(one, {"n": 1}) == ""
    assert "no argument `m`" in tools.argument_fault(one, {"m": 1})
    assert tools.argument_fault(one, {"n": "x"}).startswith("wrong argument `n` of `one`")
    assert "not JSON values" in tools.argument_fault(one, {"n": float("nan")})


NAMES = ToolNames(
    published={"fetch": ("web_fetch", "get"), "read": ("read", "read-file"), "sign": ("sign_it",)},
    bare=True,
)


def test_a_published_name_is_listed_in_place_of_ours_and_both_are_taken():
    tools = ToolSet([], Makers("read", "fetch", "exec"), ToolVisibility(), NAMES)
    assert list(tools.shown()) == ["read", "web_fetch", "exec"]
    own = tools.get("fetch")
    assert own is not None
    assert (own.name, own.own_name) == ("fetch", "")
    assert tools.get("web_fetch") is tools.get("get") is own
    shown = tools.shown()["web_fetch"]
    assert (shown.name, shown.own_name, shown.title) == ("web_fetch", "fetch", "web_fetch")
    assert tools.get("read-file") is tools.get("read")
    # What is not there is not there under another name.
    assert tools.get("sign_it") is None


def test_a_published_name_takes_nothing_from_a_tool_that_has_it():
    mine = Named("web_fetch")
    tools = ToolSet([mine], Makers("fetch"), ToolVisibility(), NAMES)
    assert tools.get("web_fetch") is mine
    # The next of the design's names is listed then.
    assert list(tools.shown()) == ["get", "web_fetch"]


def test_a_name_without_its_skill_means_the_one_tool_of_that_name():
    skills = [Named("a__go", "a:go"), Named("b__go", "b:go"), Named("a__one", "a:one"),
              Named("a__exec", "a:exec"), Named("a__web_fetch", "a:web_fetch")]  # fmt: skip
    tools = ToolSet(skills, Makers("fetch"), ToolVisibility(), NAMES)
    found = {n: [t.full_name for t in tools.bare(n)] for n in ("go", "one", "none", "exec")}
    assert found == {"go": ["a:go", "b:go"], "one": ["a:one"], "none": [], "exec": []}
    # Names of ours are none of theirs, whether our tool is there or not.
    assert [*tools.bare("web_fetch"), *tools.bare("sign"), *tools.bare("sign_it")] == []
    fewer = ToolSet(skills, {}, ToolVisibility(lists=(("a:*",),)), NAMES)
    assert [tool.full_name for tool in fewer.bare("go")] == ["a:go"]
    assert ToolSet(skills, {}, ToolVisibility()).bare("one") == ()


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
        (
            "zzzz",
            "unknown tool `zzzz` in `tools`, known are all, call_skill_tool, edit, exec",
        ),
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

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema_rs
import pytest

from skillhouse.tools import Plan, Session, Tool, ToolOffer
from skillhouse.tools.call import object_schema
from skillhouse.tools.tool_set import ToolNames, ToolSet


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
    tools = ToolSet([Named("mine")], makers, ToolOffer())
    assert tools.get("read") is tools.get("read")
    assert tools.get("none") is None
    assert makers.made == ["read"]


def test_the_shown_tools_are_in_their_order_and_within_the_offer():
    makers = Makers("read", "exec", "fetch")
    own = Named("a__b", "a:b")
    tools = ToolSet([own], makers, ToolOffer(lists=(("fetch", "read", "a:*"),)))
    assert list(tools.shown()) == ["read", "fetch", "a__b"]
    assert tools.get("a:b") is own
    assert tools.get("exec") is not None


def test_threads_that_ask_at_once_get_one_tool():
    start = threading.Barrier(4)
    makers = Makers("read")
    tools = ToolSet([], makers, ToolOffer())

    def ask(_: int) -> Tool | None:
        start.wait()
        return tools.get("read")

    with ThreadPoolExecutor(4) as pool:
        found = set(map(id, pool.map(ask, range(4))))
    assert (len(found), makers.made) == (1, ["read"])


@pytest.mark.parametrize("made", [object(), Named("another")])
def test_what_a_maker_makes_must_be_the_tool_of_that_name(made):
    tools = ToolSet([], {"read": lambda: made}, ToolOffer())
    with pytest.raises(TypeError, match="named `read`"):
        tools.get("read")


def test_a_schema_that_is_none_is_refused_before_any_call():
    broken = Named("one")
    broken.schema = {"type": "objekt", "properties": {}}
    with pytest.raises(jsonschema_rs.ValidationError):
        ToolSet([broken], {}, ToolOffer())


def test_what_is_wrong_with_arguments_is_said_by_the_tool_s_schema():
    tools = ToolSet([Named("one")], {}, ToolOffer())
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
    tools = ToolSet([], Makers("read", "fetch", "exec"), ToolOffer(), NAMES)
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
    tools = ToolSet([mine], Makers("fetch"), ToolOffer(), NAMES)
    assert tools.get("web_fetch") is mine
    # The next of the design's names is listed then.
    assert list(tools.shown()) == ["get", "web_fetch"]


def test_a_name_without_its_skill_means_the_one_tool_of_that_name():
    skills = [Named("a__go", "a:go"), Named("b__go", "b:go"), Named("a__one", "a:one"),
              Named("a__exec", "a:exec"), Named("a__web_fetch", "a:web_fetch")]  # fmt: skip
    tools = ToolSet(skills, Makers("fetch"), ToolOffer(), NAMES)
    found = {n: [t.full_name for t in tools.bare(n)] for n in ("go", "one", "none", "exec")}
    assert found == {"go": ["a:go", "b:go"], "one": ["a:one"], "none": [], "exec": []}
    # Names of ours are none of theirs, whether our tool is there or not.
    assert [*tools.bare("web_fetch"), *tools.bare("sign"), *tools.bare("sign_it")] == []
    fewer = ToolSet(skills, {}, ToolOffer(lists=(("a:*",),)), NAMES)
    assert [tool.full_name for tool in fewer.bare("go")] == ["a:go"]
    assert ToolSet(skills, {}, ToolOffer()).bare("one") == ()

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema_rs
import pytest

from skillhouse.tools import Plan, Session, Tool, ToolOffer
from skillhouse.tools.call import object_schema
from skillhouse.tools.tool_set import ToolSet


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

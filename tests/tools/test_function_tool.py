"""Tests of tools/function_tool.py and tools/function_schema.py: tools made of functions."""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Required, TypedDict

import pytest

from skillhouse import (
    Answer,
    Effect,
    Progress,
    ProgressHandler,
    ReportProgress,
    Rule,
    Skillhouse,
    Tool,
    ToolDefinitionError,
    tool,
)
from skillhouse.audit import read_records
from skillhouse.floor import ConfigError
from skillhouse.house import configured
from skillhouse.permission import Layer
from tests.house.places import make_places
from tests.tools.houses import Person


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 2


class Options(TypedDict, total=False):
    name: Required[str]
    sizes: list[int]


@tool(level="read")
def draw(
    where: Point,
    colour: Colour,
    kind: Annotated[Literal["a", "b"], "which of the two"] = "a",
    options: Options | None = None,
    scale: float = 1.0,
) -> dict[str, object]:
    """Draw a point.

    It is drawn at once.

    Args:
        where: The place,
            in the grid.
        colour (Colour): What it looks like.

    Returns:
        What was drawn.
    """
    return {"where": where, "colour": colour, "kind": kind, "scale": scale, "options": options}


@tool
def deploy(environment: str, version: int, progress: ReportProgress) -> str:
    """Deploy a version."""
    progress(0.5, "half")
    if version == 13:
        raise ValueError("an unlucky\nversion")
    if version == 14:
        raise SystemExit(3)
    return f"{version} runs in {environment}"


@tool
async def wait(forever: bool = False) -> list[int]:
    """Wait."""
    if forever:
        await asyncio.sleep(1_000)
    return [1, 2]


@tool(level="read")
def give(what: Literal["none", "number", "socket", "surrogate", "deep"]) -> object:
    """Give something back."""
    given = {"none": None, "number": 7, "socket": object(), "surrogate": "a\ud800b"}
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    return given.get(what, deep)


def rule(words: str) -> Rule:
    effect, action, pattern = words.split(" ", 2)
    return Rule(effect=Effect(effect), action=action, pattern=pattern)


def house_of(
    tmp_path: Path,
    *rules: str,
    tools: Sequence[Tool] = (draw, deploy, wait, give),
    person: Person | None = None,
) -> Skillhouse:
    layer = Layer(name="user", rules=tuple(map(rule, rules)))
    return Skillhouse(
        configured(make_places(tmp_path)), tools=tools, channel=person, layers=(layer,)
    )


def test_a_schema_has_what_the_signature_and_the_docstring_say():
    assert draw.description == "Draw a point.\n\nIt is drawn at once."
    assert draw.schema == {
        "type": "object",
        "properties": {
            "where": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 2}},
                "required": ["x"],
                "additionalProperties": False,
                "description": "The place, in the grid.",
            },
            "colour": {"enum": ["blue", "red"], "description": "What it looks like."},
            "kind": {"enum": ["a", "b"], "description": "which of the two", "default": "a"},
            "options": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "sizes": {"type": "array", "items": {"type": "integer"}},
                        },
                        "required": ["name"],
                        "additionalProperties": False,
                    },
                    {"type": "null"},
                ],
                "default": None,
            },
            "scale": {"type": "number", "default": 1.0},
        },
        "required": ["where", "colour"],
        "additionalProperties": False,
    }
    assert list(deploy.schema["properties"]) == ["environment", "version"]


def test_arguments_become_values_of_their_types_and_results_become_json(tmp_path):
    with house_of(tmp_path) as house:
        result = house.call_sync("draw", {"where": {"x": 1, "y": 2}, "colour": "red"})
    assert result.data == {
        "where": {"x": 1, "y": 2},
        "colour": "red",
        "kind": "a",
        "scale": 1.0,
        "options": None,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("none", "ok", "done"),
        ("number", "ok", "7"),
        ("surrogate", "ok", r"a\ud800b"),
        ("socket", "error", "`give` was run, and what it returned is no text and no JSON value"),
        ("deep", "error", "`give` was run, and what it returned is no text and no JSON value"),
    ],
)
def test_a_result_is_text_or_json_or_says_that_it_is_neither(tmp_path, what, status, text):
    with house_of(tmp_path) as house:
        result = house.call_sync("give", {"what": what})
    assert result.status == status
    assert result.content.startswith(text)


def test_rules_compare_the_first_argument_and_the_default_asks(tmp_path):
    with house_of(tmp_path, "allow deploy staging", "deny deploy prod*") as house:
        status = {
            place: house.call_sync("deploy", {"environment": place, "version": 1}).status
            for place in ("staging", "production", "test")
        }
    assert status == {"staging": "ok", "production": "denied", "test": "pending"}


@pytest.mark.slow
def test_a_resource_is_a_template_or_a_function_of_all_arguments(tmp_path):
    def copy(source: str, target: str = "here") -> str:
        """Copy."""
        return f"{source} to {target}"

    one = tool(name="one", resource="{source} > {target}")(copy)
    two = tool(name="two", resource=lambda source, target: target, action="copy")(copy)
    with house_of(tmp_path, "allow one a > *", "allow copy here", tools=[one, two]) as house:
        statuses = [
            house.call_sync("one", {"source": "a"}).status,
            house.call_sync("one", {"source": "b"}).status,
            house.call_sync("two", {"source": "b"}).status,
            house.call_sync("two", {"source": "b", "target": "there"}).status,
        ]
    assert statuses == ["ok", "pending", "ok", "pending"]


def test_an_answer_for_later_needs_a_resource_that_says_what_a_call_is_about(tmp_path):
    person = Person([Answer.NO] * 2)
    named = tool(name="named", resource="{environment}")(deploy_plainly)
    with house_of(tmp_path, tools=[deploy, named], person=person) as house:
        for name in ("deploy", "named"):
            house.call_sync(name, {"environment": "a", "version": 1})
    assert [bool(asked.patterns) for asked in person.asked] == [False, True]


def deploy_plainly(environment: str, version: int) -> str:
    """Deploy."""
    return f"{version} {environment}"


def test_an_exception_is_a_result_without_a_traceback_and_the_log_has_it(
    tmp_path, caplog: pytest.LogCaptureFixture
):
    with house_of(tmp_path, "allow deploy *") as house:
        failed = house.call_sync("deploy", {"environment": "a", "version": 13})
        ended = house.call_sync("deploy", {"environment": "a", "version": 14})
        entry = read_records(house.audit_log.path, tool="deploy")[-1]
    assert (failed.status, failed.content) == (
        "error",
        "`deploy` failed: ValueError: an unlucky version",
    )
    assert ended.content == "`deploy` failed: SystemExit: 3"
    assert entry.outcome is not None
    assert "test_function_tool.py" in str(entry.outcome.detail)
    assert "in deploy" in str(entry.outcome.detail)
    # What Python prints without any handler.
    loud = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.exc_info for one in loud] == [None, None]


def test_a_function_that_is_not_async_runs_on_another_thread_and_reports(tmp_path):
    heard: list[Progress] = []
    seen: list[threading.Thread] = []

    @tool
    def work(progress: ReportProgress) -> str:
        """Work."""
        seen.append(threading.current_thread())
        progress(float("nan"), "no number")
        progress(7.0, "all")
        return "worked"

    async def listen(now: Progress) -> None:
        heard.append(now)

    async def main() -> None:
        result = await house.call("work", {}, listener=listen)
        assert result.content == "worked"

    with house_of(tmp_path, "allow work *", tools=[work]) as house:
        asyncio.run(main())
    assert seen[0] is not threading.current_thread()
    assert heard == [Progress(progress=1.0, total=1.0, message="all")]


def test_an_async_function_is_cancelled_with_its_call_and_may_report(tmp_path):
    heard: list[float] = []

    @tool
    async def work(progress: ProgressHandler) -> str:
        """Work."""
        await progress(Progress(progress=1, total=4, message="a quarter"))
        return "worked"

    async def listen(now: Progress) -> None:
        heard.append(now.progress)

    async def main() -> None:
        await house.call("work", {}, listener=listen)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(house.call("wait", {"forever": True}), 0.3)

    with house_of(tmp_path, "allow work *", "allow wait *", tools=[work, wait]) as house:
        asyncio.run(main())
        entry = read_records(house.audit_log.path, tool="wait")[0]
    assert heard == [0.25]
    assert entry.status not in ("ok", "unknown")


def test_a_tool_of_the_program_is_of_the_level_that_it_names():
    assert (draw.reads_only, draw.durable, deploy.reads_only, deploy.durable) == (
        True,
        False,
        False,
        True,
    )


def positional(a: int, /) -> None:
    """x"""


def star(*a: int) -> None:
    """x"""


def untyped(a) -> None:
    """x"""


def path(a: Path) -> None:
    """x"""


def silent(a: int) -> None: ...


def wrong_docs(a: int) -> None:
    """x

    Args:
        b: What is it?
    """


def generates(a: int) -> Any:
    """x"""
    yield a


def odd_default(a: Any = threading) -> None:
    """x"""


class Node(TypedDict):
    below: list[Node]


def recursive(a: Node) -> None:
    """x"""


def reports(a: ProgressHandler) -> None:
    """x"""


def plain(a: int) -> None:
    """x"""


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (positional, {}, "parameter `a` of `positional` cannot be given by name"),
        (star, {}, "parameter `a` of `star` cannot be given by name"),
        (untyped, {}, "parameter `a` of `untyped` has no type: annotate it"),
        (path, {}, "parameter `a` of `path` has a type that JSON cannot give"),
        (silent, {}, "`silent` has no docstring"),
        (wrong_docs, {}, "the docstring of `wrong_docs` describes `b`, which is no parameter"),
        (generates, {}, "`generates` is a generator"),
        (odd_default, {}, "the default of parameter `a` of `odd_default` is no JSON value"),
        (recursive, {}, "parameter `a` of `recursive` has a type that contains itself"),
        (reports, {}, "`reports` is not async: give `a` the type `ReportProgress`"),
        (plain, {"level": "sign"}, "expected level `read` or `write` of `plain`, got `sign`"),
        (plain, {"name": "a__b"}, "the name of the tool `a__b` cannot be used"),
        (plain, {"name": "a b"}, "the name of the tool `a b` cannot be used"),
        (plain, {"action": "exec"}, "the action `exec` of `plain` cannot be used: skillhouse"),
        (plain, {"action": "a *"}, "the action `a *` of `plain` cannot be used: expected one word"),
        (plain, {"resource": "{b}"}, "`{b}` in the resource of `plain` is no parameter"),
        (plain, {"resource": "{a.__class__}"}, "`{a.__class__}` in the resource of `plain`"),
        (plain, {"resource": "{"}, "the resource of `plain` cannot be read"),
    ],
)
def test_what_cannot_be_a_tool_says_what_to_change(
    function: Callable[..., object], options: dict[str, Any], message: str
):
    with pytest.raises(ToolDefinitionError) as caught:
        tool(**options)(function)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["exec", "Skill", "search_skills", "sign", "memory_write", "all"])
def test_the_name_of_another_tool_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="is taken by the tool"):
        house_of(tmp_path, tools=[tool(name=name, action="own")(plain)])


def test_two_tools_of_one_name_and_what_is_no_tool_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="the name `wait` is taken by the tool `wait`"):
        house_of(tmp_path, tools=[wait, wait])
    with pytest.raises(ConfigError, match="expected tools in `tools`, got function: use `@tool`"):
        house_of(tmp_path, tools=[plain])  # type: ignore[list-item]

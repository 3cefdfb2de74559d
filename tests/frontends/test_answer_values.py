"""What a verb prints as JSON and what a route answers is a Struct, of which each member has a type.

A plain dict has no type from which OpenAPI, the API's client and the docs could follow.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from skillhouse import answers
from skillhouse.answers.json_form import CORE_VALUES, JsonAnswer, ListAnswer
from skillhouse.extensions.server.api.route_table import EVENT_STREAM, Endpoint
from skillhouse.extensions.server.api.routes import ENDPOINTS
from skillhouse.frontends.cli.terminal import Terminal
from tests.frontends.conftest import Run
from tests.frontends.test_cli_json import LISTS, REFUSED, THINGS, settled, words_of

__all__ = ["settled"]

OPEN = {
    "ApprovalAnswer.content": "of any tool",
    "ConfigKeyAnswer.value": "what the key's own type has",
    "DraftAnswer.fields": "what a skill's frontmatter has",
    "JobAnswer.result": "of the kind of job: its routes say which there are",
    "ResultAnswer.data": "of any tool",
    "ShownSkillAnswer.frontmatter": "what a skill's frontmatter has",
    "ToolAnswer.parameters": "a JSON Schema",
}
"""Members that may hold anything, and what it is."""


def faults(value: object) -> Iterator[str]:
    """Yield what is no answer, or an item of a list that is none."""
    if not isinstance(value, JsonAnswer) and type(value).__name__ not in CORE_VALUES:
        yield type(value).__name__
    elif isinstance(value, ListAnswer):
        for one in value.items:
            if not isinstance(one, str):
                yield from faults(one)


@pytest.mark.slow
def test_what_a_verb_prints_is_an_answer(
    run: Run, settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: dict[str, list[str]] = {}
    printed = Terminal.json
    line, count = "", 0

    def json(terminal: Terminal, value: msgspec.Struct) -> None:
        nonlocal count
        count += 1
        if found := list(faults(value)):
            wrong[line] = found
        printed(terminal, value)

    monkeypatch.setattr(Terminal, "json", json)
    lines = (*LISTS, *THINGS, *REFUSED)
    for line in lines:
        run(*words_of(line, settled), "--json")
    assert wrong == {}
    assert count == len(lines)


@pytest.mark.parametrize("value", [{"a": 1}, ListAnswer(name="a", items=[{}], total=1, more=None)])  # type: ignore[list-item]
def test_a_plain_object_is_none(value: object) -> None:
    assert list(faults(value)) == ["dict"]


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: one.name)
def test_what_a_route_answers_is_an_answer(one: Endpoint) -> None:
    # The type checker compares it with what the function returns.
    said = str(inspect.signature(one.run).return_annotation)
    is_stream = one.media == EVENT_STREAM
    known = r"Any" if is_stream else r"\w+Answer|RouteResponse|Profile"
    assert all(re.fullmatch(known, kind) for kind in said.split(" | ")), said


def every_answer(kind: type[JsonAnswer] = JsonAnswer) -> Iterator[type[JsonAnswer]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("skillhouse"):
            yield one
        yield from every_answer(one)


def test_each_member_has_a_type() -> None:
    # A class that no other test of this process has loaded counts as well.
    for module in pkgutil.iter_modules(answers.__path__, f"{answers.__name__}."):
        importlib.import_module(module.name)
    found = {
        f"{kind.__name__}.{name}"
        for kind in every_answer()
        for name in kind.__annotations__
        if re.search(r"\b(Any|object)\b", str(kind.__annotations__[name]))
    }
    assert found == set(OPEN)

"""Houses with more tools of skills than a request has room for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillhouse.house import Skillhouse
from skillhouse.tools import ToolResult
from tests.house.coded import coded_house, tool, write_code

ADD = "tools = {'add': lambda params, context: params['a'] + params['b']}\n"
NUMBERS: Mapping[str, Any] = {
    "type": "object",
    "required": ["a", "b"],
    "additionalProperties": False,
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
}


def write_kinds(root: Path, count: int) -> Path:
    """Write skills with one tool each, `kind-0:add` and so on, and return their root."""
    for number in range(count):
        adding = {
            **tool("add", parameters=NUMBERS),
            "description": f"Adds numbers of kind {number}",
        }
        directory = write_code(root / f"kind-{number}", ADD, adding)
        manifest = directory / "pyproject.toml"
        text = manifest.read_text().replace("Does things.", f"Adds numbers of kind {number}")
        manifest.write_text(text)
    return root


def kinds_house(
    base: Path, *rules: tuple[str, str, str], count: int = 6, **more: Any
) -> Skillhouse:
    """Return a house with such skills, whose tools have no room unless `more` says so."""
    more.setdefault("tool_count", 20)
    return coded_house(base, write_kinds(base / "kinds", count), *rules, **more)


def inside(house: Skillhouse, name: str, arguments: Any = None, **fields: Any) -> ToolResult:
    """Return what comes of a call of `call_skill_tool`."""
    given = {"name": name, "arguments": {} if arguments is None else arguments}
    return house.call_sync("call_skill_tool", given, **fields)

"""The table of attacks is whole: every item once, every test there."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TABLE: list[dict[str, Any]] = tomllib.loads((HERE / "table.toml").read_text())["attack"]
ITEMS = [*range(1, 89)]
"""Of reference/security.md, section 6."""


@cache
def functions_of(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


def test_every_item_stands_in_the_table_once() -> None:
    assert len(ITEMS) == 88
    assert [row["item"] for row in TABLE] == ITEMS


@pytest.mark.parametrize("row", TABLE, ids=lambda row: str(row["item"]))
def test_every_test_of_the_table_exists(row: dict[str, Any]) -> None:
    assert row["what"]
    assert row.get("tests") or row.get("why"), "a test, or the reason why there is none"
    assert set(row) <= {"item", "what", "tests", "why"}
    for name in row.get("tests", ()):
        place, function = name.split("::")
        room, _, file = place.rpartition("/")
        path = HERE.parent / room / f"test_{file}.py"
        assert f"test_{function}" in functions_of(path), name

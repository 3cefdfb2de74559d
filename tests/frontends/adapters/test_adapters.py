"""What holds for every adapter: its size, its extra, and that it loads its own framework only."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest
from tests.harness import ran

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "src/skillhouse/frontends/adapters"
LINES_MAX = 120
"""Each adapter has fewer lines."""

EXTRAS = {
    "agent_framework": {"agent_framework"},
    "anthropic": set(),
    "claude_agent": {"claude_agent_sdk"},
    "crewai": {"crewai", "pydantic"},
    "google_adk": {"google"},
    "langchain": {"langchain", "langchain_core", "langgraph", "pydantic"},
    "openai": set(),
    "openai_agents": {"agents"},
    "pydantic_ai": {"pydantic_ai", "pydantic_core"},
}
"""By adapter, what it imports besides the standard library and the house."""
PARTS = {
    "claude_agent_tools": {"claude_agent_sdk"},
    "agent_framework_approvals": {"agent_framework"},
    "langchain_retention": {"langchain", "langchain_core", "langgraph"},
    "pydantic_ai_retention": {"pydantic_ai"},
}
"""Likewise, of the files that belong to one adapter."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_adapter_is_small_and_imports_its_framework_only() -> None:
    files = {path.stem: path for path in FOLDER.glob("*.py")}
    assert files.keys() - {"__init__", "framework_bridge"} == EXTRAS.keys() | PARTS.keys()
    for name, imported in {**EXTRAS, **PARTS}.items():
        text = files[name].read_text(encoding="utf-8")
        assert len(text.splitlines()) < LINES_MAX
        tops = {
            top.partition(".")[0] for node in ast.walk(ast.parse(text)) for top in _imported(node)
        }
        assert tops - sys.stdlib_module_names - {"skillhouse"} == imported


def test_every_adapter_has_an_extra_with_lower_bounds_that_is_in_no_other() -> None:
    extras = PROJECT["optional-dependencies"]
    for name in EXTRAS:
        wanted = extras[name.replace("_", "-")]
        assert all(">=" in one and ",<" in one for one in wanted)
        assert not set(wanted) & set(extras["all"])


@pytest.mark.parametrize("name", sorted(name for name in EXTRAS if EXTRAS[name]))
def test_a_missing_framework_is_an_error_that_names_the_extra(name: str) -> None:
    gone = "".join(f"sys.modules[{top!r}] = None; " for top in sorted(EXTRAS[name]))
    code = (
        f"import sys; {gone}\n"
        "from skillhouse.floor import MissingExtraError\n"
        f"try: import skillhouse.frontends.adapters.{name}\n"
        "except MissingExtraError as error: print(error.extra)"
    )
    done = ran([sys.executable, "-c", code], check=True)
    assert done.stdout.strip() == name.replace("_", "-")


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []

"""Manifests of skills' code as `list`, `tools list`, `validate` and `call` show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.conftest import Run
from tests.runtime.coded import ROOTS, best_sandbox
from tests.skill.test_manifest import PUBLISHED, TOOL, package, skill_at


@pytest.fixture
def enabled(place: Path) -> Path:
    """A place whose user turned skills' code on."""
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[skill_code]\nenabled = true\n")
    return place


def code_of(run: Run, root: Path) -> dict[str, dict[str, Any]]:
    """Return what `list` says of the skills with code, by name."""
    code, out, _ = run("list", "--json", "--root", str(root))
    assert code == 0
    return {found["name"]: found for found in json.loads(out)["code"]}


@pytest.mark.req("S002-24", "S002-25", "S002-28", "S002-29", "S002-30", "S002-35")
def test_the_published_manifest_is_listed_with_its_tool(run: Run, enabled: Path) -> None:
    root = enabled / "skills"
    skill_at(root / "balance", PUBLISHED)
    assert sorted(path.name for path in (root / "balance").iterdir()) == [
        "index.js",
        "package.json",
    ]
    found = code_of(run, root)["crypto-balance"]
    found.pop("directory")
    assert found == {
        "name": "crypto-balance",
        "scope": "explicit",
        "enabled": True,
        "problems": found["problems"],
        "version": "0.1.0",
        "description": "Query token balances across multiple chains",
        "author": "zhixian",
        "license": "MIT",
        "language": "javascript",
        "entry": "index.js",
        "tools": [
            {
                "name": "get_balance",
                "full_name": "crypto-balance:get_balance",
                "level": "read",
                "description": "Get native or token balance for an address",
            }
        ],
        "env": {"ALCHEMY_API_KEY": "not named below [skill_code] env"},
        "dependencies": ["viem@^2.0.0"],
        "lock": None,
    }
    assert "error" not in {problem["severity"] for problem in found["problems"]}
    _, out, _ = run("tools", "list", "--json", "--root", str(root))
    (tool,) = [each for each in json.loads(out)["tools"] if each["skill"]]
    assert tool["parameters"] == {
        "type": "object",
        "properties": {"address": {"type": "string", "description": "Wallet address (0x...)"}},
        "required": ["address"],
    }


@pytest.mark.slow
@pytest.mark.req("S002-26", "S002-29", "S002-33", "S002-34", "S002-36")
def test_a_manifest_that_cannot_be_used_costs_its_own_tools_and_says_why(
    run: Run, enabled: Path
) -> None:
    root = enabled / "skills"
    manifests = {
        "good": package(name="good", own={"tools": [{**TOOL, "timeout": 120_000}]}),
        "main": package(name="main", main="lib/start.js"),
        "level": package(name="level", own={"tools": [{**TOOL, "security": {"level": "admin"}}]}),
        "twice": package(name="twice", own={"tools": [TOOL, TOOL]}),
        "time": package(name="time", own={"tools": [{**TOOL, "timeout": 0}]}),
        "typed": package(name="typed", main="src/index.ts"),
    }
    for name, text in manifests.items():
        entry = json.loads(text).get("main", "index.js")
        skill_at(root / name, text, entry=entry)
    found = code_of(run, root)
    assert {name: each.get("entry") for name, each in found.items()} == {
        **dict.fromkeys(("level", "twice", "time", "typed")),
        "good": "index.js",
        "main": "lib/start.js",
    }
    assert {
        name: [problem["code"] for problem in each["problems"]] for name, each in found.items()
    } == {
        "good": [],
        "main": [],
        "level": ["tool-level"],
        "twice": ["tool-twice"],
        "time": ["tool-timeout"],
        "typed": ["entry-typescript"],
    }
    _, out, _ = run("tools", "list", "--json", "--root", str(root))
    tools = {each["full_name"] for each in json.loads(out)["tools"] if each["skill"]}
    assert tools == {"good:look", "main:look"}
    code, out, err = run("validate", str(root))
    assert code == 1
    for part in ("got 'admin'", "declared twice", "compile it (`npx tsc src/index.ts`)"):
        assert part in out + err


@pytest.mark.slow
@pytest.mark.req("S002-118")
def test_the_dex_swap_example_runs_with_its_own_module(
    run: Run, enabled: Path, need: Callable[[object, str], None], node: None
) -> None:
    best_sandbox(need)
    root = ROOTS["javascript"]
    found = code_of(run, root)["dex-swap"]
    assert found["problems"] == []
    tools = [(tool["full_name"], tool["level"]) for tool in found["tools"]]
    assert tools == [("dex-swap:quote", "read"), ("dex-swap:swap", "sign")]
    given = {"from": "0x" + "a" * 40, "to": "0x" + "b" * 40, "amount": "9" * 78}
    code, _, err = run("call", "dex-swap__quote", "--root", str(root), "--args", json.dumps(given))
    # lib/uniswap.js checks the number before anything is fetched.
    assert (code, f"no 256-bit number: {'9' * 78}" in err) == (1, True), err

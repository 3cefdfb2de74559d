"""The MCP inspector's command line, which checks what it gets, against `skillhouse mcp`.

Its version is the newest that npm had when the lock beside it was written; it needs Node 22.19.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ran
from tests.house.coded import best_sandbox, write_code
from tests.house.places import make_places
from tests.interop import npx_skills
from tests.own_environments import ROOT, own_npm_of

MAKES = "SKILLHOUSE_INSPECTOR"
MISSING = f"no environment for the MCP inspector: {MAKES}=1 makes one, with npm and a network"
LAUNCHER = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SECONDS = 120
CHART = """
    def tool(params, context):
        (context.output / "chart.txt").write_text("hello")
        return {"drawn": params.get("text", "")}

    tools = {"tool": tool}
"""

Inspect = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


@pytest.fixture
def inspect(tmp_path: Path) -> Inspect:
    """Run the inspector, which starts a server for each request; give code, stdout and stderr."""
    modules = own_npm_of(Path(__file__).with_name("inspector"), makes=MAKES)
    node = npx_skills.node(MAKES)
    if modules is None or node is None:
        pytest.skip(MISSING)
    places = make_places(tmp_path)
    write_code(tmp_path / "skills/kite", CHART)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(f'roots = ["{tmp_path}/skills"]\n[skill_code]\nenabled = true\n')

    def inspected(era: str, method: str, *options: str) -> tuple[int, str, str]:
        server = ("env", f"PYTHONPATH={ROOT / 'src'}", sys.executable, "-m", "skillhouse", "mcp")
        line = [node, str(modules / LAUNCHER), "--cli", "--protocol-era", era, *server]
        done = ran(
            [*line, "--method", method, *options],
            cwd=places.start,
            env={"PATH": os.environ["PATH"], "HOME": str(places.home)},
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout, done.stderr

    return inspected


def answered(found: tuple[int, str, str]) -> Mapping[str, Any]:
    code, out, err = found
    assert code == 0, out + err
    answer: Mapping[str, Any] = json.loads(out)
    return answer


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_nothing_wrong_with_what_is_listed(inspect: Inspect, era: str) -> None:
    listed = answered(inspect(era, "tools/list", "--strict"))
    assert {"skill", "exec", "kite__tool"} <= {tool["name"] for tool in listed["tools"]}
    assert answered(inspect(era, "resources/list"))["resources"]
    assert answered(inspect(era, "resources/templates/list"))["resourceTemplates"]
    assert answered(inspect(era, "prompts/list"))["prompts"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_it_calls_a_tool_and_reads_the_file_of_its_link(
    inspect: Inspect, need: Any, era: str
) -> None:
    best_sandbox(need)
    words = ("--tool-name", "kite__tool", "--tool-arg", "text=red")
    text, link = answered(inspect(era, "tools/call", *words))["content"]
    assert json.loads(text["text"]) == {"drawn": "red"}
    assert (link["type"], link["name"], link["size"]) == ("resource_link", "chart.txt", 5)
    # Another process of the same user, since each request of the inspector starts one.
    [read] = answered(inspect(era, "resources/read", "--uri", link["uri"]))["contents"]
    assert (read["text"], read["mimeType"]) == ("hello", "text/plain")


def test_its_checks_of_skills_over_mcp_pass(inspect: Inspect) -> None:
    code, out, err = inspect("modern", "skills/list", "--verify", "--require-digests")
    assert code == 0, out + err
    reports = [json.loads(line) for line in out.splitlines()]
    assert len(reports) >= 3
    assert {one["outcome"] for one in reports} == {"verified"}
    assert not any(one["conformance"] or one["frontmatter"] for one in reports)

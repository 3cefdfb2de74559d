"""Real coding agents whose commands run in our sandbox, offline.

As `test_hooks.py`; `python -m tests.interop.agents.boxed` runs one scene by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ran
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.hooked_scenes import OWN_TOOLS

AGENTS = os.environ.get("SKILLHOUSE_TEST_AGENTS", "").partition(os.pathsep)[0]
NAMES = list(OWN_TOOLS)

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not AGENTS, reason="SKILLHOUSE_TEST_AGENTS names no folder of clients"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: clients run offline"),
]


def seen(name: str, scene: str) -> dict[str, Any]:
    """Run a scene, and return what is left of it."""
    program = next(client.words[0] for client in CLIENTS if client.name == name)
    if not Path(AGENTS, program).exists():
        pytest.skip(f"no {name} in {AGENTS}")
    words = ["--agents", AGENTS, "--only", name, "--scenes", scene]
    done = ran([sys.executable, "-m", "tests.interop.agents.boxed", *words])
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    found["statuses"] = [one["status"] for one in found["records"]]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_allowed_runs_in_the_sandbox_and_goes_on_where_it_ended(name: str) -> None:
    found = seen(name, "plain")
    assert {"made", "sub"} < set(found["files"])
    # Claude Code alone goes on where a shell ended.
    assert ("sub/below" if name == "claude-code" else "below") in found["files"]
    assert "65534" in found["results"][1]
    assert found["statuses"] == ["ok"] * 5


@pytest.mark.parametrize("name", NAMES)
def test_a_write_outside_and_a_connection_fail(name: str) -> None:
    found = seen(name, "outside")
    assert found["outside"] is False
    assert "Read-only file system" in found["results"][0]
    assert "reached" not in found["results"][1].splitlines()


def test_without_the_sandbox_they_succeed() -> None:
    found = seen("claude-code", "without")
    assert (found["outside"], found["results"][1]) == (True, "reached")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_approved_runs_in_the_sandbox_too(name: str) -> None:
    found = seen(name, "asked")
    assert "ask the user to approve" in found["results"][0]
    assert "65534" in found["results"][1]


def test_claude_code_goes_on_where_a_line_ended_that_only_a_shell_could_run() -> None:
    assert {"sub/in", "sub/below"} < set(seen("claude-code", "moves")["files"])


@pytest.mark.parametrize("name", NAMES)
def test_no_key_of_the_client_comes_in(name: str) -> None:
    found = seen(name, "keys")
    assert "LANG=" in found["results"][0]
    assert "_KEY" not in found["results"][0]


def test_the_own_sandbox_of_claude_code_lets_the_runner_out() -> None:
    assert "65534" in seen("claude-code", "own-sandbox")["results"][1]


def test_the_own_rules_of_claude_code_hold() -> None:
    found = seen("claude-code", "own-rules")
    assert "has been denied" in found["results"][0]
    assert "made" in found["files"]
    assert "denied" not in found["files"]


def test_two_megabytes_come_whole() -> None:
    assert "Output too large (1.9MB)" in seen("claude-code", "big")["results"][0]


def test_a_background_command_is_recorded_at_its_end() -> None:
    found = seen("claude-code", "background")
    assert found["statuses"][0] == "ok"

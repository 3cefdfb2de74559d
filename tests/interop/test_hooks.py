"""Real coding agents whose own tools our rules decide about, offline (issue 38).

Needs the clients, which npm installs (README.md, "Real coding agents"): the first folder of
SKILLHOUSE_TEST_AGENTS is used. `python -m tests.interop.agents.hooked` runs one scene by hand.
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

AGENTS = os.environ.get("SKILLHOUSE_TEST_AGENTS", "").partition(os.pathsep)[0]
NAMES = [client.name for client in CLIENTS]

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
    done = ran([sys.executable, "-m", "tests.interop.agents.hooked", *words])
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    found["files"] = [one for one in found["files"] if one != "opencode.json"]
    found["statuses"] = [one["status"] for one in found["records"]]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_rules_allow_runs_and_what_they_deny_does_not(name: str) -> None:
    found = seen(name, "decisions")
    assert found["files"] == ["made"]
    assert found["statuses"] == ["ok", "denied"]
    assert "owls forbid it" in found["results"][1]
    assert found["status"] == "installed"


@pytest.mark.parametrize("name", [one for one in NAMES if one != "claude-code"])
def test_the_repeat_of_a_call_goes_through_after_a_yes(name: str) -> None:
    found = seen(name, "repeat")
    assert found["files"] == ["asked"]
    assert found["statuses"] == ["pending", "ok"]
    assert "ask the user to approve" in found["results"][0]


def test_where_the_client_asks_itself_no_one_to_ask_is_a_refusal() -> None:
    found = seen("claude-code", "ask")
    assert found["files"] == []
    # It has no event for a refusal: the call ends as `not run` when the turn does.
    assert found["statuses"] == ["denied"]
    assert "touch asked*" in found["results"][0]


@pytest.mark.parametrize("name", NAMES)
def test_watch_lets_everything_through_and_records_it(name: str) -> None:
    found = seen(name, "watch")
    assert found["files"] == ["forbidden"]
    assert found["statuses"] == ["ok"]


@pytest.mark.parametrize("name", NAMES)
def test_after_a_stop_a_call_is_refused(name: str) -> None:
    found = seen(name, "stop")
    assert found["files"] == []
    assert found["statuses"] == ["emergency-stopped"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_program_refuses_and_status_says_so(name: str) -> None:
    found = seen(name, "no-program")
    assert found["files"] == []
    assert found["status"] == "changed"


@pytest.mark.parametrize("name", NAMES)
def test_without_an_entry_nothing_is_guarded_and_status_says_so(name: str) -> None:
    found = seen(name, "no-entry")
    assert found["files"] == ["made"]
    assert (found["statuses"], found["status"]) == ([], "missing")


@pytest.mark.parametrize("name", NAMES)
def test_without_a_judge_each_hook_judges_itself(name: str) -> None:
    found = seen(name, "no-judge")
    assert found["files"] == ["made"]
    assert found["statuses"] == ["ok", "denied"]


def test_a_background_command_is_recorded_at_its_start() -> None:
    assert seen("claude-code", "background")["statuses"] == ["ok"]


def test_an_untrusted_hook_of_codex_is_skipped_and_install_says_what_to_do() -> None:
    found = seen("codex", "untrusted")
    assert found["files"] == ["forbidden"]
    assert found["statuses"] == []

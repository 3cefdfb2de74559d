"""The end-to-end suites with `--state=postgresql`: part of them for each change, all of them each
night. Each runs in a process of its own, with a server of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extensions.postgres.state_servers import StatePool
from tests.frontends.mcp_peer import Peer
from tests.harness import Need, ran
from tests.person_answers import approve

from skillhouse.approval import ApprovalState
from skillhouse.approval.broker import ApprovalBroker
from skillhouse.extensions.postgres.state_server import file_mark
from skillhouse.store import STATE_FILE, serve_every_state

ROOT = Path(__file__).parents[3]
SECONDS = 1_800
# They start the suites with this option themselves.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.file_state,
    pytest.mark.one_server("servers"),
    pytest.mark.takes(SECONDS),
]

CHOSEN = """
    tests/approval/test_broker.py tests/approval/test_crash.py
    tests/tiers/test_tier_engine.py
    tests/tools/test_gate_approvals.py tests/tools/test_gate_tiers.py tests/tools/test_skill_code.py
    tests/frontends/test_mcp_opening.py
    tests/extensions/server/api/test_calls.py
    tests/extensions/server/pages/test_approval_pages.py
    tests/extensions/registry/test_cli_registry.py
    tests/extensions/channels/test_telegram_bot.py
"""
"""A file or more of each suite, for each change."""

WIDE = {
    "approval": "tests/approval tests/tiers tests/clients",
    "tools": "tests/tools",
    "house": """
        tests/house/test_trust.py tests/house/test_call_tasks.py tests/house/test_learned_choices.py
        tests/house/test_remotes.py tests/house/test_rule_suggestions.py
        tests/house/test_skill_code.py tests/house/test_config_reload.py
    """,
    "server": "tests/extensions/server",
    "registry": "tests/extensions/registry tests/registry",
    "channels": "tests/extensions/channels",
    "mcp": "tests/frontends/test_mcp*.py tests/frontends/test_cli_waiting.py",
}


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose name is short enough for the sockets of tests below it."""
    place = Path(tempfile.mkdtemp(prefix="skh-"))
    yield place
    shutil.rmtree(place, ignore_errors=True)


def suite(place: Path, files: str, *options: str) -> None:
    """Run files of tests with options, and see that some ran and none failed."""
    found = [str(file) for name in files.split() for file in sorted(ROOT.glob(name))]
    assert len(found) >= len(files.split())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = ran(
        [*command, "--state=postgresql", f"--basetemp={place / 't'}", *options, *found],
        cwd=ROOT,
        env=kept,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert re.search(r"\b[1-9]\d* passed", done.stdout)


def test_a_process_that_is_started_and_the_test_have_one_state(
    tmp_path: Path, postgres_server: str
) -> None:
    pool = StatePool(postgres_server)
    peer = Peer(tmp_path)
    state = peer.home / ".local/state/skillhouse"
    words = ("call", "write", "--args", '{"path": "a.txt", "content": "text"}', "--json")

    def called(*more: str) -> dict[str, str]:
        command = [sys.executable, "-m", "skillhouse", *words, *more]
        done = ran(command, env=peer.environment, cwd=peer.project)
        return dict(json.loads(done.stdout))

    with pool.every_state_served(tmp_path):
        asked = called()
        assert asked["status"] == "pending", asked
        approve(state, asked["approval_id"])
        assert called("--approval", asked["approval_id"])["status"] == "ok"
        assert ApprovalBroker(state).get(asked["approval_id"]).state is ApprovalState.USED
        # No file was a state meanwhile.
        assert file_mark(state / STATE_FILE)
        pool.forget_below(tmp_path)
    serve_every_state(None)


def test_a_part_of_each_suite_passes_on_a_server(short: Path, need: Need) -> None:
    suite(short, CHOSEN)


@pytest.mark.heavy
@pytest.mark.nightly
@pytest.mark.parametrize("name", WIDE)
def test_each_suite_passes_on_a_server(short: Path, name: str) -> None:
    suite(short, WIDE[name])

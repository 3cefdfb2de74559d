"""Coding agents do a day's work under the developer policy with at most three questions.

Needs the clients, which npm installs (README.md, "Real coding agents"): their folder of commands is
in SKILLHOUSE_TEST_AGENTS, whose first one is used. The questions and a transcript are in
docs/guides/approvals.md.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.harness import ran
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.day import QUESTIONS_MAX

AGENTS = os.environ.get("SKILLHOUSE_TEST_AGENTS", "").partition(os.pathsep)[0]
LEAST = 2
"""Clients (issue 15, Accept)."""


@pytest.mark.heavy
@pytest.mark.skipif(not AGENTS, reason="SKILLHOUSE_TEST_AGENTS names no folder of clients")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: clients run offline")
def test_agents_do_a_days_work_with_few_questions() -> None:
    found = [client for client in CLIENTS if Path(AGENTS, client.words[0]).exists()]
    assert len(found) >= LEAST, f"expected two clients in {AGENTS}"
    done = ran([sys.executable, "-m", "tests.interop.agents.day", "--agents", AGENTS])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("\nquestion: ") <= QUESTIONS_MAX * len(found)
    assert done.stdout.endswith(f"clients: {len(found)}, faults: 0\n")

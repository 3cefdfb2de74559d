"""Coding agents do real work with a skill, with all of our tools and with those about skills alone.

Needs the clients, which npm installs (README.md, "Real coding agents"): their folders of commands
are in SKILLHOUSE_TEST_AGENTS, separated as in PATH. docs/interop.md has what was seen.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.harness import ran
from tests.interop.agents.__main__ import WORK
from tests.interop.agents.clients import CLIENTS

AGENTS = os.environ.get("SKILLHOUSE_TEST_AGENTS", "")


@pytest.mark.heavy
@pytest.mark.skipif(not AGENTS, reason="SKILLHOUSE_TEST_AGENTS names no folder of clients")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: clients run offline")
def test_agents_do_real_work_with_a_skill() -> None:
    folders = [folder for folder in AGENTS.split(os.pathsep) if folder]
    names = [
        client.name
        for client in CLIENTS
        if all(Path(folder, client.words[0]).exists() for folder in folders)
    ]
    assert names, f"expected a client in {AGENTS}"
    given = [word for folder in folders for word in ("--agents", folder)]
    done = ran(
        [
            *(sys.executable, "-m", "tests.interop.agents", *given),
            *("--only", ",".join(names), "--scenes", "work", "--json"),
        ]
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout)
    assert {one["client"] for one in seen} == set(names)
    for one in seen:
        assert one["work"] == {
            subset: {name: [] for name in columns} for subset, columns in WORK.items()
        }

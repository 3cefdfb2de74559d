"""What the pages and the recording need: an installed wheel, on a machine as a newcomer has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.terminal import install

from tests.runtime.coded import best_sandbox

FOR_ALL = (Path("/etc/codex/skills"), Path("/etc/claude-code"), Path("/etc/skillhouse"))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the programs of an installed wheel are."""
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def newcomer(need: Callable[[object, str], None]) -> None:
    """Skip where commands cannot run, or a client has skills for all users: reports name those."""
    best_sandbox(need)
    common = [path for path in FOR_ALL if path.exists()]
    need(not common, f"clients have settings for all users of this machine: {common}")

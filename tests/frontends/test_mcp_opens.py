"""Tests of how often an asked call opens the state: each opening reads and checks the whole file's
schema, so it must not grow with the steps of a question."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.store import close_pooled
from tests.frontends.mcp_inside import ERAS, YES, Inside
from tests.frontends.mcp_inside import Person as Client
from tests.frontends.mcp_peer import has_sandbox
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

OPENS_MAX = 2
"""Openings of the state for one asked `exec`."""
EXEC = {"command": "touch made"}


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the databases that are opened, as they are opened."""
    seen: list[str] = []
    connect = sqlite3.connect

    def noted(path: str | Path, **options: Any) -> Any:
        seen.append(os.path.basename(path))
        return connect(path, **options)

    monkeypatch.setattr(sqlite3, "connect", noted)
    return seen


def of_state(opens: list[str], state: Path) -> int:
    """Return how often the state was opened; it is there, so a new name would be noticed."""
    assert state.is_file()
    return opens.count(state.name)


@pytest.mark.file_state
@pytest.mark.skipif(not has_sandbox(), reason="no command can be run here")
def test_an_asked_exec_opens_the_state_at_most_twice(tmp_path: Path, opens: list[str]) -> None:
    person = Person([Answer.ONCE])
    with house_at(tmp_path, person=person) as house:
        state = house.config.state_directory / "state.sqlite3"
        close_pooled(state)
        opens.clear()
        result = house.call_sync("exec", EXEC)
        assert (result.status, len(person.asked)) == ("ok", 1), result
        assert 1 <= of_state(opens, state) <= OPENS_MAX


@pytest.mark.file_state
@pytest.mark.skipif(not has_sandbox(), reason="no command can be run here")
@pytest.mark.parametrize("mode", ERAS)
async def test_an_exec_that_is_asked_over_mcp_opens_the_state_at_most_twice(
    tmp_path: Path, opens: list[str], mode: str
) -> None:
    inside = Inside(tmp_path)
    state = inside.house.config.state_directory / "state.sqlite3"
    person = Client(YES)
    async with inside.client(mode, person, inside.server()) as client:
        close_pooled(state)
        opens.clear()
        result = await client.call_tool("exec", EXEC)
        assert not result.is_error, result
        assert len(person.shown) == 1
    assert (inside.project / "made").exists()
    assert 1 <= of_state(opens, state) <= OPENS_MAX

"""Tests of heads of logs in a state on a server, read where no server of that state runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.frontends.conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.file_state]


def test_who_collects_logs_and_has_no_name_compares_them_with_the_state(
    place: Path, run: Run, state_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLHOUSE_STATE_URL", state_url)
    for name in ("core-a", "core-b"):
        monkeypatch.setenv("SKILLHOUSE_SERVER_NAME", name)
        monkeypatch.setenv("SKILLHOUSE_STATE_DIRECTORY", str(tmp_path / "logs" / name / "state"))
        assert run("call", "list", "--args", '{"path": "."}')[0] == 0
    monkeypatch.delenv("SKILLHOUSE_SERVER_NAME")
    monkeypatch.setenv("SKILLHOUSE_STATE_DIRECTORY", str(tmp_path / "collector"))
    code, out, _ = run("audit", "verify", "--all", str(tmp_path / "logs"), "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["is_compared"]) == (0, True, True)
    assert [(one["servers"], one["heads"] > 0) for one in found["logs"]] == [
        (["core-a"], True),
        (["core-b"], True),
    ]
    (tmp_path / "logs/core-b").rename(tmp_path / "away")
    code, out, _ = run("audit", "verify", "--all", str(tmp_path / "logs"))
    assert (code, "[log-missing]" in out) == (1, True)

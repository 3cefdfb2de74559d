"""Tests of questions whose process is killed before, or right after, they are answered."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import ApprovalState
from skillhouse.audit import read_records, verify_log
from skillhouse.house import Skillhouse, configured
from tests.approval.questions import said
from tests.house.places import make_places

pytestmark = pytest.mark.slow

WRITE = ("write", {"path": "a.txt", "content": "text"})

HOUSE = """
import os, sys, anyio
from pathlib import Path
from skillhouse.house import Locations, Skillhouse, configured

class Silent:
    async def ask(self, request):
        await anyio.sleep_forever()

base = Path(sys.argv[1])
places = Locations(
    start=base / "project", home=base / "home", environment=os.environ, managed_file=base / "m"
)
with Skillhouse(configured(places), channel=Silent()) as house:
    house.call_sync("write", {"path": "a.txt", "content": "text"})
"""


def environment(base: Path) -> dict[str, str]:
    found = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return {**found, "HOME": str(base / "home")}


def started(base: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", HOUSE, str(base)], env=environment(base))


def until(holds: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    """Wait for what another process writes; at most half a minute."""
    for _ in range(600):
        found = holds()
        if found:
            return found
        assert process.poll() is None
        time.sleep(0.05)
    pytest.fail("waited for too long")


def house_of(base: Path) -> Skillhouse:
    return Skillhouse(configured(make_places(base)))


def test_a_house_killed_between_question_and_answer_runs_the_call_once(tmp_path: Path) -> None:
    with house_of(tmp_path) as house:
        process = started(tmp_path)
        (opened,) = until(house.approvals.pending, process)
        process.kill()
        process.wait()
    file = tmp_path / "project/a.txt"
    with house_of(tmp_path) as answering:
        assert [found.id for found in answering.approvals.pending()] == [opened.id]
        said(answering.approvals, opened.id)
        assert not file.exists()
    with house_of(tmp_path) as again:
        assert again.call_sync(*WRITE).status == "ok"
        assert file.read_text() == "text"
        file.unlink()
        assert again.call_sync(*WRITE).status == "pending"
        assert again.call_sync(*WRITE, approval_id=opened.id).status == "denied"
        assert not file.exists()
        ran = [e for e in read_records(again.audit_log.path) if e.record.kind == "intent"]
        assert [entry.record.detail["approval"] for entry in ran] == [opened.id]
        assert verify_log(again.audit_log.path).problems == ()


def test_a_house_that_waits_takes_the_answer_of_another_process(tmp_path: Path) -> None:
    with house_of(tmp_path) as house:
        process = started(tmp_path)
        (opened,) = until(house.approvals.pending, process)
        said(house.approvals, opened.id)
        assert process.wait(timeout=20) == 0
        assert (tmp_path / "project/a.txt").read_text() == "text"
        assert house.approvals.get(opened.id).state is ApprovalState.USED


def test_a_house_killed_after_the_yes_was_used_does_not_use_it_again(tmp_path: Path) -> None:
    with house_of(tmp_path) as house:
        asked = house.call_sync(*WRITE)
        said(house.approvals, asked.approval_id or "")
    # What stands in the file when the process is killed between the use and the effect.
    script = HOUSE.replace(
        "    house.call_sync(",
        "    import os, signal\n"
        "    house.audit_log.write = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    house.call_sync(",
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=environment(tmp_path), check=False
    )
    assert killed.returncode == -9
    with house_of(tmp_path) as again:
        assert again.approvals.get(asked.approval_id or "").state is ApprovalState.USED
        assert again.call_sync(*WRITE).status == "pending"
        assert not (tmp_path / "project/a.txt").exists()

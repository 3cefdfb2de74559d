"""A test that hangs fails alone: `conftest.py` of the project, with one second as its limit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness import ran

HANGS = """
import asyncio, subprocess, threading, time
import pytest

def test_sleep(): time.sleep(60)

def test_event_loop(): asyncio.run(asyncio.sleep(60))

def test_callback_of_a_loop():
    async def work():
        asyncio.get_running_loop().call_soon(time.sleep, 60)
        await asyncio.sleep(0.01)
    asyncio.run(work())

def test_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_child(): subprocess.run(["sleep", "60"])

@pytest.fixture
def slow(): time.sleep(60)

def test_fixture(slow): pass

def test_next(): pass
"""


@pytest.mark.slow
def test_a_hanging_test_fails_alone(tmp_path):
    conftest = Path(__file__).resolve().parents[1] / "conftest.py"
    text = conftest.read_text(encoding="utf-8")
    assert "HANG_SECONDS = 240" in text
    (tmp_path / "conftest.py").write_text(text.replace("= 240", "= 1"), encoding="utf-8")
    (tmp_path / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = ran(command, cwd=tmp_path, timeout=60)
    assert "5 failed, 1 passed, 1 error" in done.stdout
    assert done.stdout.count("Captured stderr") == 6

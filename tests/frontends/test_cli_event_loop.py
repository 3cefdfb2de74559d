"""Ctrl-C while a verb waits."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
import sys
import anyio
from skillhouse.frontends.cli.event_loop import run_in_loop

async def work(is_stuck):
    try:
        await forever()
    finally:
        # What a cancelled call still does, such as the end of its processes.
        with anyio.CancelScope(shield=True):
            if is_stuck:
                await forever()

async def forever():
    print("waits", flush=True)
    await anyio.sleep_forever()

try:
    run_in_loop(work, sys.argv[1] == "stuck")
except KeyboardInterrupt:
    sys.exit(3)
"""


@pytest.mark.parametrize(("how", "times", "code"), [("clean", 1, 3), ("stuck", 2, 130)])
def test_the_first_ctrl_c_cancels_and_the_second_ends(how: str, times: int, code: int) -> None:
    process = subprocess.Popen((sys.executable, "-c", WAITS, how), stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(times):
        assert process.stdout.readline() == b"waits\n"
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == code

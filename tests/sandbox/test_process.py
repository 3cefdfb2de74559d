"""Tests of sandbox/process.py; attacks/test_stop_attacks.py kills a sandbox by it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from skillhouse.sandbox import kill_sandboxes


def test_nothing_is_killed_of_a_process_that_shows_no_file_or_has_no_sandbox(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert kill_sandboxes(os.getpid(), tmp_path) == 0
        with (tmp_path / f"{os.getpid()}-shown").open("w"):
            assert kill_sandboxes(os.getpid(), tmp_path) == 0
        assert child.poll() is None
        child.kill()

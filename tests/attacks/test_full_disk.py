"""What installs and updates leave on a disk that is full, a real one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.machines import OWN_MOUNTS

ROOT = Path(__file__).parents[2]
VERSIONS = {"install": {"", "2"}, "update": {"1", "2"}, "uninstall": {"", "1"}}
"""What may be in force afterwards."""


@pytest.mark.heavy
@pytest.mark.req("S002-108")
def test_on_a_full_disk_there_is_one_whole_version_and_a_clear_error(
    tmp_path: Path, need: Callable[[object, str], None]
) -> None:
    need(shutil.which("unshare"), "no unshare")
    (tmp_path / "project").mkdir()
    done = subprocess.run(
        (*OWN_MOUNTS, sys.executable, "-m", "tests.attacks.full_disk", str(tmp_path)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    need("permitted" not in done.stderr, "no mounts in a namespace of one's own")
    assert done.returncode == 0, done.stderr[-3_000:]
    tries = [json.loads(line) for line in done.stdout.splitlines()]
    for act, versions in VERSIONS.items():
        found = [one for one in tries if one["act"] == act]
        assert {one["code"] == 0 for one in found} == {True, False}, act
        for one in found:
            assert one["after"] in versions, one
            assert one["locked"] in versions, one
            if one["code"]:
                assert "no space left on device" in one["said"].lower(), one
            # With room again, everything goes on, and nothing is left of what did not.
            assert [code for code, _ in one["again"]] == [0, 0], one
            assert (one["end"], one["left"]) == ("2", ["skills"]), one

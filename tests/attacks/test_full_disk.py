"""What installs, publications and mirrors leave on a disk that is full, a real one."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Need, ran
from tests.machines import OWN_MOUNTS

ROOT = Path(__file__).parents[2]
VERSIONS = {"install": {"", "2"}, "update": {"1", "2"}, "uninstall": {"", "1"}}
"""What may be in force afterwards."""


def tries(what: str, place: Path, need: Need) -> list[dict[str, Any]]:
    """Return what came of commands on a small disk, with more and more room."""
    need(shutil.which("unshare"), "no unshare")
    (place / "project").mkdir()
    done = ran(
        (*OWN_MOUNTS, sys.executable, "-m", "tests.attacks.full_disk", what, str(place)), cwd=ROOT
    )
    need("permitted" not in done.stderr, "no mounts in a namespace of one's own")
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-3_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.heavy
@pytest.mark.req("S002-108")
def test_on_a_full_disk_there_is_one_whole_version_and_a_clear_error(
    tmp_path: Path, need: Need
) -> None:
    every = tries("installs", tmp_path, need)
    for act, versions in VERSIONS.items():
        found = [one for one in every if one["act"] == act]
        assert {one["code"] == 0 for one in found} == {True, False}, act
        for one in found:
            assert one["after"] in versions, one
            assert one["locked"] in versions, one
            if one["code"]:
                assert "no space left on device" in one["said"].lower(), one
            # With room again, everything goes on, and nothing is left of what did not.
            assert [code for code, _ in one["again"]] == [0, 0], one
            assert (one["end"], one["left"]) == ("2", ["skills"]), one


@pytest.mark.heavy
def test_a_registry_on_a_full_disk_has_a_version_whole_or_not_at_all(
    tmp_path: Path, need: Need
) -> None:
    found = tries("registry", tmp_path, need)
    assert {one["status"] for one in found} >= {201, 507}
    for one in found:
        if one["status"] == 201:
            assert (one["before"], one["again"]) == (["1.0", "2.0"], 409), one
        else:
            assert (one["status"], one["again"]) == (507, 201), one
            assert one["before"] == ["1.0"], one
            assert "no space left" in one["said"], one
        assert one["after"] == ["1.0", "2.0"], one


@pytest.mark.heavy
@pytest.mark.parametrize("what", ["publish", "mirror"])
def test_a_publisher_and_a_mirror_go_on_once_there_is_room(
    tmp_path: Path, need: Need, what: str
) -> None:
    found = tries(what, tmp_path, need)
    assert {one["code"] == 0 for one in found} == {True, False}
    for one in found:
        if one["code"]:
            assert "no space left on device" in one["said"].lower(), one
        assert one["again"][0] == 0, one

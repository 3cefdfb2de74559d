"""Kills commands that install, update and remove at random moments."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from skillhouse.house import Config, Skillhouse, load_config
from skillhouse.install import Installer
from skillhouse.registry import directory_members, read_lock
from tests.house.places import make_places
from tests.registry.sources import commit, make_repository, make_skill

AGREED = ("--yes", "--allow-unsigned")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("seed", "kills"), [(19, 60), pytest.param(20, 240, marks=pytest.mark.nightly)]
)
def test_killed_again_and_again_there_is_always_one_whole_version(
    tmp_path: Path, seed: int, kills: int
) -> None:
    places = make_places(tmp_path)
    origin = make_repository(make_skill(tmp_path / "origin/notes").parent)
    source = f"git+{origin.as_uri()}"
    acts = [
        ("install", source, *AGREED),
        ("update", *AGREED),
        ("rollback", "notes", *AGREED),
        ("uninstall", "notes"),
    ]
    chance = random.Random(seed)
    longest = 1.5
    known: set[str] = {directory_members(origin / "notes")[0].digest}
    seen: dict[str, int] = {}
    for number in range(kills):
        if number % 5 == 0:
            make_skill(origin / "notes", f"Body {number}.")
            commit(origin)
            known.add(directory_members(origin / "notes")[0].digest)
        act = chance.choice(acts)
        environment = {"PATH": os.environ["PATH"], "HOME": str(places.home)}
        process = subprocess.Popen(
            [sys.executable, "-m", "skillhouse", *act],
            cwd=places.start,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            # Most of the time goes to loading the program.
            process.wait(chance.uniform(0.1, 1) * longest)
            ended = "ended"
            # A fast machine, or a short act: half of the kills are to come before the end.
            longest = max(0.1, longest * 0.9)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = "killed"
            longest = min(5.0, longest * 1.1)
        seen[f"{act[0]} {ended}"] = seen.get(f"{act[0]} {ended}", 0) + 1
        check(places.home, known, load_config(places))
    print(seen)
    assert sum(count for what, count in seen.items() if what.endswith("killed")) > kills // 10


def check(home: Path, known: set[str], config: Config) -> None:
    """There is no skill, or one that is whole, and the lock has just that one."""
    lock = home / ".config/skillhouse/skills.lock"
    with Skillhouse(config) as house, Installer(house) as installer:
        found = list(installer.installed.entries())
        for place, name, entry in found:
            assert installer.installed.state(name, entry, place).is_well
            assert entry.tree_digest in known
    names = [one.name for one in (home / ".agents/skills").glob("*")]
    assert names == sorted(read_lock(lock).skills)
    assert names in ([], ["notes"])

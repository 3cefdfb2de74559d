"""Repositories and their linked worktrees, made by git, with a skill in each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from skillhouse.house import Locations, Skillhouse, TrustStore, configured
from tests.house.places import write_skill

SKILLS = ".agents/skills"


def git(place: Path, *words: str) -> None:
    names = ("user.name=A", "user.email=a@b.test", "init.defaultBranch=main")
    options = [part for name in names for part in ("-c", name)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *options, *words], cwd=place, env=environment, check=True, timeout=60)


def repository_at(place: Path, *names: str) -> Path:
    """Make a repository with a commit that has a skill of each name; `pdf` without any."""
    place.mkdir(parents=True)
    for name in names or ("pdf",):
        write_skill(place / SKILLS / name)
    git(place, "init", "--quiet")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "skills")
    return place


def worktree_of(repository: Path, place: Path) -> Path:
    """Make a linked worktree on a branch that is named after its directory."""
    git(repository, "worktree", "add", "--quiet", "-b", place.name, str(place))
    return place


def house_in(base: Path, place: Path, environment: Mapping[str, str] | None = None) -> Skillhouse:
    """Return a house that starts in `place`, for the person whose home is in `base`."""
    (base / "home").mkdir(exist_ok=True)
    places = Locations(
        start=place,
        home=base / "home",
        environment=environment or {},
        managed_file=base / "managed.toml",
    )
    return Skillhouse(configured(places))


def store_in(base: Path) -> TrustStore:
    """Return the trust of the person whose home is in `base`."""
    return TrustStore(base / "home/.local/state/skillhouse")


def trust(base: Path, place: Path) -> None:
    house_in(base, place).project_trust.trust()


def states(base: Path, place: Path) -> dict[str, str]:
    """Return the state of each skill of a place, or nothing where it is not trusted."""
    report = house_in(base, place).project_trust.report()
    return {one.skill.name: one.state for one in report.skills} if report.is_trusted else {}

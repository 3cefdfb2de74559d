"""Places made of temporary directories, for the tests of the house and the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from skillhouse.clients import known_clients
from skillhouse.house import Locations
from skillhouse.skill import DEFAULT_PROFILE, Profile, load_profile


def write_skill(directory: Path, description: str = "Does things.", body: str = "Body.\n") -> Path:
    """Write a valid skill named after its directory and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {directory.name}\ndescription: {description}\n---\n{body}"
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    return directory


_UNDER: list[str] = []


@contextmanager
def under(profile: str) -> Iterator[None]:
    """Have all places that are made meanwhile be of a profile; `@pytest.mark.under` does it."""
    _UNDER.append(profile)
    try:
        yield
    finally:
        _UNDER.pop()


def environment_under() -> dict[str, str]:
    """Return the variable that chooses the profile of the test; nothing where that is ours."""
    return {"SKILLHOUSE_PROFILE": _UNDER[-1]} if _UNDER else {}


def profile_under() -> Profile:
    """Return the profile of the test, ours where it names none."""
    return load_profile(_UNDER[-1]) if _UNDER else DEFAULT_PROFILE


def make_places(base: Path, environment: Mapping[str, str] | None = None) -> Locations:
    """Return places below `base`: a home, and a project that is a git repository."""
    home, project = base / "home", base / "project"
    home.mkdir(exist_ok=True)
    (project / ".git").mkdir(parents=True, exist_ok=True)
    return Locations(
        start=project,
        home=home,
        environment={**environment_under(), **(environment or {})},
        managed_file=base / "managed.toml",
    )


def readers_of(folder: str = "~/.agents/skills") -> str:
    """Return what is said of the clients that read a folder of a person: three, and how many."""
    found = [
        name
        for name, one in known_clients().items()
        if folder in (re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", path) for path in one.user)
    ]
    return f"{', '.join(found[:3])} and {len(found) - 3} more"

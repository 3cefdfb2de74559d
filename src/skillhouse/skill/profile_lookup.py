"""Finds a profile by its name; files are read only when one is needed."""

from __future__ import annotations

from pathlib import Path

import skillhouse.skill as skill_room
from skillhouse.floor import ConfigError, file_problem, nearest
from skillhouse.skill.profile import DEFAULT_PROFILE, Profile

SHIPPED_DIRECTORY = Path(__file__).with_name("profiles")
"""One TOML file a profile; its name is the profile's."""


def profile_names(own: Path | None = None) -> tuple[str, ...]:
    """Return the names of all profiles, sorted; `own` is the user's directory of profiles."""
    names = {file.stem for place in _places(own) for file in place.glob("*.toml")}
    return tuple(sorted(names))


def load_profile(profile: str | Profile, own: Path | None = None) -> Profile:
    """Return the profile of that name; a `Profile` is returned as it is.

    Args:
        own: The user's directory of profiles; a file there goes before a shipped one of its name.

    Raises:
        ConfigError: no profile has that name, or its file is broken; the message has the line.
    """
    if isinstance(profile, Profile):
        return profile
    for place in _places(own):
        if place == SHIPPED_DIRECTORY and profile == DEFAULT_PROFILE.name:
            # Its file holds the same values (a test compares them) and takes longer to read.
            return DEFAULT_PROFILE
        path = place / f"{profile}.toml"
        # INVARIANT: a name never leads out of these directories.
        if path.parent == place and (path.exists() or path.is_symlink()):
            # An installer may link the shipped ones to its cache.
            if place == own and (problem := file_problem(path)):
                raise ConfigError(f"the profile is not used: {problem}", path=path)
            return skill_room.read_profile(path)
    known = profile_names(own)
    close = nearest(profile, known)
    raise ConfigError(
        f"unknown profile `{profile}`", key=profile, suggestion=close[0] if close else ""
    )


def _places(own: Path | None) -> tuple[Path, ...]:
    return (SHIPPED_DIRECTORY,) if own is None else (own, SHIPPED_DIRECTORY)

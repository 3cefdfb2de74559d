"""Where a process works, and where its user's files are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

MANAGED_FILE = Path("/etc/skillhouse/config.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
    """Directories and environment of this process: everything that is not configuration."""

    start: Path
    """Where the agent works."""
    home: Path
    environment: Mapping[str, str]
    managed_file: Path = MANAGED_FILE

    @classmethod
    def here(cls) -> Self:
        """Return the locations of this process."""
        return cls(start=Path.cwd(), home=Path.home(), environment=os.environ)

    @property
    def user_file(self) -> Path:
        """The user's configuration."""
        return self.home / ".config/skillhouse/config.toml"

    @property
    def policy_file(self) -> Path:
        """The user's tier policy, as published; without one, calls have no tiers."""
        return self.user_file.parent / "policy.yml"

    @property
    def profiles(self) -> Path:
        """The user's own profiles, one file each."""
        return self.user_file.parent / "profiles"

    def cache(self) -> Path:
        """Return the directory of files that can be rebuilt (XDG base directories)."""
        return self._base("XDG_CACHE_HOME", ".cache")

    def state(self) -> Path:
        """Return the directory of files that must not be lost (XDG base directories)."""
        return self._base("XDG_STATE_HOME", ".local/state")

    def _base(self, variable: str, otherwise: str) -> Path:
        # The specification has relative paths ignored; one would be a folder of the project.
        base = Path(self.environment.get(variable, ""))
        return (base if base.is_absolute() else self.home / otherwise) / "skillhouse"

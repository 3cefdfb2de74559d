"""The table `[search]` of a configuration."""

from __future__ import annotations

import os
from typing import Literal

from skillhouse.floor import ConfigError, dataclass
from skillhouse.house.config.secret_places import is_place


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How search works; no project says so."""

    learn: bool = False
    """Whether skills that agents load after a search come earlier for similar requests."""
    encoder: Literal["auto", "none", "use", "granite", "use+granite"] = "auto"
    """Which encoders find skills by meaning; "auto" is those that are installed."""
    weights: str = ""
    """Absolute directory with the encoders' files; "" is the installed packages."""

    database: str = ""
    """Where the address of a PostgreSQL that has the index is, env:NAME or file:PATH; never itself,
    since it may hold a password. Empty keeps the index in files."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a database that is not named by its place, or a relative path."""
        if self.weights and not os.path.isabs(self.weights):
            message = f"expected an absolute directory in `weights`, got `{self.weights}`"
            raise ConfigError(message, key="weights")
        if self.database and not is_place(self.database):
            # What was written may hold a password, so it is not repeated.
            raise ConfigError("expected `file:PATH` or `env:NAME` in `database`", key="database")

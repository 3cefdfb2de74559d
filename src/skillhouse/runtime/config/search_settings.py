"""The table `[search]` of a configuration."""

from __future__ import annotations

import os
from typing import Literal

from skillhouse.floor import ConfigError, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How search works; no project says so."""

    learn: bool = False
    """Whether skills that agents load after a search come earlier for similar requests."""
    encoder: Literal["auto", "none", "use", "granite", "use+granite"] = "auto"
    """Which encoders find skills by meaning; "auto" is those that are installed."""
    weights: str = ""
    """Absolute directory with the encoders' files; "" is the installed packages."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a directory that is not absolute."""
        if self.weights and not os.path.isabs(self.weights):
            message = f"expected an absolute directory in `weights`, got `{self.weights}`"
            raise ConfigError(message, key="weights")

"""The table `[search]` of a configuration."""

from __future__ import annotations

from skillhouse.floor import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How search works; no project says so."""

    learn: bool = False
    """Whether skills that agents load after a search come earlier for similar requests."""

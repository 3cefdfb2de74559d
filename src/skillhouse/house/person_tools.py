"""The person's tools, as the configuration has commands see them, and what `doctor` says of it."""

from __future__ import annotations

import functools
from pathlib import Path

from msgspec import Struct

from skillhouse.house.config import Config
from skillhouse.sandbox import ProgramPlaces, ToolFinder, ToolSettings, compared_programs


def tool_finder(config: Config) -> ToolFinder:
    """Return what finds the person's tools for commands.

    It is the same one for the same settings: it keeps what it found as long as that holds.
    """
    places, settings = config.places, config.sandbox_limits
    return _kept_finder(
        frozenset(places.environment.items()),
        places.home,
        (config.cache_directory or places.cache()) / "tools",
        ToolSettings(path=tuple(settings.path or ()), mounts=tuple(settings.mounts or ())),
    )


@functools.lru_cache(maxsize=8)
def _kept_finder(
    environment: frozenset[tuple[str, str]], home: Path, caches: Path, settings: ToolSettings
) -> ToolFinder:
    return ToolFinder(dict(environment), home, caches, settings)


class ToolReport(Struct, frozen=True, kw_only=True):
    """Which programs commands find, and what they have not of the person's."""

    programs: tuple[ProgramPlaces, ...]
    path: str
    """The PATH of commands."""
    notes: tuple[str, ...]
    git_left_out: tuple[str, ...]
    """Keys of the person's settings of git that commands have not."""


def tool_report(config: Config) -> ToolReport:
    """Return what commands of this place find; nothing is run but git, to say its settings."""
    tools = tool_finder(config).places(Path(config.places.start).resolve())
    path = config.places.environment.get("PATH", "")
    return ToolReport(
        programs=compared_programs(tools, path),
        path=tools.search_path,
        notes=tools.notes,
        git_left_out=tools.git.left_out,
    )

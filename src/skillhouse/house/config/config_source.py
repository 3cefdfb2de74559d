"""Where a configuration was read from, so that a running process sees that it has changed."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor.structs import replace
from skillhouse.house.config.config_files import PROJECT_FILE, load_config, project_of
from skillhouse.house.config.config_values import ConfigSource
from skillhouse.house.trust import TrustStore

if TYPE_CHECKING:
    from skillhouse.floor import Locations
    from skillhouse.house.config.config_values import Config, Settings, Stamp

RECENT_NANOSECONDS = 50_000_000
"""A file that was written less than this before it was read may change again under one date: the
clock of a file system has steps of up to 10 ms."""
MISSING = "missing"
"""The first value of the stamp of a file that is not there."""
PROFILES_MAX = 64
"""Files of profiles that are looked at; more are seen by the date of their directory."""


def configured(places: Locations, flags: Settings | None = None) -> Config:
    """Return the configuration for `places`; a trusted project's file is included."""
    before = stamps(places)
    config = load_config(places, flags)
    trusted = is_trusted(config)
    if trusted:
        config = load_config(places, flags, project=project_of(places.start))
    source = ConfigSource(flags=flags, stamps=before, is_trusted=trusted, loaded=config)
    return replace(config, source=source)


def is_trusted(config: Config) -> bool:
    """Whether the project of the start directory is trusted."""
    return TrustStore(config.state_directory).is_trusted(project_of(config.places.start))


def stamps(places: Locations) -> Mapping[Path, Stamp]:
    """Return the stamp of each file that may decide; one written just now is taken as changing."""
    found = {path: stamp(path) for path in _files(places)}
    return {path: () if is_recent(known) else known for path, known in found.items()}


def stamp(path: Path) -> Stamp:
    """Return what changes when a file, its owner, its mode or what a link leads to is another."""
    target = ""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            target = os.readlink(path)
            info = os.stat(path)
    except FileNotFoundError:
        return (MISSING, target)
    except OSError as error:
        return ("unreadable", error.errno or 0)
    return (
        info.st_dev,
        info.st_ino,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_size,
        info.st_mode,
        info.st_uid,
        target,
    )


def is_recent(known: Stamp) -> bool:
    """Whether a file was written, or its mode changed, a moment ago."""
    changed = known[3] if len(known) > 3 else 0
    return isinstance(changed, int) and abs(time.time_ns() - changed) < RECENT_NANOSECONDS


def is_gone_or_empty(known: Stamp) -> bool:
    """Whether there is nothing in a file, as for a moment while an editor saves it."""
    return known[:1] == (MISSING,) or (len(known) > 4 and known[4] == 0)


def _files(places: Locations) -> Iterator[Path]:
    yield places.managed_file
    yield places.user_file
    # Whether the project is trusted or not: trust may come later.
    yield project_of(places.start) / PROJECT_FILE
    yield places.policy_file
    yield places.published_file
    yield places.profiles
    try:
        with os.scandir(places.profiles) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".toml"))
    except OSError:
        return
    for name in names[:PROFILES_MAX]:
        yield places.profiles / name

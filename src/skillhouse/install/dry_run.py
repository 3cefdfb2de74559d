"""The state of a dry run: a copy that goes with it.

What an install looks at, it also writes: locks, packages, metadata of registries, the log. A dry
run does all of that in the copy. Placing the files is left out by whoever asks.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from skillhouse.floor import make_private
from skillhouse.floor.structs import replace
from skillhouse.house.config import Config
from skillhouse.house.config.config_files import project_of
from skillhouse.house.config.state_settings import settle_state
from skillhouse.house.house import Skillhouse
from skillhouse.house.own_files import AUDIT_FILE, KEYSTORE_FILE
from skillhouse.install.installed_skills import install_places
from skillhouse.registry import KEYS_DIRECTORY
from skillhouse.store import STATE_FILE, forget_state

_LEFT_OUT = (AUDIT_FILE, "audit-", KEYSTORE_FILE, KEYS_DIRECTORY, "hooks", STATE_FILE)
"""How the names begin of what is not copied as it is: the log and keys, which no install reads, and
the state, whose parts fit each other only at one moment."""
_BUSY_SECONDS = 10.0
_PACKAGES = "packages"
"""Directories of archives that nothing changes: the copy has links to these."""


@contextmanager
def dry_run_config(house: Skillhouse) -> Iterator[Config]:
    """Give the configuration with a copy of the state, which is gone afterwards."""
    config = house.config
    with tempfile.TemporaryDirectory(prefix="skillhouse-dry-run-") as made:
        state = Path(made, "state")
        make_private(state)
        if config.state_directory.is_dir():
            _copy(config.state_directory, state)
            _copy_state(config.state_directory / STATE_FILE, state / STATE_FILE)
        settle_state(config.state, state, config.places.environment, is_dry=True)
        absent = [path for path in _places(house) if not path.exists()]
        try:
            yield replace(
                config,
                state_directory=state,
                audit_checkpoints=None,
                # Its log is no server's.
                server_name="",
            )
        finally:
            forget_state(state / STATE_FILE)
            for path in absent:
                # Where packages were staged; one in which something is was not made by this.
                with suppress(OSError):
                    path.rmdir()


def _places(house: Skillhouse) -> list[Path]:
    """Return the directories that skills are installed into, and those above, deepest first."""
    bases = (house.config.places.home, project_of(house.config.places.start))
    return [
        path
        for place in install_places(house).values()
        for path in (place.root, *place.root.parents)
        if any(path != base and path.is_relative_to(base) for base in bases)
    ]


def _copy_state(source: Path, target: Path) -> None:
    """Copy a state as it is at one moment; others may write it meanwhile."""
    if not source.is_file():
        return
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        address = f"{source.absolute().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as state,
            closing(sqlite3.connect(target)) as copy,
        ):
            state.backup(copy)
    except sqlite3.Error:
        # Whoever opens it says what is wrong with it, or reads it without its index.
        for suffix in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copy2(f"{source}{suffix}", f"{target}{suffix}")


def _copy(source: Path, target: Path) -> None:
    """Copy what is there; what another process takes away meanwhile is as if it had never been."""
    for entry in os.scandir(source):
        if not entry.name.startswith(_LEFT_OUT):
            with suppress(FileNotFoundError):
                _copy_entry(entry, target / entry.name)


def _copy_entry(entry: os.DirEntry[str], target: Path) -> None:
    info = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        target.mkdir(mode=0o700)
        if entry.name == _PACKAGES:
            for package in os.scandir(entry.path):
                os.symlink(package.path, target / package.name)
        else:
            _copy(Path(entry.path), target)
    elif stat.S_ISREG(info.st_mode):
        shutil.copy2(entry.path, target)

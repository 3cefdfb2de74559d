"""The state of a dry run: a copy that goes with it.

What an install looks at, it also writes: locks, packages, metadata of registries, the log. A dry
run does all of that in the copy. Placing the files is left out by whoever asks.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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

_LEFT_OUT = (AUDIT_FILE, "audit-", KEYSTORE_FILE, KEYS_DIRECTORY, "hooks", f"{STATE_FILE}-shm")
"""How the names begin of what no install reads: the log, keys, and what processes share."""
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


def _copy(source: Path, target: Path) -> None:
    for entry in os.scandir(source):
        info = entry.stat(follow_symlinks=False)
        if entry.name.startswith(_LEFT_OUT):
            continue
        if stat.S_ISDIR(info.st_mode):
            below = target / entry.name
            below.mkdir(mode=0o700)
            if entry.name == _PACKAGES:
                for package in os.scandir(entry.path):
                    os.symlink(package.path, below / package.name)
            else:
                _copy(Path(entry.path), below)
        elif stat.S_ISREG(info.st_mode):
            shutil.copy2(entry.path, target / entry.name)

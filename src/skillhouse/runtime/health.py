"""Whether a house can act and remember what it did, looked at without building it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillhouse.audit import Trouble, stuck
from skillhouse.audit.checkpoints import default_directory
from skillhouse.runtime.own_files import AUDIT_FILE, ConfiguredFiles

if TYPE_CHECKING:
    from skillhouse.runtime.config import Config


def audit_troubles(config: Config) -> tuple[Trouble, ...]:
    """Return what would stop the next record of this configuration's audit log."""
    path = config.state_directory / AUDIT_FILE
    return stuck(path, config.audit_checkpoints or default_directory(path))


def file_troubles(config: Config) -> tuple[Trouble, ...]:
    """Return which files that decide are not safe; a path below home begins with `~`."""
    home = str(config.places.home)
    return tuple(
        Trouble(code="own-file", message=f"`{path}`: {why}".replace(home, "~"))
        for path, why in ConfiguredFiles(config).problems()
    )

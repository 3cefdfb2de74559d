"""Whether a house can remember what it would do, looked at without building it."""

from __future__ import annotations

from skillhouse.audit import Trouble, stuck
from skillhouse.audit.checkpoints import default_directory
from skillhouse.runtime.config import Config
from skillhouse.runtime.safeguards import AUDIT_FILE


def audit_troubles(config: Config) -> tuple[Trouble, ...]:
    """Return what would stop the next record of this configuration's audit log."""
    path = config.state_directory / AUDIT_FILE
    return stuck(path, config.audit_checkpoints or default_directory(path))

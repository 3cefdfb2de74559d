"""Names of processes that are gone, as what a killed one left has them."""

from __future__ import annotations

from skillhouse.floor.crash_cleanup import owner_name


def gone_owner() -> str:
    """Return the name of a process of this boot and namespace whose number no process has."""
    _, *rest = owner_name().split(".")
    return ".".join(("fffffff", *rest))

"""What the user says about the workspace's memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Whether agents get `memory_search` and `memory_write`."""

    enabled: bool | None = None
    """None is as the profile has it."""

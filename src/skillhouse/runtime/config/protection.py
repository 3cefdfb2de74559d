"""What the operator says about protected paths."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionSettings:
    """Which protected paths a person is asked about instead of being refused."""

    asked: tuple[str, ...] = ()
    """Paths at any depth, such as `opencode.json`; `*` is within a name. Nothing of git's own
    directory, of secrets and of skillhouse itself can be named."""

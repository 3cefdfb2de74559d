"""A permission that a call needs, with what is known about it before any rule is asked."""

from __future__ import annotations

from dataclasses import dataclass

from skillhouse.permission import Effect, Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A permission that a call needs before it may run."""

    permission: Permission
    default: Effect
    """What holds when no rule speaks."""
    why: str
    """The reason for that default."""
    argv: tuple[str, ...] = ()
    """The words of a command, for binding a lasting yes."""
    skill_digest: str = ""
    """Tree digest of the skill that the permission is about."""

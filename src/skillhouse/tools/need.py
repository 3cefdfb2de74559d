"""A permission that a call needs, with what is known about it before any rule is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skillhouse.permission import Decision, Effect, Permission

if TYPE_CHECKING:
    from skillhouse.approval import Level

UNBOUND = "unbound"
"""The digest of a skill that has none: a yes to it holds once."""

READ_ACTIONS = frozenset({"skill", "read", "list", "search_skills"})
"""Actions that change nothing."""


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
    level: Level | None = None
    """What a yes lets happen; what signs is decided on the transaction page only. None is what the
    action says: looking for `READ_ACTIONS`, changing something for any other."""
    may_last: bool = True
    """Whether a yes may be a lasting one; not for shell lines, nor for what signs."""

    @property
    def effective_level(self) -> Level:
        """The level, told or known by the action."""
        if self.level is not None:
            return self.level
        return "read" if self.permission.action in READ_ACTIONS else "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A need with the decision about it."""

    need: Need
    decision: Decision
    reason: str

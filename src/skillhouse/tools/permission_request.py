"""A permission that a call needs, with what is known about it before any rule is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.approval import Level
    from skillhouse.permission import Decision, Effect, Permission

UNBOUND = "unbound"
"""The digest of a skill that has none: a yes to it holds once."""

HIDDEN_TEXT = "hidden text"
"""The layer that decides where a caution turns an allow into a question."""

PERSISTENCE = "persistence"
"""The layer that decides where a caution holds each time: a file that acts later is written."""

READ_ACTIONS = frozenset({"skill", "read", "list", "search_skills"})
"""Actions that change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
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
    caution: str = ""
    """Why a person is asked although rules allow it, such as hidden text; a standing approval of
    these very bytes (`skill_digest`) still holds. Empty where there is no such reason."""
    caution_layer: str = HIDDEN_TEXT
    """Why there is a caution; of `PERSISTENCE` no standing approval holds."""
    may_last: bool = True
    """Whether a yes may be a lasting one; not for shell lines, what signs, nor for files that act
    later."""

    @property
    def effective_level(self) -> Level:
        """The level, told or known by the action."""
        if self.level is not None:
            return self.level
        return "read" if self.permission.action in READ_ACTIONS else "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedPermission:
    """A need with the decision about it."""

    need: PermissionRequest
    decision: Decision
    reason: str
    gate: str = ""
    """What the write gate says of it: a word of `write_gate`; empty where it was not judged."""

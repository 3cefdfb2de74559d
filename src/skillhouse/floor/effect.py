"""The effects that a rule or a policy can have."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Effect(enum.StrEnum):
    """The effect of a rule on a permission."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


STRICTNESS = (Effect.ALLOW, Effect.ASK, Effect.DENY)
"""The effects, mildest first."""


def strictest(effects: Iterable[Effect]) -> Effect:
    """Return the strictest of some effects; allow when there is none."""
    return max(effects, key=STRICTNESS.index, default=Effect.ALLOW)


ONE_TIME = frozenset({"shell", "exec-once"})
"""Actions that a person allows once, each time: no rule and no standing approval allows one.
`shell` is a line that only a shell can run; `exec-once` a command that a rule with a wildcard
covers in words but not in meaning."""

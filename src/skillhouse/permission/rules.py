"""Rules, the layers they come in, and the answer they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from skillhouse.floor.effect import Effect
from skillhouse.floor.wildcard import OURS, Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Something that a call needs: an action on a resource."""

    action: str
    """skill, read, write, exec, …: the kind of thing that is done."""
    resource: str
    """What it is done to: a skill's name, a path, a command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of policy. `*` and `?` are wildcards in `action` and `pattern`."""

    effect: Effect
    action: str
    pattern: str
    reason: str = ""
    """Shown to whoever is asked or refused."""
    match: tuple[str, ...] = ()
    """Resources that the pattern must match: examples that are tried when rules are read."""
    not_match: tuple[str, ...] = ()
    """Resources that the pattern must not match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The rules of one origin, in the order in which they were written."""

    name: str
    rules: tuple[Rule, ...] = ()
    trusted: bool = True
    """False: its rules can only make the outcome stricter."""
    match: Literal["last", "first"] = "last"
    """Which of several matching rules is the layer's verdict."""
    dialect: Dialect = OURS
    """What its patterns mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer to one permission, with the layer and rule that gave it."""

    effect: Effect
    layer: str
    """Name of the layer that decided; "default" when none spoke."""
    rule_index: int | None = None
    """Place of the deciding rule in its layer, from 0; None when the default decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedRule:
    """One rule that matched a permission, for explaining a decision."""

    layer: str
    rule_index: int
    rule: Rule
    is_verdict: bool
    """Whether this is the rule that counts in its layer."""
    decided: bool
    """Whether this rule gave the decision."""

"""Decides, purely, whether something may happen."""

from skillhouse.permission.command import command_resource
from skillhouse.permission.decide import decide, explain
from skillhouse.permission.rules import Decision, Effect, Layer, Permission, Rule, Spoke
from skillhouse.permission.wildcard import Dialect, matches, matches_in

__all__ = [
    "Decision",
    "Dialect",
    "Effect",
    "Layer",
    "Permission",
    "Rule",
    "Spoke",
    "command_resource",
    "decide",
    "explain",
    "matches",
    "matches_in",
]

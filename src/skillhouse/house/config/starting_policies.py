"""The policies that come with the program, one of which `policy = "NAME"` puts into force."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from skillhouse.floor import shaped
from skillhouse.house.config.config_values import Settings
from skillhouse.house.config.rule_tables import with_each_pattern
from skillhouse.permission import Layer, Rule

POLICY_NAMES = ("careful", "developer", "locked")
POLICY_SUMMARIES = {
    "careful": (
        "reading files of the workspace, and the history of git",
        "every change, script and request",
        "force pushes, publishing packages, applying terraform",
    ),
    "developer": (
        "reading, editing, commits, builds, tests, the project's own scripts",
        "installing, pushing, deleting branches, code in a command, other programs",
        "force pushes, publishing packages, applying terraform",
    ),
    "locked": (
        "reading files of the workspace; git status, log, diff and show",
        "every other command",
        "changing files, requests, interpreters, installers",
    ),
}
"""What each allows, asks about and denies."""


def policy_file(name: str) -> Path:
    """Return the file of a policy; `name` is one of POLICY_NAMES."""
    return Path(__file__).parent.parent / "policies" / f"{name}.toml"


def policy_text(name: str) -> str:
    return policy_file(name).read_text(encoding="utf-8")


@functools.lru_cache
def starting_rules(name: str) -> tuple[Rule, ...]:
    """Return the rules of a policy.

    >>> len(starting_rules("locked")) < len(starting_rules("developer"))
    True
    """
    table = with_each_pattern(tomllib.loads(policy_text(name)), None)
    return shaped(table, Settings).rules or ()


def policy_layers(name: str | None) -> tuple[Layer, ...]:
    """Return the layer of a policy that is in force, which has its name; none without one."""
    if name is None:
        return ()
    return (Layer(name=name, rules=starting_rules(name), is_builtin=True),)

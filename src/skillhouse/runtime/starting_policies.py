"""The policies that `skillhouse policy init` offers: commented files of rules."""

from __future__ import annotations

import tomllib
from pathlib import Path

from skillhouse.floor import shaped
from skillhouse.permission import Rule
from skillhouse.runtime.config import Settings
from skillhouse.runtime.config.rule_tables import with_each_pattern

POLICY_NAMES = ("careful", "developer", "locked")
_DIRECTORY = Path(__file__).parent / "policies"


def policy_text(name: str) -> str:
    """Return a policy as it is added to a configuration file; `name` is one of POLICY_NAMES."""
    return (_DIRECTORY / f"{name}.toml").read_text(encoding="utf-8")


def starting_rules(name: str) -> tuple[Rule, ...]:
    """Return the rules of a policy.

    >>> len(starting_rules("locked")) < len(starting_rules("developer"))
    True
    """
    table = with_each_pattern(tomllib.loads(policy_text(name)), None)
    return shaped(table, Settings).rules or ()

"""The policies that `skillhouse policy init` offers: commented files of rules."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from skillhouse.floor import (
    ConfigError,
    Locations,
    file_problem,
    read_regular,
    shaped,
    write_atomically,
)
from skillhouse.floor.documents import DocumentError, toml_table
from skillhouse.permission import Rule
from skillhouse.runtime.config import Settings
from skillhouse.runtime.config.config_lines import CONFIG_FILE_MAX
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


def check_can_add(places: Locations) -> str:
    """Return the text of the user's configuration file, which has no rules yet.

    Raises:
        ConfigError: it has rules, or cannot be read.
    """
    path = places.user_file
    if problem := file_problem(path):
        raise ConfigError(f"the configuration is not used: {problem}", path=path)
    try:
        text = read_regular(path, CONFIG_FILE_MAX).decode()
        table = toml_table(text)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    except DocumentError as error:
        raise ConfigError(error.reason, path=path, line=error.line) from error
    if "rules" in table:
        message = (
            "there are rules already, and nothing is overwritten: take what you want from "
            "`skillhouse policy init NAME --stdout`"
        )
        raise ConfigError(message, path=path, key="rules")
    return text


def add_policy(name: str, places: Locations) -> Path:
    """Add the rules of a policy behind what the user's configuration file says; return the file.

    Raises:
        ConfigError: the file has rules, or cannot be read.
    """
    before = check_can_add(places)
    text = f"{before.rstrip()}\n\n{policy_text(name)}" if before.strip() else policy_text(name)
    # A link stays one; what it names is replaced.
    path = Path(os.path.realpath(places.user_file))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with write_atomically(path, durable=True) as file:
        file.write(text.encode())
    return places.user_file

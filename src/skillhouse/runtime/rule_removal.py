"""Takes one rule out of the user's configuration file; every other byte stays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skillhouse.floor import (
    ConfigError,
    DecodeError,
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

_HEADER = "[[rules]]"


def without_rule(places: Locations, index: int) -> str:
    """Return the text of the user's file without one of its rules; nothing is written.

    Args:
        places: Whose file.
        index: Place of the rule in the layer `user`, from 0.

    Raises:
        ConfigError: the file cannot be read, has no such rule, or writes it so that no lines are
            its own (several patterns in one table, rules in one line).
    """
    path = places.user_file
    if problem := file_problem(path):
        raise ConfigError(f"the configuration is not used: {problem}", path=path)
    try:
        before = read_regular(path, CONFIG_FILE_MAX).decode()
        rules = _rules(before, path)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    except DocumentError as error:
        raise ConfigError(error.reason, path=path, line=error.line) from error
    if not 0 <= index < len(rules):
        raise ConfigError(f"no rule {index + 1} of {len(rules)}", path=path, key="rules")
    wanted = [*rules[:index], *rules[index + 1 :]]
    for candidate in _candidates(before):
        # INVARIANT: what is written says just what was there but for the one rule.
        if _says(candidate, before, wanted, path):
            return candidate
    message = "the rule has no lines of its own; take it out of the file by hand"
    raise ConfigError(message, path=path, key="rules")


def remove_rule(places: Locations, index: int) -> Path:
    """Write the user's file without one of its rules; errors of `without_rule`."""
    text = without_rule(places, index)
    path = Path(os.path.realpath(places.user_file))
    with write_atomically(path, durable=True) as file:
        file.write(text.encode())
    return places.user_file


def _candidates(text: str) -> Sequence[str]:
    """Return the text without each of its `[[rules]]` tables."""
    lines = text.splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if line.partition("#")[0].strip() == _HEADER]
    found = []
    for start in starts:
        end = start + 1
        while end < len(lines) and not lines[end].lstrip().startswith("["):
            end += 1
        found.append("".join((*lines[:start], *lines[end:])))
    return found


def _says(text: str, before: str, rules: Sequence[Rule], path: Path) -> bool:
    try:
        return _rules(text, path) == tuple(rules) and _rest(text) == _rest(before)
    except (DecodeError, ConfigError):
        return False


def _rules(text: str, path: Path) -> tuple[Rule, ...]:
    return tuple(shaped(with_each_pattern(toml_table(text), path), Settings).rules or ())


def _rest(text: str) -> dict[str, Any]:
    return {key: value for key, value in toml_table(text).items() if key != "rules"}

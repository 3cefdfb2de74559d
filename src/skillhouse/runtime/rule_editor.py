"""Adds one rule to the user's configuration file, behind what is there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
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
from skillhouse.permission import Effect
from skillhouse.runtime.config import Settings, load_config
from skillhouse.runtime.config.config_lines import CONFIG_FILE_MAX
from skillhouse.runtime.config.rule_tables import try_examples, with_each_pattern


def rule_text(
    effect: Effect,
    action: str,
    pattern: str,
    *,
    reason: str = "",
    match: Sequence[str] = (),
    not_match: Sequence[str] = (),
) -> str:
    """Return a rule as a configuration file writes it.

    >>> print(rule_text(Effect.DENY, "exec", "rm *", match=["rm x"]))
    [[rules]]
    effect = "deny"
    action = "exec"
    pattern = "rm *"
    match = ["rm x"]
    <BLANKLINE>
    """
    lines = ["[[rules]]"]
    for key, value in (("effect", effect.value), ("action", action), ("pattern", pattern)):
        lines.append(f"{key} = {_toml(value)}")
    if reason:
        lines.append(f"reason = {_toml(reason)}")
    for key, examples in (("match", match), ("not_match", not_match)):
        if examples:
            lines.append(f"{key} = [{', '.join(map(_toml, examples))}]")
    return "\n".join(lines) + "\n"


def checked_addition(places: Locations, rule: str) -> str:
    """Return the text of the user's file with a rule at its end; nothing is written.

    Every byte of the file is kept, comments too.

    Raises:
        ConfigError: the file cannot be read or extended, or an example of its rules does not hold.
    """
    # What is wrong already is said first: a rule in a file that cannot be used has no effect.
    load_config(places)
    path = places.user_file
    if problem := file_problem(path):
        raise ConfigError(f"the configuration is not used: {problem}", path=path)
    try:
        before = read_regular(path, CONFIG_FILE_MAX).decode()
    except (FileNotFoundError, NotADirectoryError):
        before = ""
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    text = f"{before.rstrip()}\n\n{rule}" if before.strip() else rule
    try:
        table = with_each_pattern(toml_table(text), path)
        rules = shaped(table, Settings).rules or ()
    except DocumentError as error:
        raise ConfigError(f"a rule cannot be added: {error}", path=path, key="rules") from error
    try_examples(toml_table(text)["rules"], rules, path)
    return text


def add_rule(places: Locations, rule: str) -> Path:
    """Write a rule behind what the user's configuration file says; errors of `checked_addition`."""
    text = checked_addition(places, rule)
    # A link stays one; what it names is replaced.
    path = Path(os.path.realpath(places.user_file))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with write_atomically(path, durable=True) as file:
        file.write(text.encode())
    return places.user_file


def _toml(text: str) -> str:
    # A JSON text is a TOML basic string, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

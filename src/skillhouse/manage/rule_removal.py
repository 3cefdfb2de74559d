"""Takes one rule out of the user's configuration file; every other byte stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skillhouse.floor import ConfigError, DecodeError, Locations
from skillhouse.manage.rule_editor import rest_of, rule_spans, rules_of, user_text
from skillhouse.permission import Rule


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
    before = user_text(places)
    rules = rules_of(before)
    if not 0 <= index < len(rules):
        raise ConfigError(f"no rule {index + 1} of {len(rules)}", path=path, key="rules")
    wanted = (*rules[:index], *rules[index + 1 :])
    for candidate in _candidates(before):
        # INVARIANT: what is written says just what was there but for the one rule.
        if _says(candidate, before, wanted):
            return candidate
    message = "the rule has no lines of its own; take it out of the file by hand"
    raise ConfigError(message, path=path, key="rules")


def _candidates(text: str) -> Iterator[str]:
    """Yield the text without each of its `[[rules]]` tables."""
    lines = text.splitlines(keepends=True)
    for start, end in rule_spans(lines):
        yield "".join((*lines[:start], *lines[end:]))


def _says(text: str, before: str, rules: Sequence[Rule]) -> bool:
    try:
        return rules_of(text) == tuple(rules) and rest_of(text) == rest_of(before)
    except (DecodeError, ConfigError):
        return False

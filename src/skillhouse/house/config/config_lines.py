"""Finds the line of a configuration file that an error is about."""

from __future__ import annotations

import re

from skillhouse.floor import ConfigError, read_regular
from skillhouse.floor.regex import regex

CONFIG_FILE_MAX = 1_048_576
"""Bytes of a configuration file; rules for a whole team have some thousands."""

_NAME = r"([A-Za-z0-9_-]+)"
_PLACE = regex(rf"`\$\.{_NAME}(?:\[(\d+)\]|\.{_NAME})?(?:\.{_NAME})?")
"""The place of a value as its decoder writes it, such as `$.rules[0].effect`."""
_RULE = regex(r"\brules? (\d+)\b")
_SAYS_LINE = regex(r"\bline \d")


def located(error: Exception) -> str:
    """Return the text of an error, with the line of its file where it names none itself.

    The line is looked for by the names of tables and keys, so of a file with odd spelling it may be
    that of the table.
    """
    text = str(error)
    if not isinstance(error, ConfigError) or error.path is None or _SAYS_LINE.search(text):
        return text
    try:
        content = read_regular(error.path, CONFIG_FILE_MAX).decode()
    except (OSError, ConfigError, UnicodeDecodeError):
        return text
    return str(with_line(error, content))


def with_line(error: ConfigError, content: str) -> ConfigError:
    """Return an error about a file of this content with the line that it is about, if any."""
    text = str(error)
    if _SAYS_LINE.search(text):
        return error
    lines = content.splitlines()
    if "at end of document" in text:
        return error.at_line(len(lines))
    number = _line(lines, text, error.key)
    return error.at_line(number) if number else error


def _line(lines: list[str], text: str, key: str) -> int:
    place = _PLACE.search(text.replace("$.agents[...].", "$."))
    rule = _RULE.search(text)
    if place is None and rule is not None:
        start = _header(lines, "rules", int(rule[1]) - 1)
        return _below(lines, key.rpartition(".")[2], start) or start
    if place is None:
        return _below(lines, key.rpartition(".")[2], 0) if key else 0
    table, index, inner, last = place.groups()
    start = _header(lines, table, int(index or 0))
    if not start:
        # A value, or a table that is written in one line.
        return _below(lines, table, 0)
    return _below(lines, last or inner or table, start) or start


def _header(lines: list[str], table: str, index: int) -> int:
    """Return the number of the line after which the table of that index begins; 0 for none."""
    start = 0
    header = re.compile(rf"\s*\[+\s*(?:[\w.\"'-]+\.)?{re.escape(table)}\b")
    for _ in range(index + 1):
        start = next((n for n in range(start, len(lines)) if header.match(lines[n])), -1) + 1
        if not start:
            return 0
    return start


def _below(lines: list[str], key: str, start: int) -> int:
    """Return the number of the first line from `start` that sets the key; 0 if none does."""
    sets = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    return next((n + 1 for n in range(start, len(lines)) if sets.match(lines[n])), 0)

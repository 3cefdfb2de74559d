"""Finds the line of a configuration file that an error is about."""

from __future__ import annotations

import re

from skillhouse.floor import ConfigError, read_regular
from skillhouse.floor.regex import regex
from skillhouse.runtime.config.config_files import CONFIG_FILE_MAX

_NAME = r"([A-Za-z0-9_-]+)"
_PLACE = regex(rf"`\$\.{_NAME}(?:\[(\d+)\]|\.{_NAME})?(?:\.{_NAME})?")
"""The place of a value as its decoder writes it, such as `$.rules[0].effect`."""


def located(error: Exception) -> str:
    """Return the text of an error, with the line of its file where it names none itself.

    The line is looked for by the names of tables and keys, so of a file with odd spelling it may be
    that of the table.
    """
    text = str(error)
    if not isinstance(error, ConfigError) or error.path is None or re.search(r"\bline \d", text):
        return text
    try:
        lines = read_regular(error.path, CONFIG_FILE_MAX).decode().splitlines()
    except (OSError, ConfigError, UnicodeDecodeError):
        return text
    if "at end of document" in text:
        return f"line {len(lines)}: {text}"
    number = _line(lines, text, error.key)
    return f"line {number}: {text}" if number else text


def _line(lines: list[str], text: str, key: str) -> int:
    place = _PLACE.search(text)
    if place is None:
        return _below(lines, key.rpartition(".")[2], 0) if key else 0
    table, index, inner, last = place.groups()
    start = 0
    header = re.compile(rf"\s*\[+\s*{re.escape(table)}\b")
    for _ in range(int(index or 0) + 1):
        start = next((n for n in range(start, len(lines)) if header.match(lines[n])), -1) + 1
        if not start:
            # A value, or a table that is written in one line.
            return _below(lines, table, 0)
    return _below(lines, last or inner or table, start) or start


def _below(lines: list[str], key: str, start: int) -> int:
    """Return the number of the first line from `start` that sets the key; 0 if none does."""
    sets = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    return next((n + 1 for n in range(start, len(lines)) if sets.match(lines[n])), 0)

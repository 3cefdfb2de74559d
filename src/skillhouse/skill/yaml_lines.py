"""Reads a block whose lines are plain without a YAML parser: most published frontmatters are.

A plain line is `key: text`, or `key:` before items `- text` or further such lines, once. Anything
else is for PyYAML's events, which read a plain block to the same mapping
(docs/decisions/0265-plain-lines.md; tests/skill/test_yaml_lines.py holds both against each other).
"""

from __future__ import annotations

from typing import Any

from skillhouse.floor.regex import regex

_ASCII_SEEN = bytes([10, *range(32, 127)])
"""ASCII that a plain block may hold; of other characters it may hold those that are printable."""
_USUAL_KEYS = frozenset(
    "name description license compatibility metadata allowed-tools version author".split()
)
"""Keys whose characters need not be checked."""
_KEY = regex(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789(/.$_^+=~;<")
"""ASCII with which a text without quotes may begin; so may any letter."""
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_FLOW_LIST = regex(rf"\[{_WORD}(?: {_WORD})*(?:, {_WORD}(?: {_WORD})*)*\]")


def plain_mapping(block: str) -> dict[str, Any] | None:
    """Return the mapping of a block that is plain line by line; None for every other block.

    >>> plain_mapping("name: pdf\\nmetadata:\\n  version: '1.0'\\ntags: [a, b]\\n")
    {'name': 'pdf', 'metadata': {'version': '1.0'}, 'tags': ['a', 'b']}
    >>> plain_mapping("name: pdf\\ndescription: >\\n  Reads.\\n")
    """
    if block[-1:] != "\n":
        return None
    others = block.encode().translate(None, _ASCII_SEEN)
    if others and not others.decode().isprintable():
        return None
    fields: dict[str, Any] = {}
    opened = below = ""
    lines = block.split("\n")
    del lines[-1]
    for line in lines:
        key, colon, text = line.partition(": ")
        into = fields
        if line[:1] in (" ", "-"):
            if line[:2] != "  " or line[2:4] == "- ":
                below = _add_item(fields, opened, below, line)
                if not below:
                    return None
                continue
            if not opened or below not in ("", "  "):
                return None
            if not below:
                below, fields[opened] = "  ", {}
            key, into = key[2:], fields[opened]
        elif not colon and line[-1:] == ":":
            opened, below = line[:-1], ""
            if opened in fields or not _KEY.fullmatch(opened):
                return None
            fields[opened] = ""
            continue
        else:
            opened = ""
        if not colon or key in into or (key not in _USUAL_KEYS and not _KEY.fullmatch(key)):
            return None
        # As `_value` does for most lines.
        if text[:1] in _FIRST and text[-1] not in " :" and ": " not in text and " #" not in text:
            into[key] = text
        else:
            value = _value(text)
            if value is None:
                return None
            into[key] = value
    return fields


def _add_item(fields: dict[str, Any], opened: str, below: str, line: str) -> str:
    """Add an item below the key that was opened; return how it begins, or nothing if not plain."""
    begins = "- " if line[:2] == "- " else line[:4]
    if not opened or begins not in ("- ", "  - ") or (below and begins != below):
        return ""
    value = _value(line[len(begins) :])
    if value is None:
        return ""
    if not below:
        fields[opened] = []
    fields[opened].append(value)
    return begins


def _value(text: str) -> Any:
    """Return what a plain value says; None for every other one."""
    first = text[:1]
    if first in _FIRST or (first > "\x7f" and first.isalpha()):
        return None if text[-1] in " :" or ": " in text or " #" in text else text
    if first in ('"', "'"):
        is_plain = len(text) > 1 and text[-1] == first and text.count(first) == 2
        return text[1:-1] if is_plain and (first == "'" or "\\" not in text) else None
    if first == "[" and _FLOW_LIST.fullmatch(text):
        return text[1:-1].split(", ")
    return None

"""Stage 3: a YAML block to a mapping in which every scalar is the text that was written.

PyYAML's events are the truth. The Rust parser is a shortcut for blocks so plain that both agree
(docs/decisions/0013-yaml.md); tests/skill/test_yaml_text.py holds the two against each other.
"""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from typing import Any

import yaml_rs

from skillhouse.skill.source import FIRST_LINE, YAML_DEPTH_MAX

FAST_BLOCK_MAX = 8_192
"""Bytes up to which the Rust parser is trusted (decision 13)."""
FAST_OPENERS_MAX = 16
"""Openers of collections on one line up to which the Rust parser is trusted (decision 13)."""


def read_mapping(block: str, *, fast: bool = True) -> dict[str, Any]:
    """Return the mapping that `block` holds: text to text, list or mapping.

    Raises:
        RefusedError: `yaml-error` when it does not parse, else the code of what is not allowed.
    """
    if fast and is_plain(block):
        found = _rust(block)
        if found is not None:
            return found
    mapping: dict[str, Any] = _events().mapping_of(block)
    return mapping


def is_plain(block: str) -> bool:
    """Whether the Rust parser reads `block` as PyYAML's events do."""
    if len(block) >= FAST_BLOCK_MAX or block[-1:] != "\n":
        return False
    if "..." in block and (block[:3] == "..." or "\n..." in block):
        return False
    marks = block.encode().translate(None, _HARMLESS)
    if marks and not _is_plain_with_marks(block, marks):
        return False
    # One character is counted much quicker than two, and few blocks have that many.
    return block.count("-") + block.count("?") <= FAST_OPENERS_MAX or all(
        line.count("- ") + line.count("? ") <= FAST_OPENERS_MAX for line in block.split("\n")
    )


_HARMLESS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n.,:;-_/()+=?@#~^$`"
"""Characters that neither open anything nor hide anything: without others a block is plain."""


def _is_plain_with_marks(block: str, marks: bytes) -> bool:
    """Whether a block is plain although it holds `marks`, the characters that are not harmless."""
    if b"&" in marks or b"*" in marks or b"!" in marks:
        return False
    # A directive: Rust passes over those it does not know.
    if "%" in block and (block[0] == "%" or "\n%" in block):
        return False
    # Rust joins two escaped surrogates to one character, and libyaml refuses them.
    if b"\\" in marks and "\\u" in block:
        return False
    # Not printable: tabs, controls, U+0085, U+2028, U+2029, and all hidden characters.
    if not marks.decode().isprintable():
        return False
    if ("[" in block or "{" in block) and (
        block.count("[") + block.count("{") > FAST_OPENERS_MAX or _ODD_FLOW.search(block)
    ):
        return False
    return not ((">" in block or "|" in block) and _ODD_BLOCK_SCALAR.search(block))


_ODD_FLOW = re.compile(r"""[\[{](?:[^\n]*["'>|?]|(?:[^\n]*[ ,\[{])?:)|[\[{][^\]}\n]*\n""")
"""After an opener: a quote, a block mark, `?`, a text that begins with `:`, or the line's end."""

_ODD_BLOCK_SCALAR = re.compile(r"(?<![^ \n])[>|][-+0-9]*[ ]*(?:#|\n(?![ ]+[^ \n]))")
"""A block mark before a comment, or before a line that is blank or not indented."""


def _rust(block: str) -> dict[str, Any] | None:
    """Return the mapping if every leaf came back as text, else None."""
    try:
        found = yaml_rs.loads(block, parse_datetime=False)
    except (ValueError, TypeError):
        # The events judge what is refused here: YAMLDecodeError is a ValueError, and a map as a key
        # that holds a list gives TypeError.
        return None
    if type(found) is not dict:
        return None
    for key, value in found.items():
        if type(key) is not str or (type(value) is not str and not _is_text(value, 2)):
            return None
    return found


def _is_text(value: Any, level: int) -> bool:
    """Whether all leaves are text and no collection, `value` being at `level`, is too deep."""
    if type(value) is str:
        return True
    if level > YAML_DEPTH_MAX:
        return False
    items: Any = value
    if type(value) is dict:
        # Loops, because generators cost a tenth of reading a block.
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    elif type(value) is not list:
        return False
    for item in items:  # noqa: SIM110 - a generator costs as said above.
        if type(item) is not str and not _is_text(item, level + 1):
            return False
    return True


def key_line(block: str, key: str) -> int | None:
    """Return the line of the file that has the top-level `key`; None when none has.

    `block` is one that `read_mapping` takes. The text is searched first, and the events are asked
    only when it does not say.
    """
    found = list(re.finditer(rf"""(?m)^[{{ ]*["']?{re.escape(key)}["']?[ ]*:""", block))
    if len(found) == 1:
        return block.count("\n", 0, found[0].start()) + FIRST_LINE
    return key_lines(block).get(key)


def key_lines(block: str) -> dict[str, int]:
    """Return the line of the file for each top-level key of a block that `read_mapping` takes."""
    lines: dict[str, int] = _events().lines_of(block)
    return lines


def _events() -> ModuleType:
    """Return the slow reader, loaded when the first block needs it.

    PyYAML takes a quarter of the start-up time, and most blocks never need it.
    """
    return importlib.import_module("skillhouse.skill.yaml_events")

"""Mends the two YAML faults that real skills have most: unquoted colons, and text after `>`.

4,905 of 13,924 unreadable files of one public collection need the first, 9,018 the second
(reference/standard.md section 7.3). Only top-level lines of text that does not parse are touched,
and the file on disk is not (vectors/README.md, "3. YAML"; S001-25, S001-27).
"""

from __future__ import annotations

import re

_LINE = re.compile(
    r"(?P<key>[^\s#'\"\[\]{}&*!|>%@`,?:-][^:\n]*?|-[^\s:][^:\n]*?)[ ]*:[ \t]+(?P<value>\S.*)"
)
_BLOCK_MARK = re.compile(r"[>|][-+0-9]*[ \t]+(?P<text>[^#\s].*)")
_NOT_PLAIN = "\"'[{>|&*!%@`#"


def repaired(block: str) -> str | None:
    """Return `block` with the faulty top-level values quoted, or None when there is none.

    >>> repaired("description: Use when: asked")
    "description: 'Use when: asked'"
    >>> repaired("description: > Folds text")
    "description: 'Folds text'"
    """
    lines = block.split("\n")
    mended = [_mended(line) for line in lines]
    return None if mended == lines else "\n".join(mended)


def _mended(line: str) -> str:
    match = _LINE.fullmatch(line)
    if match is None:
        return line
    value = match["value"].rstrip()
    mark = _BLOCK_MARK.fullmatch(value)
    if mark:
        value = mark["text"]
    elif value[0] in _NOT_PLAIN or not (": " in value or value.endswith(":") or ":\t" in value):
        return line
    return f"{match['key']}: '{value.replace(chr(39), chr(39) * 2)}'"

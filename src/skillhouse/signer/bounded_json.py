"""JSON of our own, which is never deep: bounded before the parser sees it."""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH_MAX = 16
"""Lists and maps in each other; ours have five."""

_BRACKET = re.compile(rb"[\[\]{}]")


def load_shallow(data: bytes) -> Any:
    """Return the value of a JSON text.

    The parser counts its depth against Python's recursion limit, which a library under eth-account
    (py_ecc) lifts so far that the stack ends first. Brackets in texts are counted too, which only
    makes the bound stricter.

    Raises:
        ValueError: no JSON, or deeper than `DEPTH_MAX`.

    >>> load_shallow(b'{"a": [1]}')
    {'a': [1]}
    """
    depth = 0
    for bracket in _BRACKET.finditer(data):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX}")
    return json.loads(data)

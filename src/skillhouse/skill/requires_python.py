"""`requires-python`: which versions of Python a project runs on (PEP 440, version specifiers).

Interpreters are compared by their release, `3.13.1`; what a specifier says of pre-releases counts
only as "before that release".
"""

from __future__ import annotations

import re
from itertools import zip_longest

from skillhouse.floor.regex import regex

CLAUSES_MAX = 20

Version = tuple[int, ...]

_CLAUSE = regex(
    r"\s*(?P<operator>~=|===?|!=|<=|>=|<|>)\s*v?(?P<release>\d{1,4}(?:\.\d{1,6}){0,4})"
    r"(?:(?P<any>\.\*)|(?P<before>[._-]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[._-]?\d{0,4}))?\s*",
    re.IGNORECASE,
)


def python_fits(specifier: str, version: Version) -> bool:
    """Whether a release satisfies every clause; an empty specifier takes all.

    >>> python_fits(">=3.11,<3.14", (3, 13, 1)), python_fits("==3.12.*", (3, 13, 1))
    (True, False)

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    clauses = [text for text in specifier.split(",") if text.strip()]
    if len(clauses) > CLAUSES_MAX:
        raise ValueError(f"expected at most {CLAUSES_MAX} clauses")
    # Each is read, so that a wrong one is found whatever the others say.
    held = [_holds(text, version) for text in clauses]
    return all(held)


def _holds(text: str, version: Version) -> bool:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise ValueError(f"expected versions such as `>=3.11,<3.14`, got {text.strip()[:80]!r}")
    operator = match["operator"]
    release = tuple(int(part) for part in match["release"].split("."))
    is_prefix = match["any"] is not None
    if is_prefix and operator not in ("==", "!="):
        raise ValueError(f"expected `==` or `!=` before `.*`, got {text.strip()[:80]!r}")
    if operator in ("==", "!=", "==="):
        is_equal = not match["before"] and (
            _begins(version, release) if is_prefix else _compared(version, release) == 0
        )
        return is_equal == (operator != "!=")
    if operator == "~=" and len(release) < 2:
        raise ValueError(f"expected at least two parts after `~=`, got {text.strip()[:80]!r}")
    order = _compared(version, release) or (1 if match["before"] else 0)
    if operator == "~=":
        return order >= 0 and _begins(version, release[:-1])
    return {">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0}[operator]


def _begins(version: Version, release: Version) -> bool:
    padded = (*version, *(0 for _ in release))[: len(release)]
    return padded == release


def _compared(version: Version, release: Version) -> int:
    """Return -1, 0 or 1, missing parts read as 0."""
    for ours, theirs in zip_longest(version, release, fillvalue=0):
        if ours != theirs:
            return 1 if ours > theirs else -1
    return 0

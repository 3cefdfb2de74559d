"""Names that a person may take for another one: what a new name is compared by.

Names are ASCII (the specification's alphabet), so look-alikes of other scripts cannot occur.
"""

from __future__ import annotations

EDITED_MIN = 4
"""Letters of a name from which one other letter makes it a near one: `csv` and `tsv` are two."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_TWINS = {"rn": "m", "vv": "w", "cl": "d"}
_DIGITS = str.maketrans("0135i", "olesl")
"""Digits that look like letters. `i` and `l` and `1` are one."""


def name_key(name: str) -> str:
    """Return what two names share that differ in separators or look-alikes only.

    >>> name_key("pdf-tools") == name_key("pdftools"), name_key("c1aude") == name_key("claude")
    (True, True)
    """
    text = name.replace("-", "").lower().translate(_DIGITS)
    for pair, one in _TWINS.items():
        text = text.replace(pair, one)
    return text


def near_keys(name: str) -> frozenset[str]:
    """Return the keys of every name that is near: equal, or one letter more, less or other.

    >>> name_key("pdftool") in near_keys("pdf-tools"), name_key("tsv") in near_keys("csv")
    (True, False)
    """
    key = name_key(name)
    if len(key) < EDITED_MIN:
        return frozenset({key})
    letters = {name_key(letter) for letter in _LETTERS}
    found = {key}
    for at in range(len(key) + 1):
        start, rest = key[:at], key[at:]
        found.update(start + letter + rest for letter in letters)
        if rest:
            found.add(start + rest[1:])
            found.update(start + letter + rest[1:] for letter in letters)
    return frozenset(found)

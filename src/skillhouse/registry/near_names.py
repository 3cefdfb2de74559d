"""Names that a person may take for another one: what a new name is compared by.

Names are ASCII (the specification's alphabet), so look-alikes of other scripts cannot occur.
"""

from __future__ import annotations

EDITED_MIN = 4
"""Letters of a name from which one other letter makes it a near one: `csv` and `tsv` are two."""
SWAPPED_MIN = 3
"""Letters of a name from which two that changed places make a near one: `pfd` is one of `pdf`."""
JOINED_MIN = 4
"""Letters of a word of `AFFIXES` that is found without a separator: `pdfhelper`, not `mail`."""
AFFIXES = frozenset(
    "agent ai app beta cli core ext extension free helper helpers kit lib my new official plugin "
    "plugins plus pro real skill skills the tool tools util utils v2".split()
)
"""Words that say nothing of what a skill does: a name with one more of them is a near one."""

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


_AFFIX_KEYS = {name_key(word): len(word) for word in AFFIXES}


def near_keys(name: str) -> frozenset[str]:
    """Return the keys of every name that is near.

    Those are: equal, one letter more, less or other, two letters that changed places, and one word
    of `AFFIXES` more, less or other.

    >>> name_key("pdftool") in near_keys("pdf-tools"), name_key("tsv") in near_keys("csv")
    (True, False)
    >>> [name_key("pdf") in near_keys(name) for name in ("pfd", "pdf-tools", "my-pdf", "pdf-to-md")]
    [True, True, True, False]
    """
    key = name_key(name)
    found = {key}
    for core in {key, *_cores(name, key)}:
        found.update((core, *(core + word for word in _AFFIX_KEYS)))
        found.update(word + core for word in _AFFIX_KEYS)
        if len(core) >= SWAPPED_MIN:
            found.update(
                core[:at] + core[at + 1] + core[at] + core[at + 2 :] for at in range(len(core) - 1)
            )
    if len(key) >= EDITED_MIN:
        found.update(_edited(key))
    return frozenset(found)


def is_near(name: str, other: str) -> bool:
    """Whether one of two different names may be taken for the other."""
    return name != other and name_key(other) in near_keys(name)


def _edited(key: str) -> set[str]:
    letters = {name_key(letter) for letter in _LETTERS}
    found: set[str] = set()
    for at in range(len(key) + 1):
        start, rest = key[:at], key[at:]
        found.update(start + letter + rest for letter in letters)
        if rest:
            found.add(start + rest[1:])
            found.update(start + letter + rest[1:] for letter in letters)
    return found


def _cores(name: str, key: str) -> set[str]:
    """Return what is left of a name without a word of `AFFIXES` at its start or end."""
    first, _, rest = name.partition("-")
    before, _, last = name.rpartition("-")
    found = {name_key(rest)} if name_key(first) in _AFFIX_KEYS else set()
    found |= {name_key(before)} if name_key(last) in _AFFIX_KEYS else set()
    for word, length in _AFFIX_KEYS.items():
        if length >= JOINED_MIN:
            found.update((key.removeprefix(word), key.removesuffix(word)))
    # One letter is the rest of too many words.
    return {core for core in found if len(core) > 1}

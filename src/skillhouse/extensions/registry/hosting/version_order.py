"""The order of versions: that of semver.org 2.0.0, and something steady for other numbers."""

from __future__ import annotations

from collections.abc import Iterable

from skillhouse.floor.regex import regex

VersionKey = tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...], str]

_PARTS = regex(r"([0-9]{1,18}(?:\.[0-9]{1,18})*)(.*)", 16)
_SEPARATORS = regex(r"[.-]")


def version_key(text: str) -> VersionKey:
    """Return what versions are sorted by.

    >>> sorted(["1.0.0", "1.0.0-rc.10", "1.0.0-rc.9", "0.9", "1.0.0+b", "10"], key=version_key)
    ['0.9', '1.0.0-rc.9', '1.0.0-rc.10', '1.0.0', '1.0.0+b', '10']
    """
    found = _PARTS.match(text)
    numbers, rest = found.groups() if found else ("0", text)
    kept = [int(number) for number in numbers.split(".")]
    while kept and not kept[-1]:
        kept.pop()
    # Build metadata has no rank of its own (rule 10); the text keeps the order steady.
    before = rest.partition("+")[0].lstrip(".-")
    identifiers = tuple(
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in (_SEPARATORS.split(before) if before else ())
    )
    return tuple(kept), not identifiers, identifiers, text


def is_prerelease(text: str) -> bool:
    """Whether a version comes before the release of its number (rule 9).

    >>> is_prerelease("1.0.0-rc.1"), is_prerelease("1.0.0+build-1"), is_prerelease("1.0")
    (True, False, False)
    """
    return not version_key(text)[1]


def newest_of(versions: Iterable[str]) -> str:
    """Return the newest version that is no pre-release; empty where there is none.

    >>> newest_of(["1.0.0", "1.2.0", "2.0.0-rc.1"]), newest_of(["1.0.0-rc.1"])
    ('1.2.0', '')
    """
    return max((one for one in versions if not is_prerelease(one)), key=version_key, default="")

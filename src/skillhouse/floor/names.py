"""Names across boundaries: wire names for model providers, and the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable

from skillhouse.floor.digests import sha256
from skillhouse.floor.errors import WireNameError
from skillhouse.floor.regex import regex

WIRE_NAME_MAX = 64
"""Characters of a tool name that every large provider accepts (vectors/wire_names.jsonl)."""

_PART_MAX = 20
_HASH_DIGITS = 12
_OUTSIDE = regex(r"[^a-zA-Z0-9_-]")


def wire_name(skill: str, tool: str) -> str:
    """Return the name under which a model provider knows `tool` of `skill`.

    >>> wire_name("weather", "forecast")
    'weather__forecast'
    >>> wire_name("weather", "get__forecast")
    'weather__get__forecast_c261f3a86e04'
    """
    plain = f"{skill}__{tool}"
    if (
        len(plain) <= WIRE_NAME_MAX
        and "__" not in skill
        and "__" not in tool
        and not _OUTSIDE.search(plain)
    ):
        return plain
    mark = sha256(f"{skill}:{tool}".encode("utf-8", "surrogatepass")).hexdigest()
    parts = [_OUTSIDE.sub("_", part[:_PART_MAX]) for part in (skill, tool)]
    return f"{parts[0]}__{parts[1]}_{mark[:_HASH_DIGITS]}"


class WireNames:
    """The table of wire names given out, which is the only way back to a pair."""

    def __init__(self) -> None:
        self._pairs: dict[str, tuple[str, str]] = {}

    def add(self, skill: str, tool: str) -> str:
        """Return and remember the wire name of the pair; `WireNameError` if another has it."""
        wire = wire_name(skill, tool)
        pair = (skill, tool)
        taken_by = self._pairs.setdefault(wire, pair)
        if taken_by != pair:
            raise WireNameError(wire, pair, taken_by)
        return wire

    def pair(self, wire: str) -> tuple[str, str] | None:
        return self._pairs.get(wire)


def nearest(word: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Return the known words that `word` was most likely meant to be, best first.

    >>> nearest("serach", ["list", "search", "show"])
    ('search',)
    """
    import difflib  # noqa: PLC0415 - only what is not known is compared.

    by_fold = {candidate.casefold(): candidate for candidate in sorted(known)}
    close = difflib.get_close_matches(word.casefold(), by_fold, n=limit, cutoff=0.6)
    return tuple(by_fold[fold] for fold in close)

"""Findings as lines: many of one code or kind are folded, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from skillhouse.floor import Severity
from skillhouse.frontends.presentation.text import counted

if TYPE_CHECKING:
    from skillhouse.floor import Diagnostic

FOLDED_FROM = 30
"""Findings of one run from which on those of one code are folded."""
SHOWN_EACH = 3
"""Warnings and informations of a folded code that are shown."""
ERRORS_SHOWN_EACH = 20
"""Errors of a folded code that are shown: each can be a skill that is lost."""


def folded_lines(
    findings: Iterable[Diagnostic], line: Callable[[Diagnostic], str], *, everything: bool = False
) -> Iterator[str]:
    """Yield a line a finding, in their order; of a large run only a few of each code, and counts.

    Errors and warnings of one code are counted apart.
    """
    every = list(findings)
    if everything or len(every) <= FOLDED_FROM:
        yield from map(line, every)
        return
    seen: Counter[tuple[str, bool]] = Counter()
    for found in every:
        key = found.code, found.severity is Severity.ERROR
        seen[key] += 1
        if seen[key] <= _most(key):
            yield line(found)
    for key, count in seen.most_common():
        if count > _most(key):
            more = counted(count - _most(key), "more error" if key[1] else "more finding")
            yield f"… and {more} [{key[0]}]: --all"


def _most(key: tuple[str, bool]) -> int:
    return ERRORS_SHOWN_EACH if key[1] else SHOWN_EACH


def counts(findings: Iterable[Diagnostic]) -> str:
    """Return how many findings of each severity there are, and of which codes most."""
    every = list(findings)
    by_severity = Counter(found.severity for found in every)
    parts = [counted(by_severity[Severity.ERROR], "error")]
    parts.append(counted(by_severity[Severity.WARNING], "warning"))
    if by_severity[Severity.INFO]:
        parts.append(f"{by_severity[Severity.INFO]} for information")
    if len(every) > FOLDED_FROM:
        codes = Counter(found.code for found in every).most_common(4)
        parts.append("most often " + ", ".join(f"{code} {count:,}" for code, count in codes))
    return ", ".join(parts)

"""Findings as lines: many of one code are folded, and counted."""

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
"""Findings of a folded code that are shown, the errors among them never counted."""


def folded_lines(
    findings: Iterable[Diagnostic], line: Callable[[Diagnostic], str], *, everything: bool = False
) -> Iterator[str]:
    """Yield a line a finding, in their order; of a large run only a few of each code, and counts.

    Errors are all shown: each is a skill that is lost.
    """
    every = list(findings)
    if everything or len(every) <= FOLDED_FROM:
        yield from map(line, every)
        return
    seen: Counter[str] = Counter()
    for found in every:
        if found.severity is not Severity.ERROR:
            seen[found.code] += 1
        if found.severity is Severity.ERROR or seen[found.code] <= SHOWN_EACH:
            yield line(found)
    for code, count in seen.most_common():
        if count > SHOWN_EACH:
            yield f"… and {counted(count - SHOWN_EACH, 'more finding')} [{code}]: --all"


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

"""Findings as lines: many of one code or kind are folded, and counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.floor import Diagnostic, Severity
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.audit import Verification

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


TITLES = {
    "allowed-tools-form": "`allowed-tools` has commas or is a list; read all the same",
    "below-a-skill": "a SKILL.md inside another skill is a file of that skill",
    "bom": "begins with a byte order mark; read all the same",
    "comment-cut": "YAML takes the end of the description for a comment",
    "compatibility-length": "`compatibility` is empty or too long; kept",
    "description-missing": "has no description",
    "description-too-long": "`description` is over 1,024 characters",
    "encoding": "is not UTF-8",
    "exported-copy": "is a copy that `skillhouse export` wrote",
    "frontmatter-missing": "does not begin with `---`",
    "frontmatter-unclosed": "has no closing `---`",
    "hidden-characters": "has characters that people do not see",
    "key-case": "has a field in capitals; read all the same",
    "large": "is over 256 KiB; a model gets its beginning",
    "line-endings": "has CR alone as a newline; read all the same",
    "metadata-type": "`metadata` has a value that is not text",
    "name-invalid": "`name` is not of a-z, 0-9 and single hyphens",
    "name-mismatch": "`name` is not that of the directory",
    "name-missing": "has no name; that of the directory is used",
    "shadowed": "another skill of this name is taken instead",
    "yaml-error": "has frontmatter that is not YAML",
    "yaml-repaired": "has a value that is not YAML; read as text",
}
"""What many findings of a code say, as a sentence about a file."""
READ_ALL_THE_SAME = frozenset(
    {
        "allowed-tools-form",
        "bom",
        "compatibility-length",
        "exported-copy",
        "key-case",
        "line-endings",
    }
)
"""Codes of findings that change nothing about how a skill is found, shown and loaded."""


class FindingGroup(Struct, frozen=True, kw_only=True):
    code: str
    severity: Severity
    title: str
    """English; empty for a single finding and for a code without a sentence."""
    findings: tuple[Diagnostic, ...]


def grouped(findings: Iterable[Diagnostic]) -> tuple[FindingGroup, ...]:
    """Return findings by code and severity, errors first and then the most frequent."""
    found: dict[tuple[str, Severity], list[Diagnostic]] = defaultdict(list)
    for one in findings:
        found[one.code, one.severity].append(one)
    order = {severity: at for at, severity in enumerate(Severity)}
    keys = sorted(found, key=lambda key: (order[key[1]], -len(found[key]), key[0]))
    return tuple(
        FindingGroup(
            code=code,
            severity=severity,
            title=TITLES.get(code, "") if len(found[code, severity]) > 1 else "",
            findings=tuple(found[code, severity]),
        )
        for code, severity in keys
    )


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


def verification_lines(found: Verification) -> Iterator[str]:
    """Yield what is wrong with a log, which calls have no outcome, and whether it is whole."""
    for problem in found.problems:
        name = f"{shown(problem.file)} " if problem.file else ""
        place = f"{name}line {problem.line}: " if problem.line else f"{name}: " if name else ""
        yield f"{place}{shown(problem.message)} [{problem.code}]"
    for record in found.unknown:
        wanted = ", ".join(f"{p.action} {p.resource}" for p in record.permissions)
        yield f"unknown outcome: {record.id} {one_line(wanted)} at {record.ts}"
    parts = (
        (found.archives, f" in {counted(found.archives + 1, 'file')}"),
        (found.checkpoints, f", {counted(found.checkpoints, 'checkpoint')}"),
        (found.heads, f", {counted(found.heads, 'head')} in the state"),
        (found.summaries, f", {found.summaries} without arguments after their time"),
        (found.removed, f", {found.removed} more removed after their time"),
    )
    besides = "".join(text for number, text in parts if number)
    word = "changed or cut" if found.problems else "whole"
    yield f"{counted(found.records, 'record')}{besides}, the log is {word}"

"""The strict rule for names (specification, `name`; vectors/names.jsonl)."""

from __future__ import annotations

import re

from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill.source import Finding

NAME_MAX = 64
"""Characters of a name (specification, `name`)."""

_STRICT = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def name_findings(name: str, directory: str) -> list[Finding]:
    """Return what is wrong with a name that is not empty."""
    strict = len(name) <= NAME_MAX and _STRICT.fullmatch(name) is not None
    if strict and name == directory:
        return []
    findings = []
    if not strict:
        findings.append(
            Finding("name-invalid", f"expected 1-64 of a-z, 0-9 and single hyphens, got {name!r}")
        )
    if name != directory:
        findings.append(
            Finding("name-mismatch", f"expected the directory's name {directory!r}, got {name!r}")
        )
    return findings


def validate_name(name: str, *, directory: str) -> tuple[Diagnostic, ...]:
    """Return the findings of the strict rule for `name` in a directory of that name.

    >>> [d.code for d in validate_name("Notes", directory="notes")]
    ['name-invalid', 'name-mismatch']
    """
    findings = (
        name_findings(name, directory) if name else [Finding("name-missing", "the name is empty")]
    )
    return tuple(
        Diagnostic(code=found.code, severity=Severity.ERROR, message=found.message)
        for found in findings
    )

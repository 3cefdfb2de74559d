"""The strict judgement for authors: one skill directory, every finding."""

from __future__ import annotations

import os
from pathlib import Path

from skillhouse.floor import Diagnostic, PathError, Severity, read_beneath, target_problem
from skillhouse.floor.structs import replace
from skillhouse.skill.model import SKILL_FILE, ParsePolicy
from skillhouse.skill.skill_file import parse
from skillhouse.skill.source import SKILL_FILE_MAX, Finding, split_head
from skillhouse.skill.yaml_text import key_lines, repaired

SPECIFIED_FIELDS = frozenset(
    {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
)
"""The fields of the specification; others are kept, and mentioned to authors."""

_STRICT_ERRORS = frozenset(
    {
        "name-missing",
        "name-invalid",
        "name-mismatch",
        "description-too-long",
        "compatibility-length",
        "metadata-type",
        "yaml-repaired",
        "hidden-characters",
    }
)
"""Warnings for an agent that are violations of the specification for an author."""


def validate(directory: Path, *, strict: bool = True) -> tuple[Diagnostic, ...]:
    """Return what is wrong with the skill in `directory`, or of its SKILL.md; empty means nothing.

    Strict reports violations of the specification as errors and unknown fields as information;
    otherwise only what an agent would report.
    """
    place = Path(directory)
    if place.name.casefold() == SKILL_FILE.casefold() and not place.is_dir():
        place = place.parent
    file = place / SKILL_FILE
    try:
        data = _read(place, file)
    except PathError as error:
        return (_unreadable(error.code, place, file),)
    except _LinkError as error:
        return (error.found.diagnostic(file),)
    # `resolve` gives `.` its name.
    result = parse(data, directory=place.resolve().name, path=file, policy=ParsePolicy())
    if not strict:
        return result.diagnostics
    diagnostics = tuple(_stricter(finding) for finding in result.diagnostics)
    if result.skill is None:
        return diagnostics
    block = split_head(result.text.encode()).block
    if any(finding.code == "yaml-repaired" for finding in diagnostics):
        repair = repaired(block)
        block = repair.block if repair else block
    lines = key_lines(block)
    unknown = sorted(set(result.skill.frontmatter.fields) - SPECIFIED_FIELDS)
    return diagnostics + tuple(
        Diagnostic(
            code="field-unknown",
            severity=Severity.INFO,
            message=f"`{field}` is not a field of the specification; it is kept",
            path=file,
            line=lines[field],
        )
        for field in unknown
    )


class _LinkError(Exception):
    """A SKILL.md that is a link cannot be read; the finding is that of a listing."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.found = Finding(code, message, fatal=True)


def _read(place: Path, file: Path) -> bytes:
    """Return the bytes of a SKILL.md, or of the file that a link leads to, as a listing does."""
    try:
        return read_beneath(place, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
    except PathError as error:
        if error.code != "path-link" or not file.is_symlink():
            raise
    real = Path(os.path.realpath(file))
    if real.is_symlink():
        raise _LinkError("link-cycle", "a symbolic link that leads in a circle")
    if not os.path.lexists(real):
        raise _LinkError("link-broken", "a symbolic link to nothing")
    if problem := target_problem(real):
        raise _LinkError("link-owner", f"a symbolic link to `{real}`: {problem}")
    return read_beneath(real.parent, real.name, max_bytes=SKILL_FILE_MAX)


def _stricter(finding: Diagnostic) -> Diagnostic:
    if finding.code not in _STRICT_ERRORS:
        return finding
    return replace(finding, severity=Severity.ERROR)


def _unreadable(code: str, place: Path, file: Path) -> Diagnostic:
    message = f"no readable {SKILL_FILE} here"
    if code == "not-found" and place.is_dir():
        folded = SKILL_FILE.casefold()
        others = [name for name in sorted(os.listdir(place)) if name.casefold() == folded]
        if others:
            message = f"expected a file named `{SKILL_FILE}`, got `{others[0]}`"
    elif code == "not-found":
        is_there = place.exists()
        message = "expected a directory, got a file" if is_there else "no such directory"
    return Diagnostic(code=code, severity=Severity.ERROR, message=message, path=file)

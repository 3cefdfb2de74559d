"""A finding about a skill or a root, for the person who can mend it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class Severity(enum.StrEnum):
    """How much a finding matters: an error costs the skill, a warning does not."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding, with a stable code and its place."""

    code: str
    severity: Severity
    message: str
    path: Path | None = None
    line: int | None = None
    """Line in the file, from 1; None where the finding is about the whole."""

    def __str__(self) -> str:
        place = "" if self.path is None else f"{self.path}:"
        if place and self.line is not None:
            place += f"{self.line}:"
        return f"{place}{' ' if place else ''}{self.severity}: {self.message} [{self.code}]"

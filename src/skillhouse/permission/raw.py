"""A command line as it is written: taken apart, and not yet judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from skillhouse.permission.plan import Joined, RedirectKind
from skillhouse.permission.words import Word


class UnreadableError(Exception):
    """The text is no shell line, or more than is looked at."""


class NeedsShellError(Exception):
    """The line is sound, but says something that only a shell can do; the text says what."""


@dataclass(slots=True)
class RawRedirect:
    """A redirection as written."""

    descriptor: int
    kind: RedirectKind
    target: Word | str
    """A path, or the text of a here-document or the number of a descriptor."""
    both: bool = False
    """Whether the other output goes with it."""


@dataclass(slots=True)
class RawCommand:
    """A simple command as written; words that take a shell stand as their source."""

    words: list[Word]
    assignments: list[tuple[str, str]] = field(default_factory=list)
    redirects: list[RawRedirect] = field(default_factory=list)


@dataclass(slots=True)
class Reading:
    """What a line says."""

    pipelines: list[tuple[Joined, list[RawCommand]]]
    """The plan: each pipeline with "", "&&" or "||" before it; empty when a shell is needed."""
    commands: list[RawCommand]
    """Every simple command, also those in substitutions and branches."""
    shell_reason: str = ""
    calls_itself: bool = False
    """Whether a function starts itself in a pipeline or beside itself."""

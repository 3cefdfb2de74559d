"""Patterns of file paths, as a skill's `paths` has them; matched in time linear in the path."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

GLOB_MAX = 512
"""Characters of one pattern."""
BRACES_MAX = 64
"""Patterns that the braces of one pattern may stand for."""

_BRACES = re.compile(r"\{([^{}]*)\}")


def split_globs(text: str) -> tuple[str, ...]:
    """Return the patterns that commas separate; those inside braces do not.

    >>> split_globs("src/**, *.{ts,tsx}")
    ('src/**', '*.{ts,tsx}')
    """
    found, depth, current = [], 0, ""
    for character in text + ",":
        depth = max(0, depth + (character == "{") - (character == "}"))
        if character == "," and depth == 0:
            found.append(current.strip())
            current = ""
        else:
            current += character
    if current:
        # A brace that is not closed: the pattern is as it stands, and matches nothing but that.
        found.append(current.removesuffix(",").strip())
    return tuple(glob for glob in found if glob)


def is_glob(pattern: str) -> bool:
    """Whether a pattern is one that `matches_glob` can match anything by."""
    return (
        0 < len(pattern) <= GLOB_MAX
        and pattern.isprintable()
        and not pattern.startswith(("/", "~"))
        and ".." not in pattern.split("/")
        and _expanded(pattern) is not None
    )


def matches_glob(pattern: str, relative: str) -> bool:
    """Whether a POSIX path below the project fits a pattern as a whole, with case.

    `*` and `?` end at a `/`, `**` stands for any directories, `[ab]` for one character and `{a,b}`
    for either text; a pattern that ends in `/` is about everything below. A pattern that is none
    (`is_glob`) matches nothing.

    >>> matches_glob("src/**/*.{ts,tsx}", "src/ui/list.tsx"), matches_glob("*.ts", "src/a.ts")
    (True, False)
    """
    if not is_glob(pattern):
        return False
    parts = tuple(relative.split("/"))
    return any(_fits(segments, parts) for segments in _segments(pattern))


@lru_cache(maxsize=1_024)
def _segments(pattern: str) -> tuple[tuple[re.Pattern[str] | None, ...], ...]:
    """Return each alternative as its segments; None is `**`."""
    found = []
    for alternative in _expanded(pattern) or ():
        text = f"{alternative}**" if alternative.endswith("/") else alternative
        segments: list[re.Pattern[str] | None] = []
        for part in text.removeprefix("./").split("/"):
            if part != "**":
                segments.append(re.compile(fnmatch.translate(part)))
            elif not segments or segments[-1] is not None:
                segments.append(None)
        found.append(tuple(segments))
    return tuple(found)


def _fits(segments: tuple[re.Pattern[str] | None, ...], parts: tuple[str, ...]) -> bool:
    """Whether the segments fit all parts: which prefixes fit is kept for one segment at a time."""
    ends = {0}
    for segment in segments:
        if segment is None:
            ends = set(range(min(ends), len(parts) + 1))
        else:
            ends = {at + 1 for at in ends if at < len(parts) and segment.match(parts[at])}
        if not ends:
            return False
    return len(parts) in ends


@lru_cache(maxsize=1_024)
def _expanded(pattern: str) -> tuple[str, ...] | None:
    """Return the patterns without braces that this one stands for; None when they are too many."""
    pending, found = [pattern], []
    while pending:
        current = pending.pop()
        braces = _BRACES.search(current)
        if braces is None:
            found.append(current)
        else:
            head, tail = current[: braces.start()], current[braces.end() :]
            pending += [f"{head}{choice}{tail}" for choice in braces[1].split(",")]
        if len(pending) + len(found) > BRACES_MAX:
            return None
    return tuple(found)

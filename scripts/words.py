"""Finds words in docstrings, comments, messages and documents that STYLE.md refuses.

./x py -m scripts.words [PATH ...]
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ANSWER = r"(?:a|an|the|this|that|each|every|one|such|lasting|no) (?:yes|no)"
_AFTER = r"(?= (?:is|was|to|of|that|which|may|can|for|holds)\b|[,.;:)])"
REFUSED = re.compile(
    r"\b(?:anew|lies|stands|stood|speaks|spoke|tells|told|somebody|nobody|yeses|noes"
    r"|rooms|houses|doors|(?:the|this|that|a|one|our|each|whole|of) (?:house|door|room)"
    rf"|{_ANSWER}{_AFTER})\b",
    re.IGNORECASE,
)
PICTURE = ("docs/concepts/house.md", "docs/decisions/", "docs/requirements.md", "CHANGELOG.md")
"""The one page of the picture, records of the past, and a list that scripts write."""


STORED = ('"nobody"', '"nobody-reachable"', "nobody:x:")
"""Values that are compared or stored: two codes, and the account of sandboxed programs."""


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line of prose of a file with its number."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def files(arguments: list[str]) -> Iterator[Path]:
    """Yield the files below some paths; all of the project's when none is given."""
    names = arguments or ["src", "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs"]
    for name in names:
        place = ROOT / name
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        for path in found:
            relative = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", ".md", ".html") and not relative.startswith(PICTURE):
                yield path


def main(arguments: list[str]) -> int:
    """Print each finding as `path:line: word: text`; return 1 when there is one."""
    count = 0
    for path in files(arguments):
        for number, text in texts_of(path):
            if any(value in text for value in STORED):
                continue
            for match in REFUSED.finditer(text):
                count += 1
                print(f"{path.relative_to(ROOT)}:{number}: {match[0]}: {text.strip()[:90]}")
    if count:
        print(f"{count} words that STYLE.md refuses", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

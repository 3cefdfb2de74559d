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
_PLAIN = "anew|lies|stands|stood|speaks|spoke|tells|told|somebody|nobody|yeses|noes"
OLD = re.compile(rf"\b(?:{_PLAIN})\b", re.IGNORECASE)
"""What records of the past do not say either; they keep the picture of the design."""
REFUSED = re.compile(
    rf"\b(?:{_PLAIN}"
    r"|rooms|houses|doors|(?:the|this|that|a|one|our|each|whole|of) (?:house|door|room)"
    rf"|{_ANSWER}{_AFTER})\b",
    re.IGNORECASE,
)
PICTURE = ("docs/concepts/house.md",)
"""The one page of the picture."""
PAST = ("docs/decisions/", "CHANGELOG.md")
"""Records of the past."""


STORED = ('"nobody"', '"nobody-reachable"', "nobody:x:")
"""Values that are compared or stored: two codes, and the account of sandboxed programs."""


_PAGES = ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")


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
    names = arguments or ["src", "docs", *(f"{name}.md" for name in _PAGES)]
    for name in names:
        place = ROOT / name
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        for path in found:
            relative = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", ".md", ".html", ".toml") and not relative.startswith(PICTURE):
                yield path


def main(arguments: list[str]) -> int:
    """Print each finding as `path:line: word: text`; return 1 when there is one."""
    count = 0
    for path in files(arguments):
        refused = OLD if path.relative_to(ROOT).as_posix().startswith(PAST) else REFUSED
        for number, text in texts_of(path):
            if any(value in text for value in STORED):
                continue
            for match in refused.finditer(text):
                count += 1
                print(f"{path.relative_to(ROOT)}:{number}: {match[0]}: {text.strip()[:90]}")
    if count:
        print(f"{count} words that STYLE.md refuses", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

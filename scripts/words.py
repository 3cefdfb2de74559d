"""Finds words that are not used here: in docstrings, comments, messages, documents and names.

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


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""The words of a name in any of Python's spellings."""

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


def names_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the name of a module (as of line 1) and those in it, with their lines; no word else."""
    if path.suffix != ".py":
        return
    yield 1, path.stem
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def refused_in(name: str) -> str | None:
    """Return the word of a name that a text must not have either.

    >>> refused_in("_is_told"), refused_in("TellsAll"), refused_in("polies")
    ('told', 'Tells', None)
    """
    return next((word for word in _WORDS.findall(name) if OLD.fullmatch(word)), None)


def files(arguments: list[str]) -> Iterator[Path]:
    """Yield the files below some paths; all of the project's when none is given."""
    names = arguments or ["src", "docs", *(f"{name}.md" for name in _PAGES)]
    for name in names:
        place = ROOT / name
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        for path in found:
            if path.suffix in (".py", ".md", ".html", ".toml") and not _named(path).startswith(
                PICTURE
            ):
                yield path


def _named(path: Path) -> str:
    """Return the path from the top of the project, if it is in there."""
    return (path.relative_to(ROOT) if path.is_relative_to(ROOT) else path).as_posix()


def main(arguments: list[str]) -> int:
    """Print each finding as `path:line: word: text`; return 1 when there is one."""
    count = 0
    for path in files(arguments):
        name = _named(path)
        for number, identifier in names_of(path):
            if (word := refused_in(identifier)) and f'"{word.lower()}"' not in STORED:
                count += 1
                print(
                    f"{name}:{number}: {word}: the name `{identifier}`: say what it holds or does"
                )
        refused = OLD if name.startswith(PAST) else REFUSED
        for number, text in texts_of(path):
            if any(value in text for value in STORED):
                continue
            for match in refused.finditer(text):
                count += 1
                around = text[max(0, match.start() - 40) :].strip()
                print(f"{name}:{number}: {match[0]}: {around[:90]}")
    if count:
        print(f"{count} to say in other words: scripts/words.py has those", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A command line as it is written: taken apart, and not yet judged."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from skillhouse.permission.plan import Joined, RedirectKind

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@%^-]+")
_BRACKET = re.compile(r"\[!?[A-Za-z0-9_.-]+\]")
_LITERAL_BRACE = re.compile(r"\{(?!.*\.\.)[A-Za-z0-9_.@-]*\}")
_ESCAPABLE = ("$", "`", '"', "\\", "\n")
"""What a backslash takes its meaning from between double quotes (POSIX shell, 2.2.3)."""


@dataclass(frozen=True, slots=True)
class Word:
    """A decoded word."""

    text: str
    pattern: str = ""
    """As a file name pattern, when it has wildcards: literal characters are in brackets."""
    tilde: bool = False
    """Whether it begins with a home directory that is not known here."""


def decode_word(source: str) -> Word | None:
    """Return what a word is without a shell, or None when it takes one to say.

    >>> decode_word("a\\\\ b'c d'").text
    'a bc d'
    >>> decode_word("$HOME") is None, decode_word("./*.md").pattern
    (True, './*.md')
    """
    if _PLAIN.fullmatch(source):
        return Word(source)
    return _Decoder(source).word()


class _Decoder:
    def __init__(self, source: str) -> None:
        self._source = source
        self._text: list[str] = []
        self._pattern: list[str] = []
        self._is_pattern = False

    def word(self) -> Word | None:
        at, source = 0, self._source
        while at < len(source):
            sign = source[at]
            step = self._quoted(at) if sign in "'\"\\" else self._bare(at)
            if step <= at:
                return None
            at = step
        return Word(
            "".join(self._text),
            "".join(self._pattern) if self._is_pattern else "",
            tilde=source.startswith("~"),
        )

    def _literal(self, text: str) -> None:
        self._text.append(text)
        self._pattern += [f"[{sign}]" if sign in "*?[" else sign for sign in text]

    def _wild(self, text: str) -> None:
        self._is_pattern = True
        self._text.append(text)
        self._pattern.append(text)

    def _quoted(self, at: int) -> int:
        """Take a quotation or an escaped character; return where it ends, or -1."""
        source = self._source
        if source[at] == "'":
            end = source.find("'", at + 1)
            self._literal(source[at + 1 : end])
            return end + 1 if end > 0 else -1
        if source[at] == "\\":
            if source[at + 1 : at + 2] not in ("", "\n"):
                self._literal(source[at + 1])
            return at + 2 if at + 1 < len(source) else -1
        at += 1
        while at < len(source) and source[at] != '"':
            if source[at] in "$`":
                return -1
            if source[at] == "\\" and source[at + 1 : at + 2] in _ESCAPABLE:
                at += 1
                if source[at] != "\n":
                    self._literal(source[at])
            else:
                self._literal(source[at])
            at += 1
        return at + 1 if at < len(source) else -1

    def _bare(self, at: int) -> int:
        """Take one unquoted character or bracket; return where it ends, or -1."""
        source, sign = self._source, self._source[at]
        if sign in "`;|&<>() \t\n" or (sign == "$" and at + 1 < len(source)):
            return -1
        if sign in "*?":
            self._wild(sign)
        elif sign == "[":
            found = _BRACKET.match(source, at)
            if found is not None:
                self._wild(found[0])
                return found.end()
            if "]" in source[at:]:
                return -1
            self._literal(sign)
        elif sign == "{" and "}" in source[at:] and not _LITERAL_BRACE.match(source, at):
            # Perhaps a list in braces, which makes several words of one.
            return -1
        else:
            self._literal(sign)
        return at + 1


class UnreadableError(Exception):
    """The text is not a shell line, or is over a bound."""


class NeedsShellError(Exception):
    """The line is valid, but needs a shell; the text says for what."""


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
    """A parsed line."""

    pipelines: list[tuple[Joined, list[RawCommand]]]
    """The plan: each pipeline with "", "&&" or "||" before it; empty when a shell is needed."""
    commands: list[RawCommand]
    """Every simple command, also those in substitutions and branches."""
    shell_reason: str = ""
    calls_itself: bool = False
    """Whether a function starts itself in a pipeline or beside itself."""

"""A command line as it is written: taken apart, and not yet judged."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct, field

from skillhouse.floor.regex import regex
from skillhouse.permission.plan import Joined, RedirectKind
from skillhouse.permission.static_words import ansi_text

COMMANDS_MAX = 64
"""Commands of one line; more are denied (issue "command judge": no cap that drops a deny)."""

_PLAIN = regex(r"[A-Za-z0-9_./:=,+@%^-]+")
_QUOTED_RUN = regex(r'[^"`$\\]+')
_WILDCARDS = frozenset("*?[")
_BRACKET = regex(r"\[!?[A-Za-z0-9_.-]+\]")
_LITERAL_BRACE = regex(r"\{(?!.*\.\.)[A-Za-z0-9_.@-]*\}")
_VARIABLE = regex(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_ASSIGNING = regex(r"[A-Za-z_][A-Za-z0-9_]*(\[|\+?=)")
"""A word like an assignment, in which bash looks for home directories behind `=` and `:`."""
_ANSI = regex(r"\$'((?:[^'\\]|\\.)*+)'", re.DOTALL)
_ESCAPABLE = ("$", "`", '"', "\\", "\n")
"""What a backslash takes its meaning from between double quotes (POSIX shell, 2.2.3)."""


class Word(Struct, frozen=True):
    """A decoded word."""

    text: str
    pattern: str = ""
    """As a file name pattern, when it has wildcards: literal characters are in brackets."""
    tilde: bool = False
    """Whether it has a home directory that is not known here."""


def decode_word(source: str, value: Callable[[str], str | None] | None = None) -> Word | None:
    """Return what a word is without a shell, or None when it takes one to say.

    Args:
        source: The word as it is written.
        value: Gives the value of a variable that is known, which has no sign of a shell's; without
            it none is.

    >>> decode_word("a\\\\ b'c d'").text
    'a bc d'
    >>> decode_word("$HOME") is None, decode_word("./*.md").pattern
    (True, './*.md')
    """
    if _PLAIN.fullmatch(source):
        return Word(source)
    return _Decoder(source, value).word()


def _has_later_tilde(source: str) -> bool:
    has_sign = "=~" in source or ":~" in source
    return has_sign and _ASSIGNING.match(source) is not None


class _Decoder:
    def __init__(self, source: str, value: Callable[[str], str | None] | None) -> None:
        self._source = source
        self._value = value
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
            tilde=source.startswith("~") or _has_later_tilde(source),
        )

    def _literal(self, text: str) -> None:
        self._text.append(text)
        if not _WILDCARDS.isdisjoint(text):
            text = "".join(f"[{sign}]" if sign in _WILDCARDS else sign for sign in text)
        self._pattern.append(text)

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
            if run := _QUOTED_RUN.match(source, at):
                self._literal(run[0])
                at = run.end()
                continue
            if source[at] == "`":
                return -1
            if source[at] == "$":
                at = self._dollar(at, ' /.,:;=+%]|)&<>}^~"')
                if at < 0:
                    return -1
                continue
            if source[at] == "\\" and source[at + 1 : at + 2] in _ESCAPABLE:
                at += 1
                if source[at] != "\n":
                    self._literal(source[at])
            else:
                self._literal(source[at])
            at += 1
        return at + 1 if at < len(source) else -1

    def _dollar(self, at: int, ordinary: str) -> int:
        """Take a variable, or a `$` that begins none, being before an ordinary character."""
        found = _VARIABLE.match(self._source, at)
        if found is None:
            if self._source[at + 1 : at + 2] not in ordinary:
                return -1
            self._literal("$")
            return at + 1
        value = self._value(found[1] or found[2]) if self._value is not None else None
        if value is None:
            return -1
        self._literal(value)
        return found.end()

    def _ansi(self, at: int) -> int:
        """Take a `$'…'`; return where it ends, or -1."""
        found = _ANSI.match(self._source, at)
        text = None if found is None else ansi_text(found[1])
        if found is None or text is None:
            return -1
        self._literal(text)
        return found.end()

    def _bare(self, at: int) -> int:
        """Take one unquoted character or bracket; return where it ends, or -1."""
        source, sign = self._source, self._source[at]
        if run := _PLAIN.match(source, at):
            self._literal(run[0])
            return run.end()
        if sign in "`;|&<>() \t\n":
            return -1
        if sign == "$":
            return self._ansi(at) if source[at + 1 : at + 2] == "'" else self._dollar(at, "")
        if sign in "*?":
            self._wild(sign)
        elif sign == "[":
            bracket = _BRACKET.match(source, at)
            if bracket is not None:
                self._wild(bracket[0])
                return bracket.end()
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


class RawRedirect(Struct):
    """A redirection as written."""

    descriptor: int
    kind: RedirectKind
    target: Word | str
    """A path, or the text of a here-document or the number of a descriptor."""
    both: bool = False
    """Whether the other output goes with it."""


class RawCommand(Struct):
    """A simple command as written; words that take a shell stand as their source."""

    words: list[Word]
    assignments: list[tuple[str, str]] = field(default_factory=list)
    """Before its name, or of an `export`."""
    redirects: list[RawRedirect] = field(default_factory=list)
    exported: tuple[tuple[str, str], ...] = ()
    """Variables that the line has set before it, as far as it gets them."""
    before: tuple[str, ...] = ()
    """Words of the command whose output it reads, where a line pipes one into it."""
    only_sets: bool = False
    """Whether it only sets variables, and nothing of it runs."""


class Reading(Struct):
    """A parsed line."""

    pipelines: list[tuple[Joined, list[RawCommand]]]
    """The plan: each pipeline with "", "&&" or "||" before it; empty when a shell is needed."""
    commands: list[RawCommand]
    """Every simple command, also those in substitutions and branches."""
    shell_reason: str = ""
    calls_itself: bool = False
    """Whether a function starts itself in a pipeline or beside itself."""

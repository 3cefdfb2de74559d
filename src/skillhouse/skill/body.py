"""The placeholders and commands to run in a skill's body, and which commands need no shell.

Placeholders are Claude Code's, for when a person invokes a skill. Source: reference of the
extensions, "Substitutions" and "Dynamic context". Nothing is filled on load, and no profile does
this unless it or the user turns it on (`Extensions`). This file finds and fills; it runs nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import SkillhouseError
from skillhouse.floor.regex import regex

COMMAND_MAX = 4_096
"""Characters of a command that is looked at; `plain_words` takes no longer one for plain."""

# What follows backticks holds none (CommonMark 4.5), or a line of inline code would open a block.
_FENCE = regex(r"^ {0,3}(`{3,}(?=[^`]*$)|~{3,})[ \t]*(\S*)")


def plain_words(command: str) -> tuple[str, ...] | None:
    """Return the argv of a command that no shell is needed for, or None.

    Words may be quoted; anything a shell would expand, redirect or join makes it not plain.

    >>> plain_words('curl -s "wttr.in/Tokyo?format=3"')
    ('curl', '-s', 'wttr.in/Tokyo?format=3')
    """
    if len(command) > COMMAND_MAX or "\n" in command or "\0" in command:
        return None
    if _SAFE.fullmatch(command) is None:
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = tuple(lexer)
    # With `=` in it the first word would be an assignment.
    return words if words and "=" not in words[0] else None


# Each alternative begins with characters of its own and none is repeated inside the repetition, so
# that there is one way only to match a text, and a text that fails does so at once.
_SAFE = regex(
    r"""(?: [^\s'"\\$`;&|<>(){}\[\]*?~\#!]  # nothing that a shell treats specially
          | '[^']*'                          # everything literal
          | "[^"\\$`!]*"                     # no expansion inside
          | (?<=[^\s=:])~                    # special at the start of a word or value
          | (?<=\S)\#                        # special at the start of a word
          | [ \t] )*""",
    re.VERBOSE,
)


ARGUMENTS_MAX = 65_536
"""Characters of the arguments that a person gives."""
COMMANDS_MAX = 20
FILLED_MAX = 1_048_576
"""Characters that all places of one body are filled with."""

_PLACE = regex(
    r"\$ARGUMENTS\[(?P<index>\d{1,3})\]|\$(?P<all>ARGUMENTS)\b|\$(?P<position>\d{1,3})\b"
    r"|\$\{(?P<setting>CLAUDE_SKILL_DIR|CLAUDE_SESSION_ID)\}|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)\b"
)
_INLINE_COMMAND = regex(r"(?<!\S)!`([^`\n]+)`")
_BLOCK = "```!"
_MARK = regex("\ue000(\\d+)\ue001")
"""Marks a place while a command is split; private use, so that it means nothing to a shell."""


class SubstitutionError(SkillhouseError):
    """A body has so many places for such long arguments that no person could read the result."""


class CommandPlace(Struct, frozen=True):
    """A command in a body that is to run before the model sees the text."""

    start: int
    end: int
    """The part of the text that the output takes the place of."""
    command: str
    """A line, or the lines of a block."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands, one a line; empty lines and comments are none."""
        lines = (line.strip() for line in self.command.split("\n"))
        return tuple(line for line in lines if line and not line.startswith("#"))


class Filling:
    """Fills the places of one invocation; what is filled in is never looked at again."""

    def __init__(
        self,
        arguments: str,
        *,
        directory: Path,
        session: str = "",
        names: Sequence[str] = (),
        positions_from: int = 0,
    ) -> None:
        self._arguments = arguments
        self._words = _split(arguments)
        self._settings = {"CLAUDE_SKILL_DIR": str(directory), "CLAUDE_SESSION_ID": session}
        self._named = {name: self._word(at) for at, name in enumerate(names)}
        self._first = positions_from
        self._filled = 0
        self.is_used = False
        """Whether any place took an argument."""

    def text(self, part: str) -> str:
        """Return a part of the body, its places filled; SubstitutionError beyond `FILLED_MAX`."""
        return _PLACE.sub(self._fill, part)

    def words(self, command: str) -> tuple[str, ...] | None:
        """Return the argv of a command, its places filled; None where it would need a shell.

        The command is taken apart as its author wrote it, so that an argument is part of one word
        whatever is in it, and the program is never named by an argument.
        """
        values: list[str] = []

        def marked(found: re.Match[str]) -> str:
            if found["name"] and found["name"] not in self._named:
                return found[0]
            values.append(self._fill(found))
            return f"\ue000{len(values) - 1}\ue001"

        if "\ue000" in command or "\ue001" in command:
            return None
        words = plain_words(_PLACE.sub(marked, command))
        if words is None or _MARK.search(words[0]):
            return None
        return tuple(_MARK.sub(lambda found: values[int(found[1])], word) for word in words)

    def rest(self) -> str:
        """Return the text for the end: the arguments, where no place took any."""
        if self.is_used or not self._arguments:
            return ""
        return f"\n\nARGUMENTS: {self._arguments}\n"

    def _fill(self, place: re.Match[str]) -> str:
        value = self._value(place)
        self._filled += len(value)
        if self._filled > FILLED_MAX:
            raise SubstitutionError(
                f"expected at most {FILLED_MAX} characters in the places of this skill, got more"
            )
        return value

    def _value(self, place: re.Match[str]) -> str:
        if place["setting"]:
            return self._settings[place["setting"]]
        if place["name"] and place["name"] not in self._named:
            return place[0]
        self.is_used = True
        if place["all"]:
            return self._arguments
        if place["name"]:
            return self._named[place["name"]]
        if place["index"]:
            return self._word(int(place["index"]))
        return self._word(int(place["position"]) - self._first)

    def _word(self, at: int) -> str:
        return self._words[at] if 0 <= at < len(self._words) else ""


def substitute(
    body: str,
    arguments: str,
    *,
    directory: Path,
    session: str = "",
    names: Sequence[str] = (),
    positions_from: int = 0,
) -> str:
    """Return `body` with its placeholders filled; what is filled in is not looked at again.

    `$ARGUMENTS` is all of the arguments as written, `$0` and `$ARGUMENTS[0]` the first one, split
    as a shell would (`positions_from` 1 makes it `$1`); `$name` is one by its place in `names`, and
    one that was not given is empty. `${CLAUDE_SKILL_DIR}` is the directory. Where no place takes an
    argument, those given are added at the end. SubstitutionError: the result is too long.

    >>> substitute("Fix $0 in $ARGUMENTS", "bug 'the file'", directory=Path("/s"))
    "Fix bug in bug 'the file'"
    """
    filling = Filling(
        arguments,
        directory=directory,
        session=session,
        names=names,
        positions_from=positions_from,
    )
    text = filling.text(body)
    rest = filling.rest()
    return f"{text.rstrip()}{rest}" if rest else text


def argument_names(fields: Mapping[str, object]) -> tuple[str, ...]:
    names = fields.get("arguments")
    if isinstance(names, str):
        return tuple(names.split())
    if isinstance(names, list):
        return tuple(item for item in names if isinstance(item, str))
    return ()


def find_commands(body: str) -> Iterator[CommandPlace]:
    """Yield the commands that a body, as its author wrote it, wants run: !`…` and ```! blocks.

    The `!` begins a line or follows a blank. What any other fenced block holds is an example, and a
    block that is not closed holds nothing.

    INVARIANT: this is asked of the body before anything is filled in, so that no argument can
    become a command.
    """
    fence, opened, at = "", 0, 0
    block: list[str] | None = None
    for line in body.split("\n"):
        end = at + len(line)
        if fence:
            bare = line.strip()
            if len(bare) >= len(fence) and not bare.strip(fence[0]):
                if block is not None:
                    yield CommandPlace(opened, end, "\n".join(block).strip())
                fence, block = "", None
            elif block is not None:
                block.append(line)
        elif line.rstrip() == _BLOCK:
            fence, opened, block = "```", at, []
        elif match := _FENCE.match(line):
            fence = match[1]
        else:
            for inline in _INLINE_COMMAND.finditer(line):
                yield CommandPlace(at + inline.start(), at + inline.end(), inline[1].strip())
        at = end + 1


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        # A quote that is not closed; the words are as they stand.
        return arguments.split()

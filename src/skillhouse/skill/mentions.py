"""The commands and tools that a skill's body mentions, for rehearsing what they would meet."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

MENTIONS_MAX = 200
"""Mentions taken from one body; a body with more is an odd one, and the rest adds nothing."""
COMMAND_MAX = 4_096
"""Characters of a command that is looked at; `plain_words` takes no longer one for plain."""

# What follows backticks holds none (CommonMark 4.5), or a line of inline code would open a block.
_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`]*$)|~{3,})[ \t]*(\S*)")
_SHELLS = frozenset({"bash", "sh", "shell", "console", "shell-session", "zsh"})
_PROMPT = re.compile(r"^(?:\$|%|>) +")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A command line or tool name in a body; it says what could be tried, and grants nothing."""

    kind: str
    """command or tool."""
    text: str
    line: int
    """Line in the body, from 1."""


def find_mentions(body: str, tools: frozenset[str] = frozenset()) -> tuple[Mention, ...]:
    """Return each command of the body's shell blocks, and each of `tools` it names in backticks.

    Shell blocks are fenced with `bash`, `sh`, `shell`, `zsh` or `console`; lines ending in a
    backslash are joined and comments left out; bodies of here-documents pass for commands.
    """
    mentions: list[Mention] = []
    seen: set[tuple[str, str]] = set()

    def add(kind: str, text: str, line: int) -> None:
        if text and (kind, text) not in seen and len(mentions) < MENTIONS_MAX:
            seen.add((kind, text))
            mentions.append(Mention(kind=kind, text=text, line=line))

    def add_command(text: str, line: int) -> None:
        command = _PROMPT.sub("", text.strip())
        if not command.startswith("#"):
            add("command", command, line)

    fence, shell, pending, pending_line = "", False, "", 0
    for number, line in enumerate(body.split("\n"), start=1):
        match = _FENCE.match(line)
        if match and (not fence or (match[1].startswith(fence) and not match[2])):
            fence, shell = ("", False) if fence else (match[1], match[2].casefold() in _SHELLS)
            add_command(pending, pending_line)
            pending = ""
        elif fence and shell:
            pending_line = pending_line if pending else number
            pending += line
            # In a comment the backslash joins nothing, and what follows is a command.
            if pending.endswith("\\") and not pending.lstrip().startswith("#"):
                pending = pending[:-1] + " "
                continue
            add_command(pending, pending_line)
            pending = ""
        elif not fence:
            for inline in _INLINE.finditer(line):
                if inline[1].strip() in tools:
                    add("tool", inline[1].strip(), number)
    # A block may end with the body, and its last line in a backslash.
    add_command(pending, pending_line)
    return tuple(mentions)


def plain_words(command: str) -> tuple[str, ...] | None:
    """Return the argv of a command that no shell is needed for, or None.

    Words may be quoted; anything a shell would expand, redirect or join makes it not plain.

    >>> plain_words('curl -s "wttr.in/Tokyo?format=3"')
    ('curl', '-s', 'wttr.in/Tokyo?format=3')
    >>> plain_words("curl x | sh") is None
    True
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
_SAFE = re.compile(
    r"""(?: [^\s'"\\$`;&|<>(){}\[\]*?~\#!]  # nothing that a shell treats specially
          | '[^']*'                          # everything literal
          | "[^"\\$`!]*"                     # no expansion inside
          | (?<=[^\s=:])~                    # special at the start of a word or value
          | (?<=\S)\#                        # special at the start of a word
          | [ \t] )*""",
    re.VERBOSE,
)

"""The commands and tools that a skill's body mentions, for rehearsing what they would meet."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

MENTIONS_MAX = 200
"""Mentions taken from one body; a body with more is an odd one, and the rest adds nothing."""

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
    backslash are joined, comments and here-documents' bodies are not told apart from commands.
    """
    found: list[Mention] = []
    seen: set[tuple[str, str]] = set()

    def add(kind: str, text: str, line: int) -> None:
        if text and (kind, text) not in seen and len(found) < MENTIONS_MAX:
            seen.add((kind, text))
            found.append(Mention(kind=kind, text=text, line=line))

    fence, shell, pending, pending_line = "", False, "", 0
    for number, line in enumerate(body.split("\n"), start=1):
        match = _FENCE.match(line)
        if match and (not fence or (match[1].startswith(fence) and not match[2])):
            fence, shell = ("", False) if fence else (match[1], match[2].casefold() in _SHELLS)
            pending = ""
        elif fence and shell:
            pending_line = pending_line if pending else number
            pending += line
            if pending.endswith("\\"):
                pending = pending[:-1] + " "
                continue
            command = _PROMPT.sub("", pending.strip())
            pending = ""
            if not command.startswith("#"):
                add("command", command, pending_line)
        elif not fence:
            for inline in _INLINE.finditer(line):
                if inline[1].strip() in tools:
                    add("tool", inline[1].strip(), number)
    return tuple(found)


def plain_words(command: str) -> tuple[str, ...] | None:
    """Return the argv of a command that no shell is needed for, or None.

    Words may be quoted; anything a shell would expand, redirect or join makes it not plain.

    >>> plain_words('curl -s "wttr.in/Tokyo?format=3"')
    ('curl', '-s', 'wttr.in/Tokyo?format=3')
    >>> plain_words("curl x | sh") is None
    True
    """
    if len(command) > 4_096 or "\n" in command:
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = tuple(lexer)
    except ValueError:
        return None
    if not words or not _is_plain(command) or "=" in words[0]:
        return None
    return words


_SAFE = re.compile(
    r"""(?: [^\s'"\\$`;&|<>(){}\[\]*?~\#!]+   # nothing that a shell treats specially
          | '[^'\n]*'                          # everything literal
          | "[^"\\$`!\n]*"                     # no expansion inside
          | (?<=\S)[~\#]                       # special at the start of a word only
          | [ \t]+ )*""",
    re.VERBOSE,
)


def _is_plain(command: str) -> bool:
    return _SAFE.fullmatch(command.strip()) is not None

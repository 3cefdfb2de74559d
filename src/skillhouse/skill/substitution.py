"""Claude Code's placeholders in a body, filled when a person invokes a skill with arguments.

Source: reference of the extensions, "Substitutions" and "Dynamic context". Nothing is filled on
load, and no profile does this unless it or the user turns it on (`Extensions`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ARGUMENTS_MAX = 65_536
"""Characters of the arguments that a person gives."""
COMMANDS_MAX = 20
"""Commands that one body may ask for."""

_PLACE = re.compile(
    r"\$ARGUMENTS\[(?P<index>\d{1,3})\]|\$(?P<all>ARGUMENTS)\b|\$(?P<position>\d{1,3})\b"
    r"|\$\{(?P<setting>CLAUDE_SKILL_DIR|CLAUDE_SESSION_ID)\}|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)\b"
)
_COMMAND = re.compile(r"(?m)^```!\n(?P<block>.*?)\n```$|!`(?P<inline>[^`\n]+)`", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """A command that a body wants run before the model sees the text."""

    start: int
    end: int
    """The part of the text that the output takes the place of."""
    command: str


def substitute(
    body: str,
    arguments: str,
    *,
    directory: Path,
    session: str = "",
    names: Sequence[str] = (),
) -> str:
    """Return `body` with its placeholders filled; what is filled in is not looked at again.

    `$ARGUMENTS` is all of the arguments as written, `$0` and `$ARGUMENTS[0]` the first one, split
    as a shell would; an argument that was not given is empty. Without `$ARGUMENTS` in the body,
    arguments that are given are added at its end.

    Args:
        body: The text.
        arguments: What the person wrote after the skill's name.
        directory: For `${CLAUDE_SKILL_DIR}`.
        session: For `${CLAUDE_SESSION_ID}`.
        names: Of the positional arguments (frontmatter, `arguments`): `$name` stands for each.

    >>> substitute("Fix $0 in $ARGUMENTS", "bug 'the file'", directory=Path("/s"))
    "Fix bug in bug 'the file'"
    """
    words = _split(arguments)
    settings = {"CLAUDE_SKILL_DIR": str(directory), "CLAUDE_SESSION_ID": session}
    named = {name: (words[at] if at < len(words) else "") for at, name in enumerate(names)}
    used = False

    def filled(found: re.Match[str]) -> str:
        nonlocal used
        if found["all"]:
            used = True
            return arguments
        if found["setting"]:
            return settings[found["setting"]]
        if found["name"]:
            used = used or found["name"] in named
            return named.get(found["name"], found[0])
        at = int(found["index"] or found["position"])
        used = True
        return words[at] if at < len(words) else ""

    text = _PLACE.sub(filled, body)
    return text if used or not arguments else f"{text.rstrip()}\n\nARGUMENTS: {arguments}\n"


def argument_names(fields: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the positional arguments that a frontmatter declares."""
    found = fields.get("arguments")
    if isinstance(found, str):
        return tuple(found.split())
    if isinstance(found, list):
        return tuple(item for item in found if isinstance(item, str))
    return ()


def find_commands(body: str) -> Iterator[CommandPlace]:
    """Yield the commands that a body, as its author wrote it, wants run: !`…` and ```! blocks.

    INVARIANT: this is asked of the body before anything is filled in, so that no argument can
    become a command.
    """
    for found in _COMMAND.finditer(body):
        text = found["block"] if found["inline"] is None else found["inline"]
        yield CommandPlace(found.start(), found.end(), text.strip())


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        # A quote that is not closed; the words are as they stand.
        return arguments.split()

"""What a result says where the output of a run names a placeholder of a protected path."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from skillhouse.floor.regex import regex
from skillhouse.sandbox.profile import Directory

SHOWN_MAX = 5
"""Names that a note has."""
_COLOUR = regex(rb"\x1b\[[0-9;]*[mK]")
_NO_WORD = rb"(?<![\w.@%+~/\x80-\xff-])"
_NO_LONGER_WORD = rb"(?![\w@%+~\x80-\xff-]|\.[\w\x80-\xff])"


def placeholder_note(
    output: bytes,
    workspace: str,
    placeholders: Collection[str],
    *,
    directories: Iterable[Directory] = (),
) -> str:
    """Return a note about the placeholders that an output names as paths, or "".

    Args:
        workspace: Its real path.
        placeholders: Those that the run saw, as absolute paths.
        directories: Those of the workspace. A name that one of them really has is not meant,
            unless it is named by its whole path: programs name paths from where they are.
    """
    named = _named(output, workspace, placeholders) if output and placeholders else {}
    if not all(named.values()):
        there = {entry.name for directory in directories for entry in directory.entries}
        named = {n: whole for n, whole in named.items() if whole or n.split("/")[0] not in there}
    names = sorted(named)
    if not names:
        return ""
    shown = ", ".join(f"`{name}`" for name in names[:SHOWN_MAX])
    more = f" and {len(names) - SHOWN_MAX} more" if names[SHOWN_MAX:] else ""
    if len(names) == 1:
        said = "does not exist: skillhouse protects this name, shows a placeholder, and no command "
        said += "can make it"
    else:
        said = "do not exist: skillhouse protects these names, shows placeholders, and no command "
        said += "can make them"
    is_about_git = ".git" in names
    advice = (
        "; `git init` as the whole command makes a repository here, `git init NAME` one below"
        if is_about_git
        else ""
    )
    return f"{shown}{more} {said}{advice}"


def _named(output: bytes, workspace: str, placeholders: Iterable[str]) -> dict[str, bool]:
    """Return the names that an output has, and whether it has the whole path of each."""
    start = f"{workspace}/"
    relative = {os.fsencode(path.removeprefix(start)) for path in placeholders}
    # The longest first: of `.git/config` and `.git` the first is meant.
    words = b"|".join(re.escape(name) for name in sorted(relative, key=len, reverse=True))
    place = re.escape(os.fsencode(start))
    path = re.compile(_NO_WORD + rb"(\./|" + place + rb")?(" + words + rb")" + _NO_LONGER_WORD)
    named: dict[str, bool] = {}
    for before, name in path.findall(_COLOUR.sub(b"", output)):
        text = os.fsdecode(name)
        named[text] = named.get(text, False) or len(before) > len(b"./")
    return named

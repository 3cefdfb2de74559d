"""What a result says where a program could not read a file that is hidden from commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from skillhouse.floor.regex import regex
from skillhouse.sandbox import Completed

SHOWN_MAX = 5
"""Names that a note has for each reason."""
LINES_MAX = 200
"""Lines of an output that are looked at."""
_LINE_CHARACTERS = 4_096
_REFUSED = regex(r"(?i)permission denied|EACCES|cannot open|could not open")
_BEFORE = r"(?<![\w.@%+~-])"
_AFTER = r"(?![\w@%+~-]|\.\w)"


def hidden_note(
    done: Completed, root: str, hidden: Sequence[str], why: Callable[[str], str]
) -> str:
    """Return a note about the hidden paths that an output says could not be read, or "".

    Args:
        root: The workspace's real path.
        hidden: What commands cannot read, relative to it.
        why: Returns what hides one of them, in words; "" where there is no such file.
    """
    if not hidden:
        return ""
    text = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace")
    lines = [line[:_LINE_CHARACTERS] for line in text.splitlines() if _REFUSED.search(line)]
    said = "\n".join(lines[:LINES_MAX])
    found = [path for path in hidden if said and _names(said, path, root)]
    # From a directory below the workspace, a program names it by less than its path.
    names = {os.path.basename(path) for path in found}
    found += [
        path
        for path in hidden
        if said and "/" in path and os.path.basename(path) not in names and _ends(said, path)
    ]
    reasons: dict[str, list[str]] = {}
    for path in dict.fromkeys(found):
        if reason := why(path):
            reasons.setdefault(reason, []).append(path)
    parts = []
    for reason, paths in reasons.items():
        shown = ", ".join(f"`{path}`" for path in paths[:SHOWN_MAX])
        more = f" and {len(paths) - SHOWN_MAX} more" if paths[SHOWN_MAX:] else ""
        verb = "are" if paths[1:] else "is"
        parts.append(f"{shown}{more} {verb} hidden from commands: {reason}")
    return "; ".join(parts)


def _names(said: str, path: str, root: str) -> bool:
    """Whether some lines have a path from the workspace, or something below it."""
    start = rf"(?<![\w.@%+~/-])(?:\./|{re.escape(root)}/)?"
    return path in said and re.search(start + re.escape(path) + _AFTER, said) is not None


def _ends(said: str, path: str) -> bool:
    """Whether they have the end of a path that is relative."""
    name = os.path.basename(path)
    if name not in said:
        return False
    words = re.finditer(rf"([\w.@%+~/-]*){_BEFORE}{re.escape(name)}{_AFTER}", said)
    return any(
        f"/{path}".endswith(f"/{word[0].removeprefix('./')}") for word in words if word[0][0] != "/"
    )

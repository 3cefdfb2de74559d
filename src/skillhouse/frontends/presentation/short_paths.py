"""Paths as `list` shows them."""

from __future__ import annotations

import os
from pathlib import Path


def short_path(path: str, start: Path, home: Path) -> str:
    """Return a path relative to the start directory or with `~`, where that is shorter.

    >>> short_path("/home/you/.claude/skills", Path("/work"), Path("/home/you"))
    '~/.claude/skills'
    """
    for base, sign in ((str(start), "."), (str(home), "~")):
        if path == base:
            return sign
        if path.startswith(base.rstrip("/") + "/"):
            return f"{sign}/{os.path.relpath(path, base)}"
    return path

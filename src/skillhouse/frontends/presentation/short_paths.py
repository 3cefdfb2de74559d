"""Paths as `list` shows them, and who reads what is there."""

from __future__ import annotations

from pathlib import Path

from skillhouse.skill import FOLDER_CLIENTS


def short_path(path: str, start: Path, home: Path) -> str:
    """Return a path relative to the start directory or with `~`, where that is shorter.

    >>> short_path("/home/you/.claude/skills", Path("/work"), Path("/home/you"))
    '~/.claude/skills'
    """
    for base, sign in ((str(start), "."), (str(home), "~")):
        if path == base:
            return sign
        inside = base.rstrip("/") + "/"
        if path.startswith(inside):
            return f"{sign}/{path[len(inside) :]}"
    return path


def clients_of(root: Path) -> tuple[str, ...]:
    """Return the clients that read a root, none where that is not known.

    >>> clients_of(Path("/home/you/.codex/skills"))
    ('codex',)
    """
    parts = root.parts
    for length in (3, 2):
        known = FOLDER_CLIENTS.get("/".join(parts[-length:]))
        if known:
            return known
    return ()

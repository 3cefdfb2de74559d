"""Which clients read a folder of skills, as far as it is well known.

A table, because `list` must not read every profile; a test holds it against them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER_CLIENTS: Mapping[str, tuple[str, ...]] = {
    ".claude/skills": ("claude-code", "opencode-cli"),
    ".agents/skills": ("codex", "gemini-cli", "opencode-cli"),
    ".codex/skills": ("codex",),
    ".gemini/skills": ("gemini-cli",),
    ".opencode/skills": ("opencode-cli",),
    ".opencode/skill": ("opencode-cli",),
    ".config/opencode/skills": ("opencode-cli",),
    ".config/opencode/skill": ("opencode-cli",),
}
"""Folders of a project, or of a home, by their path there."""


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

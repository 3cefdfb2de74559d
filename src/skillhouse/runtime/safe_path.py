"""The search path for programs that we start ourselves, outside of any sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from skillhouse.discovery import git_root


def safe_path(environment: Mapping[str, str], start: Path) -> str:
    """Return `PATH` without relative folders and those of the project around `start`.

    `npx` and activated environments put folders of the project first, and an empty entry is the
    current directory: an untrusted project would choose what `npm` is.
    """
    project = os.path.realpath(git_root(start) or start)
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(
        entry
        for entry in entries
        if os.path.isabs(entry) and not Path(os.path.realpath(entry)).is_relative_to(project)
    )

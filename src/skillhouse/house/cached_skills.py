"""Refuses a skill of another server whose files in the cache are not those that were synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import remote
from skillhouse import tools as toolbox
from skillhouse.floor import SkillError

if TYPE_CHECKING:
    from skillhouse.skill import Skill

SYNC = "`skillhouse remote sync` fetches them again"


def cached_fault(remote_directory: Path, skill: Skill) -> str:
    """Return why a skill of the cache is not what was synced; empty for any other skill."""
    if skill.scope != "remote":
        return ""
    real = os.path.realpath(remote_directory)
    if not skill.root.startswith(real.rstrip("/") + "/"):
        # One of an MCP server: its files are held against the server's listing at each load.
        return ""
    return remote.cache_fault(skill.root, skill.file)


def refuse_unsynced(remote_directory: Path, skill: Skill) -> None:
    """Raise RefusedError for a skill of the cache whose files are others."""
    fault = cached_fault(remote_directory, skill)
    if fault:
        message = f"skill `{skill.name}` is not loaded: {fault}; {SYNC}"
        raise toolbox.RefusedError(message, denied=True)


def check_for_person(
    remote_directory: Path, skill: Skill, installed: Callable[[Path, str], str] | None
) -> None:
    """Raise SkillError for a skill whose files are not those that were synced or installed.

    `installed` gives the fault of an installed one; None asks nothing about it.
    """
    fault = cached_fault(remote_directory, skill)
    if fault:
        raise SkillError("unverified", skill.location, f"{fault}; {SYNC}")
    fault = installed(skill.directory, skill.scope) if installed is not None else ""
    if fault:
        name = skill.directory.name
        more = f"`skillhouse verify {name}` shows more, `load {name} --anyway` prints it"
        raise SkillError("unverified", skill.location, f"not loaded: {fault}; {more}")

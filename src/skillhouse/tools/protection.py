"""What no tool writes: protected names at any depth, skills, and the house's own places."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from skillhouse.permission import is_protected

SKILL_FILE = "skill.md"


class Guarded:
    """Places that no tool writes to, whatever rules and persons say.

    Names are those of the command judge, so that `write` and `cp` are told the same. The places
    are those of skills (security.md section 4.1: skills cannot edit skills) and of the house's
    settings, approvals and log, whether they exist yet or not.
    """

    def __init__(self, root: Path, places: Iterable[Path] = ()) -> None:
        """Take the workspace's real path, and the places, which may be anywhere."""
        self._root = str(root)
        self._places: dict[str, str] = {}
        self._around = False
        for place in places:
            real = os.path.realpath(place)
            if Path(self._root).is_relative_to(real):
                # Work in a root of skills: its files are work, what makes a skill is not.
                self._around = True
            elif Path(real).is_relative_to(self._root):
                self._places[spelled(os.path.relpath(real, self._root))] = real

    @property
    def below(self) -> tuple[str, ...]:
        """The places in the workspace, relative to it, sorted."""
        return tuple(sorted(os.path.relpath(real, self._root) for real in self._places.values()))

    def reason(self, relative: str) -> str:
        """Return why a path below the workspace is not written to, or nothing."""
        told = spelled(relative)
        # All of it, at any depth, also where it is no directory: git takes its settings, and so
        # programs to run, from `config`, `commondir`, `config.worktree` and a `.git` file's target.
        if ".git" in told.split("/"):
            return "is protected; use git"
        if is_protected(told):
            return "is protected; ask the user to change it"
        if self._around and told.rsplit("/", 1)[-1] == SKILL_FILE:
            return "is protected: it would make or change a skill; ask the user to change it"
        if self._is_in_a_place(told, relative):
            return "is protected: it belongs to a skill or to the house; ask the user to change it"
        return ""

    def _is_in_a_place(self, told: str, relative: str) -> bool:
        parts = told.split("/")
        if any("/".join(parts[:end]) in self._places for end in range(1, len(parts) + 1)):
            return True
        # By whatever name it is reached: another mount, or a file system that folds names.
        known = {_identity(real) for real in self._places.values()} - {None}
        here = Path(self._root, relative)
        return any(
            _identity(str(place)) in known
            for place in (here, *here.parents)
            if known and place.is_relative_to(self._root)
        )


def spelled(relative: str) -> str:
    """Return a path as the most forgiving file system takes it.

    HFS+ and APFS fold case and pass over some invisible characters; NTFS passes over dots and
    blanks at the end of a name and what follows a colon, and calls `.git` also `git~1`
    (CVE-2014-9390, CVE-2019-1352).

    >>> spelled("a/.G\u200cIT. /hooks"), spelled("GIT~1/config")
    ('a/.git/hooks', '.git/config')
    """
    return "/".join(_name(part) for part in relative.split("/"))


def _name(part: str) -> str:
    visible = "".join(c for c in part if unicodedata.category(c) != "Cf")
    text = unicodedata.normalize("NFC", visible).casefold().split(":", 1)[0].rstrip(" .")
    return ".git" if text == "git~1" else text or part


def _identity(path: str) -> tuple[int, int] | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return (info.st_dev, info.st_ino)

"""Where the paths of a command lead, and what is said about reading and writing there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from skillhouse.floor import PROTECTED_NAMES, SECRET_NAMES
from skillhouse.permission.hazards import DEVICES
from skillhouse.permission.rules import Effect

_START_FILES = (
    ".git",
    ".bash_logout",
    ".git-credentials",
    ".config/autostart",
    ".config/systemd",
    ".config/skillhouse",
    ".local/state/skillhouse",
    ".local/bin",
    "crontab",
    "authorized_keys",
)
_SYSTEM = ("/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/dev", "/proc", "/sys")


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what finds one of some relative paths, in which `*` is within a name, in a path.

    In a path without a dot, `*` is a run of characters without one: `id_map.py` is no key.
    """
    parts = (
        re.escape(text.casefold()).replace(r"\*", "[^/]*" if "." in text else "[^/.]*")
        for text in patterns
    )
    return re.compile(f"(?:^|/)(?:{'|'.join(parts)})(?:/|$)")


_PROTECTED = _any_of((*PROTECTED_NAMES, *_START_FILES))
_SECRET = _any_of(SECRET_NAMES)
_EMPTY = re.compile(r"/(?:\.?/)+")


class Places:
    """The directories that a command line may use without being asked about."""

    def __init__(
        self,
        cwd: Path | None = None,
        *,
        writable: Sequence[Path] = (),
        readable: Sequence[Path] = (),
    ) -> None:
        """Take the places; without `cwd` links are not followed and only texts are compared."""
        self._cwd = None if cwd is None else os.path.realpath(cwd)
        self._writable = tuple(os.path.realpath(place) for place in writable)
        readable_places = (*readable, *writable)
        self._readable = tuple(os.path.realpath(place) for place in readable_places)
        self.directory = ""
        """Where the line has gone by `cd`: relative to `cwd`, or absolute."""

    def resolved(self, path: str) -> str:
        """Return the path that a text means: absolute when `cwd` is known, links followed."""
        joined = os.path.join(self.directory, path)
        if self._cwd is not None:
            return os.path.realpath(os.path.join(self._cwd, joined))
        return os.path.normpath(joined) if joined else "."

    def enter(self, path: str) -> str:
        """Go to a directory, and return why a person should be asked first, or nothing."""
        concern = self.reading(path)
        self.directory = self.resolved(path)
        return concern

    def reading(self, path: str) -> str:
        """Return why reading is not taken for granted, or nothing."""
        if path in DEVICES or path == "-":
            return ""
        if path.startswith("~"):
            return f"`{path[:80]}` lies in a home directory"
        if not self._inside(self.resolved(path), self._readable):
            return f"`{path[:80]}` lies outside the current tree"
        if _SECRET.search(path.casefold()):
            return f"`{path[:80]}` has a name that secrets have"
        return ""

    def writing(self, path: str, *, covered: bool = False) -> tuple[Effect, str]:
        """Return what is said about writing to a path, and why.

        Args:
            path: Path as written.
            covered: Whether a rule allows the program that writes; a redirection has none.
        """
        if path in DEVICES:
            return Effect.ALLOW, ""
        resolved = path if path.startswith(("~", "$")) else self.resolved(path)
        for text in (path, resolved):
            if is_protected(text):
                return Effect.DENY, f"`{path[:80]}` is protected"
        if any(resolved == place or resolved.startswith(f"{place}/") for place in _SYSTEM):
            return Effect.DENY, f"`{path[:80]}` belongs to the system"
        if resolved.startswith(("~", "$")):
            return Effect.ASK, f"`{path[:80]}` is expanded by a shell"
        if self._inside(resolved, self._writable, here=covered):
            return Effect.ALLOW, ""
        if self._inside(resolved, ()):
            return Effect.ASK, f"no place that may be written holds `{path[:80]}`"
        return Effect.ASK, f"`{path[:80]}` lies outside the current tree"

    def _inside(self, resolved: str, places: Sequence[str], *, here: bool = True) -> bool:
        if not os.path.isabs(resolved):
            return here and resolved != ".." and not resolved.startswith("../")
        trees = (*places, self._cwd) if here and self._cwd is not None else places
        return any(Path(resolved).is_relative_to(tree) for tree in trees)


def is_protected(path: str) -> bool:
    """Whether a path, or a directory above it, has a protected name anywhere.

    Case is folded: on a file system without case `.GIT/hooks` is `.git/hooks`.
    """
    return _PROTECTED.search(_EMPTY.sub("/", path.casefold())) is not None

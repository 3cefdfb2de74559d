"""What a run has of the person's tools: places of programs, caches, and settings of git."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""The system's programs: the end of every PATH inside."""
PINNED = "/etc/skillhouse-programs"
"""Where the system's programs are whose names others take first."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
GIT_CONFIG = "/etc/skillhouse-git-global"
GIT_ATTRIBUTES = "/etc/skillhouse-git-attributes"


class GitSettings(Struct, frozen=True, kw_only=True):
    """The person's settings of git as a run has them."""

    config: str = ""
    """A file of settings, of allowed keys only."""
    ignored: str = ""
    """The text of `core.excludesFile`."""
    attributes: str = ""
    """That of `core.attributesFile`."""
    forced: Mapping[str, str] = field(default_factory=dict)
    """Settings that hold over those of the repository."""
    left_out: tuple[str, ...] = ()
    """Keys of the person that are not there."""

    @property
    def signs(self) -> bool:
        """Whether the person's commits or tags are signed outside."""
        return bool(self.forced)


class Caches(Struct, frozen=True, kw_only=True):
    """Writable directories of one workspace that tools keep downloads in."""

    directory: Path
    closed: tuple[Path, ...] = ()
    """Directories in it whose files act later, and that no run changes."""
    opened: tuple[Path, ...] = ()
    """Directories in those that runs write all the same."""
    shown: Mapping[str, Path] = field(default_factory=dict)
    """Paths at which runs see one of its directories."""


class Toolset(Struct, frozen=True, kw_only=True):
    """What a run has of the person's tools; each place is at its own path inside."""

    path: tuple[str, ...] = ()
    """Directories of programs before those of the system, by real path."""
    mounts: tuple[Path, ...] = ()
    """What is read for them, by real path; none is below another."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Links on the way to them, with what each says."""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Names of programs that are the system's all the same, with the path of each."""
    environment: Mapping[str, str] = field(default_factory=dict)
    caches: Caches | None = None
    git: GitSettings = field(default_factory=GitSettings)
    notes: tuple[str, ...] = ()
    """What of the person's tools is not there, and why."""

    @property
    def search_path(self) -> str:
        """Return the PATH inside."""
        first = (PINNED,) if self.pinned else ()
        system = [each for each in PROGRAM_PATH.split(":") if each not in self.path]
        return ":".join((*first, *self.path, *system))

    def which(self, name: str) -> str | None:
        """Return where a run finds a program, if what it is can be seen there."""
        if name in self.pinned:
            return self.pinned[name]
        paths = (f"{place}/{name}" for place in self.outside_path.split(":"))
        runnable = (p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK))
        return next((path for path in runnable if self.shows(os.path.realpath(path))), None)

    def shows(self, real: str) -> bool:
        """Whether a real path is of the system's programs or of these tools, and so unchanged."""
        seen = (*_SYSTEM, *map(str, self.mounts))
        return any(real == each or real.startswith(f"{each}/") for each in seen)

    def own_program(self, name: str, root: str) -> str:
        """Return the real path of the program that a name means, if it is below `root`."""
        if "/" in name or name in self.pinned:
            return ""
        paths = (f"{place}/{name}" for place in self.path)
        first = next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), "")
        real = os.path.realpath(first) if first else ""
        return real if real.startswith(f"{root}/") else ""

    @property
    def outside_path(self) -> str:
        """Return the PATH by which the same programs are found outside."""
        return ":".join((*self.path, PROGRAM_PATH))


def with_git_settings(
    environment: Mapping[str, str], settings: Mapping[str, str]
) -> Mapping[str, str]:
    """Return variables that give git settings besides those that the variables give it already.

    >>> with_git_settings({"GIT_CONFIG_COUNT": "1"}, {"a.b": "c"})["GIT_CONFIG_KEY_1"]
    'a.b'
    """
    if not settings:
        return environment
    count = environment.get("GIT_CONFIG_COUNT", "0")
    start = int(count) if count.isascii() and count.isdecimal() else 0
    added = {"GIT_CONFIG_COUNT": str(start + len(settings))}
    for at, (key, value) in enumerate(settings.items(), start):
        added |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return {**environment, **added}

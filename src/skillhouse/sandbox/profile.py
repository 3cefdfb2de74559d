"""What a run may access and use, its result, and the errors of the sandbox.

Part of it is the person's tools: places of programs, caches, and settings of git.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from skillhouse.floor import (
    FIXED,
    PROTECTED_NAMES,
    SECRET_NAMES,
    PersistentPaths,
    SkillhouseError,
    named,
    spelled,
)
from skillhouse.sandbox.git_places import GitPlaces

PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""The system's programs: the end of every PATH inside."""
PINNED = "/etc/skillhouse-programs"
"""Where the system's programs are whose names others take first."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
VENVS = (".venv", "venv", "env", ".virtualenv")
"""Usual names of a virtual environment at the top of a workspace."""
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


class SandboxError(SkillhouseError):
    """A run is refused, or bubblewrap did not start; `code` is the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SandboxUnavailableError(SkillhouseError):
    """No level of the sandbox works here, so no code is run (decision 10)."""

    def __init__(self, reasons: tuple[str, ...], hint: str) -> None:
        reason = "; ".join(reasons) or "no level passed its self-test"
        super().__init__(
            f"no usable sandbox: {reason}; {hint}" if hint else f"no sandbox: {reason}"
        )
        self.reasons = reasons
        self.hint = hint


MIB = 1 << 20

EXEC_SECONDS = 600
"""Time of one run (docs/reference/limits.md)."""
MEMORY_BYTES = 8_192 * MIB
"""Most memory of a whole run where the machine has twice as much."""
PROCESSES = 1_024
"""Processes and threads of a run at one time."""
OUTPUT_BYTES = 10 * MIB
"""Output of a run that is kept, both streams together (docs/reference/limits.md)."""
FILE_BYTES = 4_096 * MIB
"""Largest file that a run may write (decision 0372)."""
TMP_BYTES = 1_024 * MIB
"""Size of a run's /tmp (decision 0372)."""


@functools.cache
def default_memory_bytes() -> int:
    """Return `MEMORY_BYTES`, or half of the machine's memory if that is less."""
    return min(MEMORY_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def fits(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern, ignoring case.

    `*` matches any characters; in a pattern without a dot, any but a dot.

    >>> fits("id_*", "ID_work"), fits("id_*", "id_map.py"), fits(".env.*", ".env.a.b")
    (True, False, True)
    """
    return names_like((pattern,)).fullmatch(name.casefold()) is not None


@functools.cache
def names_like(patterns: tuple[str, ...]) -> re.Pattern[str]:
    stars = ("[^.]*" if "." not in pattern else ".*" for pattern in patterns)
    texts = (re.escape(p).replace(r"\*", star) for p, star in zip(patterns, stars, strict=True))
    return re.compile("|".join(texts), re.DOTALL)


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a run; exceeding one ends it, and `Completed.limit` names it.

    Output beyond its limit ends nothing unless `ends_at_output`: its middle is left out.
    """

    seconds: float = EXEC_SECONDS
    memory_bytes: int = field(default_factory=default_memory_bytes)
    """Of all processes together, including files in /tmp."""
    processes: int = PROCESSES
    output_bytes: int = OUTPUT_BYTES
    file_bytes: int = FILE_BYTES
    tmp_bytes: int = TMP_BYTES
    ends_at_output: bool = False


class OpenedProtection(Struct, frozen=True, kw_only=True):
    """What of the protected paths a run may write."""

    patterns: tuple[str, ...] = ()
    """In the table's language."""
    everything: bool = False
    """Whether that is all that commands can write at all."""
    trees: bool = False
    """Whether the run brings directories of others' files, which may hold such names."""
    repositories: bool = False
    """Whether it makes git repositories."""
    top_repository: bool = False
    """Whether it is git alone, which makes the workspace one that was none."""

    def is_below(self, relative: str) -> bool:
        if not self.patterns:
            return False
        start = f"/{spelled(relative)}/"
        return any(spelled(pattern).startswith(start) for pattern in self.patterns)

    def frees(self, relative: str) -> bool:
        """Whether a protected path is not covered: it may be written, or holds what may."""
        if not self.patterns and not self.everything:
            return False
        if named(FIXED.patterns, relative):
            return False
        if self.everything and not named(SECRET_NAMES, relative):
            return True
        return named(self.patterns, relative) or self.is_below(relative)


class SurveyEntry(NamedTuple):
    """One name in a directory; a tuple, as there are many."""

    name: str
    is_directory: bool
    inode: int
    is_link: bool = False


class SurveyHit(Struct, frozen=True):
    """A name that the scan looks for."""

    name: str
    kinds: tuple[str, ...]
    is_closed: bool
    """Whether the directory of this name is not entered."""


class Directory(Struct):
    """What the scan keeps of one directory."""

    stamp: tuple[int, ...]
    entries: tuple[SurveyEntry, ...]
    state: tuple[int, ...]
    """Its device, inode and change time from before it was read; () when it is gone. No program
    can set that time, but two directories may have the same."""
    hits: tuple[SurveyHit, ...] = ()
    below: tuple[str, ...] = ()
    key: Hashable = None
    kept: dict[Hashable, Any] = field(default_factory=dict)
    """Values derived from its place and `entries` alone."""


class CoveredPaths(Struct):
    """The covered paths of a workspace in one run (`covered_paths`)."""

    paths: list[tuple[str, str, bool]] = field(default_factory=list)
    """A directory of the workspace, the protected path below it, and whether it is hidden."""
    opened: set[str] = field(default_factory=set)
    """Secrets that can be read in this run, relative to the workspace."""
    pinned: list[str] = field(default_factory=list)
    """Directories that cannot be renamed, as that would change the paths of their content."""
    left: int = 0
    """Paths and directories that are not covered, at least."""
    directories: Mapping[str, Directory] = field(default_factory=dict)
    """Those that were read for this, relative to the workspace."""

    @property
    def is_all(self) -> bool:
        return not self.left


class _InWorkspace(Struct, frozen=True):
    workspace: Path
    """The only writable directory, at its own path."""


class SandboxProfile(_InWorkspace, frozen=True, kw_only=True):
    """What a run may access of the host, besides the system's programs."""

    readable: tuple[Path, ...] = ()
    """Readable directories (skills), at their own paths."""
    skills: tuple[Path, ...] = ()
    """Those of them in which no bytecode is seen, nor what programs left."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Paths relative to the workspace; a name at the top may contain `*`, which matches existing
    ones."""
    hidden: tuple[str, ...] = ()
    """Further ones, which cannot be read either."""
    below: CoveredPaths | None = None
    """The result of `covered_paths`; without it only names decide."""
    read_only: bool = False
    writable: tuple[Path, ...] = ()
    """Directories of the workspace that are writable in a `read_only` run."""
    is_lasting: bool = False
    """Whether a `read_only` run goes on beside others: it holds no lock of the workspace, and what
    is in there may change meanwhile."""
    sealed: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the workspace that the run sees with these bytes, read-only, by real path."""
    paths: PersistentPaths | None = None
    """Which files take effect later, and so cannot be changed or made; None checks none."""
    opened: OpenedProtection = field(default_factory=OpenedProtection)
    """Those of them that the run may write."""
    git: GitPlaces | None = None
    """Git's directories besides a plain `.git`, as far as the run may use them."""
    network: bool = False
    """True: the host's network, unfiltered."""
    proxy_socket: Path | None = None
    """Unix socket of an HTTP proxy, the run's only way out, by `HTTP_PROXY` and the like; excludes
    `network`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All variables besides PATH, HOME and LANG, and those of `tools`."""
    tools: Toolset = field(default_factory=Toolset)
    denied: Mapping[str, str] = field(default_factory=dict)
    """Programs that cannot be read or started, by real path, with the name of each; where nothing
    can be mounted they are not covered."""
    limits: Limits = field(default_factory=Limits)

    def nearby(self, program: str) -> str:
        """Return what to do where a run does not find a program that the workspace has, or ""."""
        beside = (*(f"{place}/bin" for place in VENVS), "node_modules/.bin")
        paths = [f"{place}/{program}" for place in beside if "/" not in program]
        path = next((p for p in paths if os.access(self.workspace / p, os.X_OK)), "")
        return f"the workspace has `{path}`: name it by this path" if path else ""


class Streams(Struct, frozen=True, kw_only=True):
    """The descriptors of another process, on which a run reads and writes directly."""

    stdin: int
    stdout: int
    stderr: int
    began: Callable[[int], object]
    """Called with the process id of the first process inside, unless that has ended before."""
    directory: int | None = None
    """Where a shell says at its end in which directory it is."""


OutputListener = Callable[[bytes], object]
"""Takes each piece of a run's output when it comes, of both streams."""


def left_out_text(count: int) -> str:
    return f"… {count} bytes left out …"


LEFT_OUT = re.compile(r"^… ([0-9]{1,18}) bytes left out …$", re.MULTILINE)
"""The line of `left_out_text` in an output; a program may print one too."""


class Completed(Struct, frozen=True, kw_only=True):
    """How a run ended, with its output."""

    exit_code: int | None
    """None when a signal ended the program, or a limit the run."""
    signal: int | None = None
    """bubblewrap's exit code less 128; so `exit 137` reads as signal 9."""
    stdout: bytes
    stderr: bytes
    left_out: int = 0
    """Bytes of output beyond the limit, in whose place `stdout` and `stderr` have a notice."""
    timed_out: bool = False
    limit: str = ""
    """The limit that ended the run: "time", "memory", "processes", "output" or ""."""
    duration_seconds: float
    changes: tuple[str, ...] = ()
    """Persistent files that it wrote, as it was allowed to."""
    notes: tuple[str, ...] = ()
    """What it made without being allowed to, and what was done about it."""
    start_seconds: float | None = None
    """From the call to the first process inside; None if unknown."""

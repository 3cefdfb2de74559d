"""What a run may access and use, and its result."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from skillhouse.floor import PROTECTED_NAMES, PersistentPaths
from skillhouse.sandbox.persistence import Opened
from skillhouse.sandbox.survey import CoveredPaths

MIB = 1 << 20

EXEC_SECONDS = 60.0
"""Time of one run (DESIGN, bounds: exec 60 s)."""
MEMORY_BYTES = 1024 * MIB
"""Memory of a whole run (issue "sandbox": 1 GiB)."""
PROCESSES = 128
"""Processes and threads of a run at one time (issue "sandbox")."""
OUTPUT_BYTES = 262_144
"""Output of a run, both streams together (DESIGN, bounds: tool output 256 KiB)."""
FILE_BYTES = 512 * MIB
"""Largest file that a run may write, and size of its /tmp (issue "sandbox": 512 MiB)."""


def fits(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern, ignoring case.

    `*` matches any characters; in a pattern without a dot, any but a dot.

    >>> fits("id_*", "ID_work"), fits("id_*", "id_map.py"), fits(".env.*", ".env.a.b")
    (True, False, True)
    """
    return names_like((pattern,)).fullmatch(name.casefold()) is not None


@functools.cache
def names_like(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches each casefolded name that fits one of the patterns."""
    stars = ("[^.]*" if "." not in pattern else ".*" for pattern in patterns)
    texts = (re.escape(p).replace(r"\*", star) for p, star in zip(patterns, stars, strict=True))
    return re.compile("|".join(texts), re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a run; exceeding one ends it, and `Completed.limit` names it."""

    seconds: float = EXEC_SECONDS
    memory_bytes: int = MEMORY_BYTES
    """Of all processes together, including files in /tmp."""
    processes: int = PROCESSES
    output_bytes: int = OUTPUT_BYTES
    file_bytes: int = FILE_BYTES


@dataclass(frozen=True, slots=True)
class SandboxProfile:
    """What a run may access of the host, besides the system's programs."""

    workspace: Path
    """The only writable directory, at its own path."""
    _: KW_ONLY
    readable: tuple[Path, ...] = ()
    """Readable directories (skills), at their own paths."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Paths relative to the workspace; a name at the top may contain `*`, which matches existing
    ones."""
    hidden: tuple[str, ...] = ()
    """Further ones, which cannot be read either."""
    below: CoveredPaths | None = None
    """The result of `covered_paths`; without it only names decide."""
    read_only: bool = False
    """Whether the whole workspace is read-only."""
    sealed: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the workspace that the run sees with these bytes, read-only, by real path."""
    paths: PersistentPaths | None = None
    """Which files take effect later, and so cannot be changed or made; None checks none."""
    opened: Opened = field(default_factory=Opened)
    """Those of them that the run may write."""
    network: bool = False
    """True: the host's network, unfiltered."""
    proxy_socket: Path | None = None
    """Unix socket of an HTTP proxy, the run's only way out, by `HTTP_PROXY` and the like; excludes
    `network`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All variables besides PATH, HOME and LANG."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    exit_code: int | None
    """None when a signal ended the program, or a limit the run."""
    signal: int | None = None
    """bubblewrap's exit code less 128; so `exit 137` reads as signal 9."""
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    """True: the output exceeded the limit, and the run ended there."""
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

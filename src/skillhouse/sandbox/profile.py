"""What a run may touch and use: the profile, its limits and the paths that stay protected."""

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
    """Whether a name, in any case, is one that a pattern means.

    `*` is any run of characters; in a pattern without a dot, one without a dot.

    >>> fits("id_*", "ID_work"), fits("id_*", "id_map.py"), fits(".env.*", ".env.a.b")
    (True, False, True)
    """
    return names_like((pattern,)).fullmatch(name.casefold()) is not None


@functools.cache
def names_like(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches each casefolded name that one of the patterns means."""
    stars = ("[^.]*" if "." not in pattern else ".*" for pattern in patterns)
    texts = (re.escape(p).replace(r"\*", star) for p, star in zip(patterns, stars, strict=True))
    return re.compile("|".join(texts), re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may use; going over one ends it, and `Completed.limit` says which."""

    seconds: float = EXEC_SECONDS
    memory_bytes: int = MEMORY_BYTES
    """Of all its processes together, files in its /tmp included."""
    processes: int = PROCESSES
    output_bytes: int = OUTPUT_BYTES
    file_bytes: int = FILE_BYTES


@dataclass(frozen=True, slots=True)
class SandboxProfile:
    """What a run may touch: nothing of the host beyond the system's programs and these."""

    workspace: Path
    """The only writable place, at its own path."""
    _: KW_ONLY
    readable: tuple[Path, ...] = ()
    """Directories (skills) that can be read, at their own paths."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Paths relative to the workspace; a name at the top may hold `*`, and then means those
    that exist."""
    hidden: tuple[str, ...] = ()
    """More of them, that a run cannot even read."""
    below: CoveredPaths | None = None
    """What of the workspace is covered besides, by `covered_paths`; else only names count."""
    read_only: bool = False
    """Whether nothing of the workspace can be written."""
    sealed: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the workspace that the run sees with these bytes, read-only, by real path."""
    paths: PersistentPaths | None = None
    """Which files act later, and so are neither changed nor made; None does not look at them."""
    opened: Opened = field(default_factory=Opened)
    """What of them the run may write all the same."""
    network: bool = False
    """True: the host's network, unfiltered."""
    proxy_socket: Path | None = None
    """Unix socket of an HTTP proxy: the run's only way out, offered by `HTTP_PROXY` and the like;
    not together with `network`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All variables beside PATH, HOME and LANG."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What came of a run."""

    exit_code: int | None
    """None when a signal ended the program, or a limit the run."""
    signal: int | None = None
    """As bubblewrap tells it, its exit code less 128; so `exit 137` reads as signal 9."""
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    """True: there was more output than the limit, and the run ended there."""
    timed_out: bool = False
    limit: str = ""
    """The limit that ended the run: "time", "memory", "processes", "output" or ""."""
    duration_seconds: float
    changes: tuple[str, ...] = ()
    """Files that act later and that it wrote, as it was allowed to."""
    notes: tuple[str, ...] = ()
    """What it made and may not make, and what became of that."""
    start_seconds: float | None = None
    """From the call to the first process inside; None where that is not known."""

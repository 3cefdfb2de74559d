"""Trees of skills in temporary directories, and discovery of them in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from skillhouse import discovery
from skillhouse.discovery import Root
from skillhouse.skill import SkillIndex
from tests.house.places import profile_under

PROBE = Path(__file__).with_name("probe.py")

NO_SKILL = b"---\nname: 'never closed\n---\n"
"""A SKILL.md that is refused."""


def write_skill(
    directory: Path, *, name: str | None = None, description: str = "Does things.", body: str = ""
) -> Path:
    """Write a skill named after its directory, or `name`, and return its SKILL.md."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "SKILL.md"
    head = f"---\nname: {name or directory.name}\ndescription: {description}\n---\n"
    file.write_text(head + body, encoding="utf-8")
    return file


def write_refused(directory: Path) -> Path:
    """Write a SKILL.md that no agent can use and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "SKILL.md"
    file.write_bytes(NO_SKILL)
    return file


def names(index: SkillIndex) -> list[str]:
    """Return the names of the skills in force, in their order."""
    return [skill.name for skill in index.skills]


def findings(index: SkillIndex, base: Path) -> list[tuple[str, str, str]]:
    """Return (severity, code, path relative to `base`) of each diagnostic, in their order."""
    return [
        (found.severity, found.code, _relative(found.path, base)) for found in index.diagnostics
    ]


def _relative(path: Path | None, base: Path) -> str:
    if path is None:
        return ""
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)


def everything(index: SkillIndex) -> list[str]:
    """Return all that an index holds, in its order, to compare two of them whole."""
    return [repr((skill, skill.packed_fields)) for skill in (*index.skills, *index.shadowed)] + [
        repr(found) for found in index.diagnostics
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a process found and which files it touched on the way."""

    skills: list[str]
    """Names in their order."""
    findings: list[list[Any]]
    """[severity, code, path or None] in their order."""
    everything: list[str]
    opened: list[str]
    """Paths given to `open`, the files of the cache left out."""
    listed: list[str]
    """Paths given to `scandir`."""
    peak_mib: float

    @property
    def codes(self) -> list[str]:
        """The codes of the findings, in their order."""
        return [code for _, code, _ in self.findings]


def probe(
    *roots: Path | Root | str,
    cache: Path | None = None,
    timeout_seconds: float = 60,
    **options: Any,
) -> Report:
    """Discover `roots` in a fresh process; one that hangs or crashes fails the test.

    Args:
        roots: As for `discover`.
        cache: As for `discover`.
        timeout_seconds: After how long the process is taken to hang.
        options: See probe.py.
    """
    process = subprocess.run(
        probe_command(roots, cache=cache, **options),
        capture_output=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert process.returncode == 0, process.stderr.decode(errors="replace")
    return Report(**json.loads(process.stdout))


def probe_command(
    roots: Sequence[Path | Root | str], *, cache: Path | None = None, **options: Any
) -> list[str]:
    """Return the command that `probe` runs."""
    given = [root if isinstance(root, Root) else Root(Path(root)) for root in roots]
    wanted = {
        "roots": [[str(root.path), root.scope] for root in given],
        "cache": None if cache is None else str(cache),
        **options,
    }
    return [sys.executable, str(PROBE), json.dumps(wanted)]


@contextmanager
def place_for_all() -> Iterator[Path]:
    """Give a directory that other users can enter, which those of pytest are not."""
    with TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        place.chmod(0o755)
        yield place


NOBODY = 65_534


def probe_as_nobody(*roots: Path, **options: Any) -> Report:
    """Discover as `probe` does, without the rights of root, who may read everything."""
    if os.getuid() == 0:
        options["uid"] = NOBODY
    return probe(*roots, **options)


def give_to_nobody(directory: Path) -> None:
    """Make a directory and what is in it theirs, as whom `probe_as_nobody` looks."""
    if os.getuid() == 0:
        for path in (*directory.iterdir(), directory):
            os.chown(path, NOBODY, NOBODY)


def discover(roots: Sequence[Root | str | Path], **options: Any) -> SkillIndex:
    """Find skills by the profile of the test; ours where it names none."""
    return discovery.discover(roots, **{"profile": profile_under(), **options})


def later() -> int:
    """Return a time at which no file of a test is fresh any more."""
    return time.time_ns() + 10_000_000_000

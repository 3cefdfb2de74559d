"""What tests do again and again: run a program, wait for something, copy a template."""

from __future__ import annotations

import io
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Need = Callable[[object, str], None]
"""The fixture `need`: skips a test where the first is missing, and says the second."""


def ran(
    argv: Sequence[str | Path], *, check: bool = False, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return it with its output; the rest is `subprocess.run`'s."""
    return subprocess.run(argv, capture_output=True, text=True, check=check, **more)


def until(found: Callable[[], T], seconds: float = 10) -> T:
    """Return the first true value, or what there is after `seconds`: assert what it should be."""
    deadline = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


def copy(template: Path, make: Callable[[Path], None], place: Path) -> None:
    """Fill `place` with what `make` puts into `template` once: hard links, times and all.

    `shutil.copytree` would make files of their own out of hard links.
    """
    if not template.exists():
        begun = template.with_name(f"{template.name}-begun")
        begun.mkdir()
        make(begun)
        begun.rename(template)
    subprocess.run(["cp", "-a", f"{template}/.", place], check=True)


class Clock:
    """A clock that a test sets, in seconds."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True

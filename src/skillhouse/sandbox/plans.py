"""How a plan of several commands is started: by our own runner, never by a shell."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillhouse.sandbox.bubblewrap import PROGRAM_PATH

RUNNER = Path(__file__).with_name("plan_runner.py")


def plan_argv(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the program and arguments that run a plan inside the sandbox.

    Args:
        value: The plan as plain values (`permission.CommandPlan.value`).
    """
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return (*_python(), "-I", "-S", "-c", _source(), text)


def plan_readable() -> tuple[Path, ...]:
    """Return the directories that the runner needs beside the system's."""
    if _system_python() is not None:
        return ()
    return (Path(sys.base_prefix).resolve(),)


def _python() -> tuple[str, ...]:
    if _system_python() is not None:
        return ("python3",)
    # The launcher wants a plain name, and the shell knows the way to the program: its script is
    # this constant, and all words of the plan are arguments.
    return ("sh", "-c", 'exec "$@"', "sh", str(_own_python()))


def _own_python() -> Path:
    version = sys.version_info
    return Path(sys.base_prefix).resolve() / "bin" / f"python{version.major}.{version.minor}"


def interpreter() -> tuple[str, tuple[Path, ...]]:
    """Return the Python for what runs inside, and the directories it needs beside the system's."""
    return _system_python() or str(_own_python()), plan_readable()


@functools.cache
def _system_python() -> str | None:
    found = shutil.which("python3", path=PROGRAM_PATH)
    # One that is only a link to a place outside the system is not there in the sandbox.
    if found is None or not Path(found).resolve().is_relative_to("/usr"):
        return None
    return found


@functools.cache
def _source() -> str:
    return RUNNER.read_text(encoding="utf-8")

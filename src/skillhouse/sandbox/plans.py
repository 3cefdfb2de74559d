"""Starts a plan of several commands by our own runner, never by a shell."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillhouse.sandbox.bridge import own_python
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
    return (own_python()[0],)


def _python() -> tuple[str, ...]:
    if _system_python() is not None:
        return ("python3",)
    # The launcher requires a plain name, so the shell starts the program by its path. Its script is
    # this constant, and all words of the plan are arguments.
    return ("sh", "-c", 'exec "$@"', "sh", str(own_python()[1]))


def interpreter() -> tuple[str, tuple[Path, ...]]:
    """Return the Python for what runs inside, and the directories it needs beside the system's."""
    return _system_python() or str(own_python()[1]), plan_readable()


@functools.cache
def _system_python() -> str | None:
    found = shutil.which("python3", path=PROGRAM_PATH)
    # A link to a file outside the system's directories does not work in the sandbox.
    if found is None or not Path(found).resolve().is_relative_to("/usr"):
        return None
    return found


@functools.cache
def _source() -> str:
    return RUNNER.read_text(encoding="utf-8")

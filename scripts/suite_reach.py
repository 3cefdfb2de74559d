"""Notes which lines of the package run, in a process of pytest and in those that it starts.

scripts/suite_tracer.py copies this file beside the installed packages for the time of a recording,
with a `.pth` file that calls `in_child`. It needs `sys.monitoring` (Python 3.12): each place in the
code reports once for each test, so a recorded run costs little more than any other.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

TOOL = 4
ANCESTORS_MAX = 12
lines: dict[str, bytearray] = {}
"""By file: a bit for each line that ran since `take` was called."""
source = ""


def start(package: str) -> None:
    """Begin to note the lines of the files below a directory, which ends in a slash."""
    global source  # noqa: PLW0603 - one process, one recording.
    source = package
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    if monitoring.get_tool(TOOL):
        return

    def entered(code: CodeType, _: int) -> Any:
        if code.co_filename.startswith(source):
            monitoring.set_local_events(TOOL, code, monitoring.events.LINE)
        return monitoring.DISABLE

    def ran(code: CodeType, line: int) -> Any:
        bits = lines.setdefault(code.co_filename, bytearray())
        if line >> 3 >= len(bits):
            bits.extend(bytes((line >> 3) + 1 - len(bits)))
        bits[line >> 3] |= 1 << (line & 7)
        return monitoring.DISABLE

    monitoring.use_tool_id(TOOL, "suite")
    monitoring.register_callback(TOOL, monitoring.events.PY_START, entered)
    monitoring.register_callback(TOOL, monitoring.events.LINE, ran)
    monitoring.set_events(TOOL, monitoring.events.PY_START)


def take() -> dict[str, str]:
    """Return what ran since the last time, as bits in hexadecimal by file, and begin again."""
    found = {name.removeprefix(source): bits.hex() for name, bits in lines.items()}
    lines.clear()
    sys.monitoring.restart_events()  # type: ignore[attr-defined, unused-ignore]
    return found


def current_test(place: Path) -> str:
    """Return the test that an ancestor of this process runs, or nothing."""
    process = os.getpid()
    for _ in range(ANCESTORS_MAX):
        with contextlib.suppress(OSError):
            return (place / f"current.{process}").read_text(encoding="utf-8")
        try:
            stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        except OSError:
            return ""
        process = int(stat.rpartition(")")[2].split()[1])
        if process <= 1:
            return ""
    return ""


def in_child(directory: str, package: str) -> None:
    """Note this process too where a test that is recorded started it."""
    place = Path(directory)
    test = current_test(place) if place.is_dir() else ""
    if not test or not hasattr(sys, "monitoring"):
        return
    own = os.getpid()
    start(package)

    def end() -> None:
        if os.getpid() == own:  # Not in what was forked from it.
            found = {"test": test, "lines": take()}
            with contextlib.suppress(OSError):
                name = f"child.{own}.{os.urandom(4).hex()}"
                (place / name).write_text(json.dumps(found), encoding="utf-8")

    atexit.register(end)

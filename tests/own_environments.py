"""Environments of tests whose packages contradict ours, or are no part of the project.

CI makes them, and so does a variable such as `SKILLHOUSE_ADAPTERS=1`; else they are used if there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN, SUFFIX = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
UV = ROOT / ".x/uv" / BIN / f"uv{SUFFIX}"
SECONDS = 300
"""For the packages to come, or for what runs there."""


def own_python(name: str, *, makes: str) -> Path | None:
    """Return the Python of the environment that requirements/NAME.txt describes, or None.

    Args:
        makes: The variable that has it made where it is missing.
    """
    pins = ROOT / f"requirements/{name}.txt"
    place = ROOT / f".x/{name}"
    python, stamp = place / BIN / f"python{SUFFIX}", place / "made.stamp"
    wanted = hashlib.sha256(sys.version.encode() + pins.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    if not (os.environ.get("CI") or os.environ.get(makes)):
        return None
    shutil.rmtree(place, ignore_errors=True)
    run_there(UV, "venv", "--quiet", "--python", sys.executable, place)
    run_there(UV, "pip", "sync", "--quiet", "--python", python, "--require-hashes", pins)
    stamp.write_text(wanted)
    return python


def run_there(*command: str | Path, cwd: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

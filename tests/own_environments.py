"""Environments of tests whose packages contradict ours, or are no part of the project.

CI makes them, and so does a variable such as `SKILLHOUSE_ADAPTERS=1`; else they are used if there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.harness import ran

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


def own_npm(name: str, *, makes: str) -> Path | None:
    """Return the node_modules of the packages that requirements/NAME.json pins, or None.

    No script of a package runs, and the archives are those of the pinned digests.
    """
    pins = ROOT / f"requirements/{name}.json"
    place = ROOT / f".x/{name}"
    stamp = place / "made.stamp"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return place / "node_modules"
    npm = shutil.which("npm")
    if npm is None or not (os.environ.get("CI") or os.environ.get(makes)):
        return None
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    packages = json.loads(pins.read_text())
    own = {"HOME": str(place), "npm_config_cache": str(place / "cache")}
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    run_there(npm, "install", *quiet, "--prefix", place, *packages, own=own)
    found = json.loads((place / "package-lock.json").read_text())["packages"]
    digests = {
        f"{path.removeprefix('node_modules/')}@{one['version']}": one["integrity"]
        for path, one in found.items()
        if path
    }
    assert digests == packages
    stamp.write_text(wanted)
    return place / "node_modules"


def run_there(
    *command: str | Path, cwd: Path | None = None, own: Mapping[str, str] | None = None
) -> str:
    python_path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": python_path, **(own or {})}
    done = ran(command, cwd=cwd, env=environment, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""Environments of tests whose packages contradict ours, or are no part of the project.

CI makes them, and so does a variable such as `SKILLHOUSE_ADAPTERS=1`; else they are used if there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
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


def own_npm(name: str, *, makes: str, peers: bool = True) -> Path | None:
    """Return the node_modules of the packages that requirements/NAME.json pins, or None.

    No script of a package runs, and the archives are those of the pinned digests.

    Args:
        makes: As for `own_python`.
        peers: Whether what a package expects beside itself comes too.
    """
    pins = (ROOT / f"requirements/{name}.json").read_bytes()
    packages = json.loads(pins)
    verb = ("install", *(() if peers else ("--legacy-peer-deps",)), *packages)
    place = _npm_place(name, pins, makes, verb)
    if place is None:
        return None
    found = _locked(place / "package-lock.json")
    digests = {
        # Several versions of one package have names of their own: "own@npm:its@1.2.3".
        f"{path.removeprefix('node_modules/')}@"
        + (f"npm:{one['name']}@" if "name" in one else "")
        + one["version"]: one["integrity"]
        for path, one in found.items()
        if path
    }
    assert digests == packages
    return place / "node_modules"


def own_npm_of(folder: Path, *, makes: str) -> Path | None:
    """Return the node_modules that a package of this tree locks, or None; as `own_npm` does."""
    files = [folder / "package.json", folder / "package-lock.json"]
    locked = b"".join(file.read_bytes() for file in files)
    assert all(one.get("integrity") for path, one in _locked(files[1]).items() if path)
    place = _npm_place(folder.name, locked, makes, ("ci",), files)
    return None if place is None else place / "node_modules"


def _locked(lock: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(lock.read_text())["packages"]
    return found


def _npm_place(
    name: str, pins: bytes, makes: str, verb: tuple[str, ...], files: Sequence[Path] = ()
) -> Path | None:
    place = ROOT / f".x/{name}"
    stamp = place / "made.stamp"
    wanted = hashlib.sha256(pins).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return place
    npm = shutil.which("npm")
    if npm is None or not (os.environ.get("CI") or os.environ.get(makes)):
        return None
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for file in files:
        shutil.copy(file, place)
    own = {"HOME": str(place), "npm_config_cache": str(place / "cache")}
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    run_there(npm, *verb, *quiet, "--prefix", place, own=own)
    stamp.write_text(wanted)
    return place


def run_there(
    *command: str | Path, cwd: Path | None = None, own: Mapping[str, str] | None = None
) -> str:
    python_path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": python_path, **(own or {})}
    done = ran(command, cwd=cwd, env=environment, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

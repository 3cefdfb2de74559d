"""Runs the tests of adapters that need an environment of their own, each in its own.

CI makes those environments, and so does `SKILLHOUSE_ADAPTERS=1`; else they are used if there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN, SUFFIX = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
UV = ROOT / ".x/uv" / BIN / f"uv{SUFFIX}"
MAKES = "SKILLHOUSE_ADAPTERS"
SECONDS = 300
"""For the packages to come, or for the tests to run."""


def own_python(name: str) -> Path | None:
    """Return the Python of an adapter's environment as its pins describe it, or None."""
    pins = ROOT / f"requirements/adapter-{name}.txt"
    place = ROOT / f".x/adapter-{name}"
    python, stamp = place / BIN / f"python{SUFFIX}", place / "made.stamp"
    wanted = hashlib.sha256(sys.version.encode() + pins.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    if not (os.environ.get("CI") or os.environ.get(MAKES)):
        return None
    shutil.rmtree(place, ignore_errors=True)
    _do(UV, "venv", "--quiet", "--python", sys.executable, place)
    _do(UV, "pip", "sync", "--quiet", "--python", python, "--require-hashes", pins)
    stamp.write_text(wanted)
    return python


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude-agent", "google-adk"])
def test_an_adapter_works_in_an_environment_of_its_own(name: str) -> None:
    python = own_python(name)
    if python is None:
        pytest.skip(f"no environment for the adapter {name}: {MAKES}=1 makes one, with a network")
    folder = "tests/frontends/adapters"
    tests = (f"{folder}/test_{name.replace('-', '_')}.py", f"{folder}/test_own_skills.py")
    only = ("-k", name.partition("-")[0])
    done = _do(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *only, *tests, cwd=ROOT)
    assert " passed" in done
    assert "skipped" not in done


def _do(*command: str | Path, cwd: Path | None = None) -> str:
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

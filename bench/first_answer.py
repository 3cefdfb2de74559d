"""How long it is from a clone to the first useful answer.

`./x bench first_answer [--rounds N]`: each round clones this tree into an empty directory, with an
empty home, and asks `skillhouse search` which skill fits a request: once by `./x run`, which sets
up all that it needs, and once by `uv tool install '.[all]'` with the uv of this tree. Cold is
without a cache of packages, so they come from the package index that this machine is set to; warm
is with the cache that the cold round left. The answer is compared: what does not name the skill is
no answer. The least of the rounds is shown, since other work on a machine only ever adds to it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from _measure import ROOT, markdown_table

UV = ROOT / ".x/uv/bin/uv"
REQUEST = ("search", "will it rain in Tokyo")
EXPECTED = "weather"


def timed(command: list[str | Path], at: Path, environment: Mapping[str, str]) -> float:
    """Run a command to its end and return its seconds; raise when it fails or does not answer."""
    begun = time.perf_counter()
    done = subprocess.run(
        command, cwd=at, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    if REQUEST[0] in command and EXPECTED not in done.stdout:
        raise RuntimeError(f"expected `{EXPECTED}`, got: {done.stdout}")
    return seconds


def measured(place: Path, cache: Path) -> Iterator[tuple[str, float]]:
    """Yield the seconds of each step in a new clone."""
    clone, home, programs = place / "skillhouse", place / "home", place / "bin"
    home.mkdir(parents=True)
    environment = {
        **os.environ,
        "HOME": str(home),
        "UV_CACHE_DIR": str(cache / "uv"),
        "PIP_CACHE_DIR": str(cache / "pip"),
        "UV_TOOL_DIR": str(place / "tools"),
        "UV_TOOL_BIN_DIR": str(programs),
    }
    yield "git clone", timed(["git", "clone", "--quiet", ROOT, clone], place, environment)
    run: list[str | Path] = [sys.executable, clone / "x", "run", *REQUEST]
    yield "first answer, `./x run`", timed(run, home, environment)
    yield "second answer, `./x run`", timed(run, home, environment)
    install: list[str | Path] = [UV, "tool", "install", "--quiet", "-p", sys.executable, ".[all]"]
    yield "`uv tool install '.[all]'`", timed(install, clone, environment)
    yield "first answer, installed", timed([programs / "skillhouse", *REQUEST], home, environment)


def main() -> None:
    """Measure rounds without and with a cache of packages, and print the least."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            for warm in (0, 1):
                base = Path(place) / f"{number}-{warm}"
                for step, seconds in measured(base, Path(place) / "cache"):
                    found.setdefault(step, ([], []))[warm].append(seconds)
    rows = [[step, *(f"{min(times):.1f}" for times in both)] for step, both in found.items()]
    print(markdown_table(["step", "cold s", "warm s"], rows))


if __name__ == "__main__":
    main()

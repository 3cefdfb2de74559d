"""What a search costs beside a list of the same skills, and what its index costs to make.

`./x bench search [--skills N] [--rounds N]` writes a library that is the same on every machine, its
words as unevenly spread as those of a language, and runs the command line in fresh processes:
CPU time of the whole process, the least of the rounds, and its largest resident set.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from _measure import ROOT, Usage, markdown_table

VOCABULARY = 60_000
QUERY = ("merge", "w17", "w230", "w4001", "reports")
READ = """
import os, sys
for place in os.scandir(sys.argv[1]):
    with open(place.path + "/SKILL.md", "rb") as file:
        file.read()
"""
RATIO_TARGET = 1.3
FIRST_ANSWER_TARGET_SECONDS = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure search.")
    parser.add_argument("--skills", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        library = make_library(place / "home/library", options.skills)
        print(compare(place / "home", library, options.rounds))
        print("\n" + first_answers(place / "home", options.rounds))


def make_library(root: Path, count: int) -> Path:
    """Write `count` skills of about 5 KB; the same at every call."""
    chance = random.Random(1)
    weights = list(accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))

    def text(words: int) -> str:
        return " ".join(f"w{bisect(weights, chance.random() * weights[-1])}" for _ in range(words))

    for number in range(count):
        skill = root / f"skill-{number:06}"
        skill.mkdir(parents=True)
        head = f"---\nname: {skill.name}\ndescription: {text(35)}\n---\n"
        lines = "\n".join(text(12) for _ in range(70))
        (skill / "SKILL.md").write_text(f"{head}# Skill {number}\n\n{lines}\n", "utf-8")
    return root


def compare(home: Path, library: Path, rounds: int) -> str:
    """Return a table of what each case costs."""
    words = home / ".cache/skillhouse/words"
    changed = next(library.iterdir()) / "SKILL.md"
    place = ("--root", str(library))
    skillhouse = (sys.executable, "-m", "skillhouse")
    search = (*skillhouse, "search", *QUERY, *place)
    cases: dict[str, Sequence[str]] = {
        "floor: read every file": (sys.executable, "-c", READ, str(library)),
        "`list`": (*skillhouse, "list", *place),
        "`search`, nothing kept": search,
        "`search`, kept": search,
        "`search`, one skill changed": search,
        "`catalog`": (*skillhouse, "catalog", *place),
        "`catalog --for`, kept": (*skillhouse, "catalog", "--for", " ".join(QUERY), *place),
        "`rehearse`, kept": (*skillhouse, "rehearse", *QUERY, *place),
        "`search --no-cache`": (*search, "--no-cache"),
    }
    found: dict[str, list[Usage]] = {name: [] for name in cases}
    run(cases["`search`, kept"], home)
    for _ in range(rounds):
        for name, command in cases.items():
            if name.endswith("nothing kept"):
                shutil.rmtree(words)
            elif name.endswith("one skill changed"):
                with changed.open("a") as file:
                    file.write("One more line.\n")
            found[name].append(run(command, home))
    least = {name: min(usage.cpu_ms for usage in usages) for name, usages in found.items()}
    rows = [
        (
            name,
            f"{ms:,.0f}",
            f"{ms / least['`list`']:.2f}",
            f"{min(usage.peak_mib for usage in found[name]):.0f}",
        )
        for name, ms in least.items()
    ]
    table = markdown_table(("", "CPU ms", "× list", "peak MiB"), rows)
    size = sum(path.stat().st_size for path in words.iterdir())
    ratio = least["`search`, kept"] / least["`list`"]
    return (
        f"{table}\n\nkept words: {size / 1e6:.1f} MB; search costs {ratio:.2f} times list, "
        f"target {RATIO_TARGET:g}"
    )


def run(command: Sequence[str], home: Path) -> Usage:
    """Run a command in `home`."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_of(home), cwd=home
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"exit code {process.returncode} of: {' '.join(command)}")
    cpu_ms = (used.ru_utime + used.ru_stime) * 1_000
    return Usage(cpu_ms=cpu_ms, peak_mib=used.ru_maxrss / 1_024, said={})


def first_answers(home: Path, rounds: int) -> str:
    """Return how soon `search_skills` answers over MCP while nothing is kept."""
    first: list[float] = []
    complete: list[float] = []
    for _ in range(rounds):
        shutil.rmtree(home / ".cache/skillhouse/words")
        with subprocess.Popen(
            (sys.executable, "-m", "skillhouse", "mcp", "--root", str(home / "library")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_of(home),
            cwd=home,
        ) as process:
            client = {"protocolVersion": "2025-06-18", "capabilities": {}}
            _ask(process, "initialize", {**client, "clientInfo": {"name": "b", "version": "1"}})
            _ask(process, "tools/list", {})
            call = {"name": "search_skills", "arguments": {"query": " ".join(QUERY)}}
            began = time.perf_counter()
            answer = _ask(process, "tools/call", call)
            first.append(time.perf_counter() - began)
            while "being built" in json.dumps(answer):
                answer = _ask(process, "tools/call", call)
            complete.append(time.perf_counter() - began)
            process.kill()
    return (
        f"the first `search_skills` over MCP, nothing kept: {min(first):.2f} to {max(first):.2f} s "
        f"(target {FIRST_ANSWER_TARGET_SECONDS:g}); complete after {min(complete):.2f} to "
        f"{max(complete):.2f} s, wall time"
    )


def _ask(process: subprocess.Popen[bytes], method: str, params: Mapping[str, object]) -> object:
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    while True:
        answer = json.loads(process.stdout.readline())
        if "id" in answer:
            return answer


def _of(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), *filter(None, sys.path))),
    }


if __name__ == "__main__":
    main()

"""What a hook event costs beside the start of a bare Python from a shell, interleaved.

`./x bench hooks [--rounds N]` measures each event with a judge that stays, and with none, where the
hook judges in its own process. The floor is `sh -c 'python3 -I -S -c pass'`, once a round.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _measure import ROOT, markdown_table
from skillhouse.frontends.hooks.judge_client import PROGRAM, VARIABLES

P50_MAX, P99_MAX, ALONE_MAX = 2.0, 2.5, 20.0
"""Times of the floor that an event may cost."""
MEMORY_MAX_MB = 120
SCRIPT = ROOT / "src/skillhouse/frontends/hooks/hook_client.py"
RULES = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "touch *"\n'
EVENTS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "Bash, allowed": ("before", "Bash", {"command": "touch a"}),
    "Bash, denied": ("before", "Bash", {"command": "rm -rf /"}),
    "Read": ("before", "Read", {"file_path": "notes.txt"}),
    "after Bash": ("after", "Bash", {"command": "touch a"}),
    "a prompt": ("next", "", {}),
}
FLOOR = "python3 -I -S -c pass"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure hook events.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--alone", type=int, default=20, help="rounds without a judge")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory).resolve())
        try:
            print(bench.report(options.rounds, options.alone))
        finally:
            bench.end()


class Bench:
    """One home and project, and the judge that stays there."""

    def __init__(self, place: Path) -> None:
        self.home, self.project = place / "home", place / "project"
        self.directory = self.home / ".local/state/skillhouse/hooks"
        (self.project / ".git").mkdir(parents=True)
        (self.project / "notes.txt").write_text("notes\n")
        (self.home / ".config/skillhouse").mkdir(parents=True)
        (self.home / ".config/skillhouse/config.toml").write_text(RULES)
        self.directory.mkdir(parents=True, mode=0o700)
        self.directory.parent.chmod(0o700)
        # As an installed program finds itself, and as one that is not installed does.
        start = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import runpy; "
        start += "runpy.run_module('skillhouse.frontends.hooks', run_name='__main__')"
        program = (sys.executable, "-I", "-c", start)
        (self.directory / os.fsdecode(PROGRAM)).write_text("\0".join(program))
        (self.directory / os.fsdecode(VARIABLES)).write_text(f"HOME={self.home}")
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self.calls = 0

    def report(self, rounds: int, alone: int) -> str:
        times: dict[str, list[float]] = {"floor": []}
        self.hook("Bash, allowed")
        until = time.monotonic() + 30
        while not (self.directory / "judge.sock").exists() and time.monotonic() < until:
            time.sleep(0.05)
        for name in EVENTS:
            self.hook(name)
        for _ in range(rounds):
            times["floor"].append(self.floor())
            for name in EVENTS:
                times.setdefault(name, []).append(self.hook(name))
        memory = self.memory_mb()
        self.end()
        (self.directory / "judge.sock").mkdir()
        floor_alone, found_alone = [], []
        for _ in range(alone):
            floor_alone.append(self.floor())
            found_alone.append(self.hook("Bash, allowed"))
            # The judge that it started finds no place for its socket, and ends.
            while self.judges():
                time.sleep(0.02)
        rows = []
        for name, found in times.items():
            half, most = at(found, 0.5), at(found, 0.99)
            floor, top = at(times["floor"], 0.5), at(times["floor"], 0.99)
            ratios = (f"{half / floor:.2f}", f"{most / top:.2f}")
            rows.append((name, f"{half:.1f}", f"{most:.1f}", *ratios))
        ratio = at(found_alone, 0.5) / at(floor_alone, 0.5)
        rows.append(
            ("Bash, without a judge", f"{at(found_alone, 0.5):.1f}", "", f"{ratio:.1f}", "")
        )
        head = ("event", "p50 ms", "p99 ms", f"p50 / floor (≤ {P50_MAX})", f"p99 (≤ {P99_MAX})")
        said = f"memory of the judge: {memory:.0f} MB (≤ {MEMORY_MAX_MB}); without one at most "
        return f"{markdown_table(head, rows)}\n\n{said}{ALONE_MAX:g} times the floor"

    def floor(self) -> float:
        return self.timed(f"{sys.executable} -I -S -c pass", b"")

    def hook(self, name: str) -> float:
        moment, tool, given = EVENTS[name]
        self.calls += moment == "before"
        event = {
            "session_id": "bench",
            "cwd": str(self.project),
            "tool_name": tool,
            "tool_input": given,
            "tool_use_id": f"call-{self.calls}",
        }
        words = [sys.executable, "-I", "-S", str(SCRIPT), "claude-code", "enforce", moment]
        words += [str(self.directory), "CLAUDE_PROJECT_DIR"]
        line = f"{shlex.join(words)} || {{ echo 'skillhouse cannot judge' >&2; exit 2; }}"
        return self.timed(line, json.dumps(event).encode())

    def timed(self, line: str, data: bytes) -> float:
        began = time.perf_counter()
        subprocess.run(
            ["/bin/sh", "-c", line],
            input=data,
            cwd=self.project,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return (time.perf_counter() - began) * 1_000

    def memory_mb(self) -> float:
        """Return the proportional set size of the judge."""
        for process in self.judges():
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            return int(text.split("Pss:")[1].split()[0]) / 1_000
        return float("nan")

    def judges(self) -> list[int]:
        """Return the processes that serve this directory."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and os.fsencode(self.directory) in words:
                found.append(int(place.name))
        return found

    def end(self) -> None:
        for process in self.judges():
            os.kill(process, signal.SIGTERM)
            while process in self.judges():
                time.sleep(0.02)
        socket = self.directory / "judge.sock"
        if socket.is_socket():
            socket.unlink()


def at(found: list[float], part: float) -> float:
    return sorted(found)[min(len(found) - 1, int(len(found) * part))]


if __name__ == "__main__":
    main()

"""What a command costs that a hook let run in our sandbox, beside bubblewrap and a bare Python.

`./x bench hooked_runs [--rounds N]` runs `true` by the runner, by a plain bubblewrap with the same
kinds of namespaces, and a bare Python, interleaved. The hook's own cost is `./x bench hooks`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from _measure import ROOT, markdown_table
from hooks import Bench, at
from skillhouse.frontends.hooks.client_rules import runner_words
from skillhouse.frontends.hooks.hook_clients import hook_client

MORE_MAX_MS = 10.0
"""What a run may cost more than bubblewrap and one bare Python."""
PYTHON = f"{sys.executable} -I -S -c pass"
BWRAP = (
    "bwrap --unshare-all --unshare-user --disable-userns --uid 65534 --gid 65534 --cap-drop ALL "
    "--new-session --die-with-parent --clearenv --proc /proc --dev /dev --tmpfs /tmp "
    "--ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin "
    "--bind {project} {project} --chdir {project} true"
)


class RunBench(Bench):
    """One home and project of which every command is allowed."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        rules = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
        (self.home / ".config/skillhouse/config.toml").write_text(rules)
        rewrite = hook_client("claude-code").rewrite
        if rewrite is None or rewrite.exception is None:
            raise SystemExit("its commands cannot be rewritten")
        own = [rewrite.exception.filled(runner_words(self.directory))]
        settings = self.home / ".claude/settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"sandbox": {"excludedCommands": own}}))

    def line(self) -> str:
        """Return what the client runs instead of `true`."""
        self.calls += 1
        event = {
            "session_id": "bench",
            "cwd": str(self.project),
            "permission_mode": "default",
            "tool_name": "Bash",
            "tool_input": {"command": "true"},
            "tool_use_id": f"call-{self.calls}",
        }
        script = ROOT / "src/skillhouse/frontends/hooks/hook_client.py"
        words = [sys.executable, "-I", "-S", str(script), "claude-code", "sandbox", "before"]
        done = subprocess.run(
            ["/bin/sh", "-c", f"{shlex.join([*words, str(self.directory)])} || exit 2"],
            input=json.dumps(event).encode(),
            capture_output=True,
            cwd=self.project,
            env=self.environment,
            check=True,
        )
        said: Mapping[str, str] = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]
        return said["command"]

    def used_ms(self) -> float:
        """Return the processor time of what this process started, and of the judge with what that
        started: on a busy machine it says more than the clock."""
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = (found.ru_utime + found.ru_stime) * 1000
        for judge in self.judges():
            fields = Path(f"/proc/{judge}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) * 1000 / os.sysconf("SC_CLK_TCK")
        return total


def timed(line: str, project: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["/bin/sh", "-c", f"{line}; exit $?"], cwd=project, check=True)
    return (time.perf_counter() - began) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure commands that hooks let run.")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("SKILLHOUSE_BENCH_PLACE")) as directory:
        bench = RunBench(Path(directory).resolve())
        try:
            timed(bench.line(), bench.project)
            times: dict[str, list[float]] = {}
            used: dict[str, float] = {}
            bwrap = BWRAP.format(project=shlex.quote(str(bench.project)))
            for _ in range(options.rounds):
                for name, line in (
                    ("a bare Python", PYTHON),
                    ("bubblewrap", bwrap),
                    ("the runner", bench.line()),
                ):
                    before = bench.used_ms()
                    times.setdefault(name, []).append(timed(line, bench.project))
                    used[name] = used.get(name, 0.0) + bench.used_ms() - before
        finally:
            bench.end()
    mean = {name: sum_ms / options.rounds for name, sum_ms in used.items()}
    rows = [
        (name, f"{at(one, 0.5):.1f}", f"{at(one, 0.99):.1f}", f"{mean[name]:.1f}")
        for name, one in times.items()
    ]
    floor = at(times["a bare Python"], 0.5) + at(times["bubblewrap"], 0.5)
    more = at(times["the runner"], 0.5) - floor
    print(markdown_table(("what", "p50 ms", "p99 ms", "processor ms"), rows))
    work = mean["the runner"] - mean["a bare Python"] - mean["bubblewrap"]
    print(f"\nmore than both: {more:.1f} ms (≤ {MORE_MAX_MS:g}); of processors {work:.1f} ms")


if __name__ == "__main__":
    main()

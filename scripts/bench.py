"""Runs the benchmarks of bench/ one after the other: `./x bench [NAME...] [OPTIONS]`.

The options, which start with `-`, go to each of them. Those whose result is on record are in
bench/research and run by name only: `./x bench research/NAME`.
Exit codes: 0 when all ended well, 1 when one failed, 2 for an unknown name.
"""

import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "bench"
RESEARCH = ("research/conformance", "research/confidence_fit", "research/fit")


def main() -> int:
    found = {path.stem: path for path in sorted(BENCH.glob("[!_]*.py"))}
    by_name = found | {name: BENCH / f"{name}.py" for name in RESEARCH}
    names = list(takewhile(lambda argument: not argument.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(names) :]
    if unknown := [name for name in names if name not in by_name]:
        print(f"unknown benchmark `{unknown[0]}`; there is: {', '.join(by_name)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or found:
        print(f"== {name}", flush=True)
        command = [sys.executable, str(by_name[name]), *options]
        # What is in bench/research imports the modules of bench too.
        own = {"PYTHONPATH": str(BENCH)} if name in RESEARCH else {}
        if subprocess.run(command, check=False, env=os.environ | own).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

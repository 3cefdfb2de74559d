"""Runs the benchmarks of bench/ one after the other: `./x bench [NAME...] [OPTIONS]`.

The options, which start with `-`, go to each of them.
Exit codes: 0 when all ended well, 1 when one failed, 2 for an unknown name.
"""

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "bench"


def main() -> int:
    found = {path.stem: path for path in sorted(BENCH.glob("[!_]*.py"))}
    names = list(takewhile(lambda argument: not argument.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(names) :]
    if unknown := [name for name in names if name not in found]:
        print(f"unknown benchmark `{unknown[0]}`; there is: {', '.join(found)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or found:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, found[name], *options], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Writes the table of the sandbox's levels into docs/concepts/security.md, from self-tests.

No account of one machine gets every level: the superuser has no rlimits, a user often no control
groups. So it takes what `skillhouse sandbox status --levels --json` printed on each account:

    python scripts/sandbox_table.py ROOT.json USER.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "security.md"
BEGIN, END = "<!-- levels: begin -->\n", "<!-- levels: end -->\n"
NAMES = {
    "bubblewrap+seccomp+cgroup": "cgroup",
    "bubblewrap+seccomp+rlimits": "rlimits",
    "landlock+seccomp+rlimits": "landlock",
    "container+landlock+seccomp": "container",
}
"""The columns, by the level's own name."""
MARKS = {True: "holds", False: "**no**", None: ""}
CELLS = "python_cell_"

Results = Mapping[str, Mapping[str, bool]]


def results_of(printed: Iterable[Mapping[str, object]]) -> Results:
    """Return each level's probes, from what each account printed.

    A probe that fails on one account fails.
    """
    found: dict[str, dict[str, bool]] = {}
    for one in printed:
        levels = one["levels"]
        if not isinstance(levels, dict):
            raise ValueError("expected what `sandbox status --levels --json` prints")
        for level, status in levels.items():
            if status["level"] != level:
                continue
            probes = found.setdefault(level, {})
            for probe in status["probes"]:
                name = probe["name"]
                if level.startswith("container") and not name.startswith(CELLS):
                    name = CELLS + name  # It is for skills' tools only.
                probes[name] = probes.get(name, True) and probe["passed"]
    return found


def table(results: Results) -> str:
    """Return the table in Markdown, each probe in a row."""
    names = sorted({name for probes in results.values() for name in probes})
    lines = [
        f"| probe | {' | '.join(NAMES.values())} |",
        f"|---|{'---|' * len(NAMES)}",
    ]
    for name in names:
        marks = (MARKS[results.get(level, {}).get(name)] for level in NAMES)
        lines.append(f"| `{name}` | {' | '.join(marks)} |")
    return "".join(f"{line}\n" for line in lines)


def written(page: str, text: str) -> str:
    """Return the page with another table; ValueError if it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected the lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}{text}{end}{after}"


def main(arguments: Sequence[str]) -> None:
    results = results_of(json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments)
    if missing := [level for level in NAMES if level not in results]:
        sys.exit(f"no account had the level: {', '.join(missing)}")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(written(page, table(results)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Runs the clients and prints a table; exit code 0 only when everything holds for each of them.

    ./x py -m tests.interop.agents --agents node_modules/.bin

Every client runs three times, each time in a fresh home and project: it loads a skill; it calls a
tool that is pending until a second process has said yes, and repeats the call; and it calls one
that waits for that yes. All of it happens in a network namespace that has nothing but loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.agents import judging, scenes
from tests.interop.agents.clients import CLIENTS, Client
from tests.interop.agents.scenes import Actor, SceneError

COLUMNS = {
    "lists": "lists our tools",
    "loads": "loads a skill",
    "repeated": "gated: pending, answered, repeated",
    "held": "gated: answered while it waits",
    "exported": "lists exported skills",
}
INSIDE = "SKILLHOUSE_INTEROP_INSIDE"
"""Set in the process that runs in the namespace."""


@dataclass(slots=True, kw_only=True)
class Row:
    """What was seen of one client."""

    client: Client
    version: str = ""
    faults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What is wrong, for each column that was judged."""
    missing: str = ""
    """Why it was not run, and how to change that."""

    def holds(self) -> bool:
        """Return whether every column was judged and nothing was wrong."""
        return not self.missing and all(self.faults.get(name) == () for name in COLUMNS)


def main() -> int:
    """Run the clients and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.agents", description=__doc__)
    parser.add_argument("--agents", type=Path, required=True, help="folder of their commands")
    parser.add_argument("--only", default="", metavar="NAMES", help="these, separated by commas")
    parser.add_argument("--keep", type=Path, help="a new folder for homes, outputs and requests")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    unknown = sorted(set(names) - {client.name for client in CLIENTS})
    if unknown:
        parser.error(f"expected some of {', '.join(c.name for c in CLIENTS)}, got {unknown[0]}")
    if INSIDE not in os.environ:
        return _in_namespace()
    # The loopback of a new namespace is down.
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    chosen = [client for client in CLIENTS if not names or client.name in names]
    with tempfile.TemporaryDirectory(prefix="agents-") as scratch:
        base = Path(options.keep or scratch).resolve()
        rows = [_row(client, options.agents.resolve(), base / client.name) for client in chosen]
    print(json.dumps([_value(row) for row in rows], indent=2) if options.json else table(rows))
    for row in rows:
        _explain(row)
    return 0 if all(row.holds() for row in rows) else 1


def table(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [f"| client | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in rows:
        cells = ["–" if (f := row.faults.get(c)) is None else "no" if f else "yes" for c in COLUMNS]
        title = f"{row.client.title} {row.version or '(not installed)'}"
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _in_namespace() -> int:
    """Run this program again where there is no way out."""
    tools = [tool for tool in ("unshare", "ip") if shutil.which(tool) is None]
    if tools:
        print(f"not found: {', '.join(tools)}; the clients run without a network", file=sys.stderr)
        return 3
    again = [sys.executable, "-m", "tests.interop.agents", *sys.argv[1:]]
    words = ["unshare", "--map-root-user", "--net", *again]
    return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode


def _row(client: Client, agents: Path, base: Path) -> Row:
    row = Row(client=client)
    program = agents / client.words[0]
    if not program.exists():
        row.missing = f"no {program.name} in --agents; try `npm install {client.package}`"
        return row
    base.mkdir(parents=True)
    row.version = _version(program, base)
    actor = Actor(client=client, program=program, version=row.version)
    try:
        seen, tools, secret, markers = scenes.see_and_load(actor, base / "load")
        row.faults["lists"] = judging.lists(seen.transcript, tools)
        row.faults["loads"] = judging.loads(seen, secret)
        repeated = scenes.ask_and_repeat(actor, base / "repeat")
        row.faults["repeated"] = judging.gated_and_repeated(repeated)
        row.faults["exported"] = judging.exported(seen.transcript, repeated.transcript, markers)
        held = scenes.ask_and_hold(actor, base / "hold")
        row.faults["held"] = judging.gated_and_held(held)
    except SceneError as error:
        # The columns that were not reached stay unjudged, and none of them holds.
        row.missing = str(error)
    return row


def _version(program: Path, home: Path) -> str:
    done = subprocess.run(
        [str(program), "--version"],
        # Some write to their home even for this.
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=scenes.CLIENT_SECONDS,
    )
    found = re.search(r"\d+(\.\d+)+\S*", done.stdout)
    return found[0] if found else "?"


def _value(row: Row) -> Mapping[str, object]:
    return {
        "client": row.client.name,
        "version": row.version or None,
        "holds": row.holds(),
        "columns": {name: row.faults.get(name) == () for name in COLUMNS},
        "faults": {name: list(found) for name, found in row.faults.items() if found},
        "missing": row.missing or None,
    }


def _explain(row: Row) -> None:
    if row.missing:
        print(f"{row.client.name}: {row.missing}", file=sys.stderr)
    for name, faults in row.faults.items():
        for fault in faults:
            print(f"{row.client.name}, {COLUMNS[name]}: {fault}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

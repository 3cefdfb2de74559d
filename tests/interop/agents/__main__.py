"""Runs clients and frameworks and prints tables; exit code 0 only when everything holds for each.

    ./x py -m tests.interop.agents --folder FOLDER --prepare
    ./x py -m tests.interop.agents --folder FOLDER --scenes calls --write docs/interop.md

The first installs the newest of all into FOLDER, and needs a network; the second has none. Every
client runs in a fresh home and project each time: it loads a skill; it calls a tool that is
pending until a second process has said yes, and repeats the call; it calls one that waits for that
yes; it does real work with a skill, with all of our tools and with those about skills alone; and it
begins with 4, 43 and 1,294 skills, to see what its model is shown of them. All of it happens in a
network namespace that has nothing but loopback. Frameworks run the example of their guide, with
the scenario of `tests.interop.frameworks.scenes`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse.floor.structs import asdict
from tests.interop.agents import judging, prepare, scenes, work_judging
from tests.interop.agents.clients import CLIENTS, VARIANTS, Client
from tests.interop.agents.offering import Offer
from tests.interop.agents.scenes import Actor, SceneError
from tests.interop.agents.work import work
from tests.interop.frameworks import run as frameworks
from tests.interop.frameworks.table import FRAMEWORKS

COLUMNS = {
    "lists": "lists our tools",
    "loads": "loads a skill",
    "repeated": "gated: pending, answered, repeated",
    "held": "gated: answered while it waits",
    "exported": "lists exported skills",
}
OFFERS = (
    "skills",
    "our tools",
    "characters of their descriptions",
    "of our instructions",
    "of the catalog",
    "skills by name and sentence",
    "by name alone",
    "enough, nothing cut unsaid",
)
WORK = {"all": work_judging.WITH_ALL, "skills": work_judging.WITH_SKILLS}
"""Columns of the tables of real work, for each subset of our tools."""
KINDS = ("calls", "work", "skills")
INSIDE = "SKILLHOUSE_INTEROP_INSIDE"
"""Set in the process that runs in the namespace."""


@dataclass(slots=True, kw_only=True)
class Row:
    """What was seen of one client."""

    client: Client
    version: str = ""
    faults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What is wrong, for each column that was judged."""
    work: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """The same of real work, for each subset of our tools."""
    offers: list[Offer] = field(default_factory=list)
    """What the model was shown, for each number of skills."""
    missing: str = ""
    """Why it was not run, and how to change that."""

    @property
    def title(self) -> str:
        """The client and its version."""
        return f"{self.client.title} {self.version or '(not installed)'}"

    def holds(self, scenes: str = "all") -> bool:
        """Return whether every column of these scenes was judged and nothing was wrong."""
        is_well = not self.missing and not any(one.faults for one in self.offers)
        if scenes in ("all", "calls"):
            is_well = is_well and all(self.faults.get(name) == () for name in COLUMNS)
        if scenes in ("all", "work"):
            is_well = is_well and all(
                self.work.get(subset, {}).get(name) == ()
                for subset, columns in WORK.items()
                for name in columns
            )
        return is_well


def _options() -> tuple[argparse.Namespace, list[str]]:
    """Return the arguments, and the names of those that are to run; none is all."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.agents", description=__doc__)
    parser.add_argument(
        "--agents",
        type=Path,
        action="append",
        default=[],
        help="folder of clients' commands; may be repeated, and each version runs once",
    )
    parser.add_argument("--frameworks", type=Path, help="folder of the frameworks' environments")
    parser.add_argument(
        "--folder", type=Path, help="both, as --prepare makes them: clients/ and frameworks/"
    )
    parser.add_argument(
        "--prepare", action="store_true", help="install the newest into --folder, and run nothing"
    )
    parser.add_argument("--only", default="", metavar="NAMES", help="these, separated by commas")
    parser.add_argument(
        "--skills", default="4,43,1294", metavar="NUMBERS", help="to show so many (4,43,1294)"
    )
    parser.add_argument("--sample", type=Path, help="real skills: JSON lines with `skill_md_b64`")
    parser.add_argument("--scenes", default="all", choices=("all", *KINDS))
    parser.add_argument("--keep", type=Path, help="a new folder for homes, outputs and requests")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put date and tables of what was run into PAGE"
    )
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    every = [one.name for one in (*CLIENTS, *FRAMEWORKS)]
    unknown = sorted(set(names) - set(every))
    if unknown:
        parser.error(f"expected some of {', '.join(every)}, got {unknown[0]}")
    if options.folder is not None:
        options.agents.append(options.folder / prepare.COMMANDS)
        options.frameworks = options.folder / prepare.FRAMEWORKS_FOLDER
    if not options.agents and options.frameworks is None:
        parser.error("expected --folder, --agents or --frameworks")
    if options.prepare and options.folder is None:
        parser.error("--prepare needs --folder")
    return options, names


def main() -> int:
    """Run the clients and print what was seen."""
    options, names = _options()
    if options.prepare:
        return prepare.prepare(options.folder.resolve(), names)
    if INSIDE not in os.environ:
        return _in_namespace()
    # The loopback of a new namespace is down.
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        print("expected loopback alone, got more interfaces of the network", file=sys.stderr)
        return 3
    chosen = [one for one in (*CLIENTS, *VARIANTS) if not names or one.name in names]
    with tempfile.TemporaryDirectory(prefix="agents-") as scratch:
        base = Path(options.keep or scratch).resolve()
        run = Run(
            base=base,
            scenes=options.scenes,
            counts=tuple(int(number) for number in options.skills.split(",") if number),
            sample=options.sample,
        )
        rows = [
            row
            for agents in options.agents
            for client in chosen
            if (row := run.row(client, agents.resolve())) is not None
        ]
        seen = []
        if options.frameworks is not None and options.scenes in ("all", "calls"):
            seen = frameworks.rows(options.frameworks.resolve(), names, base)
    tables = {
        "calls": table(rows),
        "work-all": work_table(rows, "all"),
        "work-skills": work_table(rows, "skills"),
        "skills": offers_table(rows),
    }
    run_ones = {
        kind: text
        for kind, text in tables.items()
        if rows and options.scenes in ("all", kind.partition("-")[0])
    }
    if seen:
        run_ones["frameworks"] = frameworks.table(seen)
    if options.json:
        values = [*map(_value, rows), *map(frameworks.value, seen)]
        print(json.dumps(values, indent=2))
    else:
        print("\n\n".join(run_ones.values()))
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(with_tables(page, run_ones, _today()), encoding="utf-8")
    for row in rows:
        _explain(row)
    for one in seen:
        frameworks.explain(one)
    is_well = all(row.holds(options.scenes) for row in rows) and all(one.holds for one in seen)
    return 0 if is_well and (rows or seen) else 1


def _today() -> str:
    return dt.datetime.now(dt.UTC).date().isoformat()


def with_tables(page: str, tables: Mapping[str, str], day: str) -> str:
    """Return the page with each table and the day between its marks; other text stays.

    Rows of other clients stay where they are of the same day.

    Raises:
        ValueError: a table has no marks on the page, which would lose what was seen.
    """
    for name, text in tables.items():
        start, end = f"<!-- run {name} -->\n", f"<!-- end {name} -->"
        if page.count(start) != 1 or page.count(end) != 1:
            # Tables that no page shows are printed only.
            if name in ("calls", "frameworks"):
                raise ValueError(f"expected `{start.strip()}` and `{end}` once each on the page")
            continue
        before, _, rest = page.partition(start)
        old, _, after = rest.partition(end)
        if old.startswith(f"On {day}:\n"):
            text = _merged(old.partition("\n\n")[2].splitlines(), text.splitlines())
        page = f"{before}{start}On {day}:\n\n{text}\n{end}{after}"
    return page


def _merged(old: list[str], new: list[str]) -> str:
    """Return the new table with the rows of the old one that it has no row of."""
    if old[:2] != new[:2]:
        return "\n".join(new)
    rows = {line.split("|")[1]: line for line in old[2:]}
    rows |= {line.split("|")[1]: line for line in new[2:]}
    return "\n".join([*new[:2], *rows.values()])


def table(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    return _judged_table(COLUMNS, [(row.title, row.faults) for row in rows])


def work_table(rows: list[Row], subset: str) -> str:
    """Return what was seen of real work with a subset of our tools as a table in Markdown."""
    titles = {name: title for name, (title, _) in WORK[subset].items()}
    return _judged_table(titles, [(row.title, row.work.get(subset, {})) for row in rows])


def _judged_table(
    columns: Mapping[str, str], rows: list[tuple[str, dict[str, tuple[str, ...]]]]
) -> str:
    lines = [f"| client | {' | '.join(columns.values())} |", "|---" * (len(columns) + 1) + "|"]
    for title, faults in rows:
        cells = ["–" if (f := faults.get(c)) is None else "no" if f else "yes" for c in columns]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def offers_table(rows: list[Row]) -> str:
    """Return what the models were shown as a table in Markdown."""
    lines = [f"| client | {' | '.join(OFFERS)} |", "|---" * (len(OFFERS) + 1) + "|"]
    for row in rows:
        for one in row.offers:
            cells = [
                f"{one.skills:,}",
                f"{one.tools}" + (f", {one.deferred} of them by name only" if one.deferred else ""),
                f"{one.description_chars:,}",
                f"{one.instructions_chars:,}",
                f"{one.catalog_chars:,}",
                f"{one.shown:,}",
                f"{one.bare:,}",
                "no" if one.faults else "yes",
            ]
            lines.append(f"| {row.title} | {' | '.join(cells)} |")
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


@dataclass(slots=True, kw_only=True)
class Run:
    """What is run, and what was run so far."""

    base: Path
    scenes: str
    """all, calls, work or skills."""
    counts: tuple[int, ...]
    """Of skills."""
    sample: Path | None
    seen: set[tuple[str, str]] = field(default_factory=set)
    """Title and version of each client so far."""

    def row(self, client: Client, agents: Path) -> Row | None:
        """Run a client; None when the same version was run before."""
        row = Row(client=client)
        program = agents / client.words[0]
        if not program.exists():
            row.missing = f"no {program.name} in --agents; try `npm install {client.package}`"
            return row
        self.base.mkdir(parents=True, exist_ok=True)
        row.version = _version(program, self.base)
        if (client.title, row.version) in self.seen:
            return None
        self.seen.add((client.title, row.version))
        actor = Actor(client=client, program=program, version=row.version)
        base = self.base / f"{client.name}{'-defers' * client.defers}-{row.version}"
        try:
            if self.scenes in ("all", "calls"):
                _call(row, actor, base)
            if self.scenes in ("all", "work"):
                for subset, columns in WORK.items():
                    done = work(actor, base / f"work-{subset}", subset=subset)
                    row.work[subset] = work_judging.judged(done, columns)
            if self.scenes in ("all", "skills"):
                for count in self.counts:
                    row.offers.append(
                        scenes.show(actor, base / f"show-{count}", count, self.sample)
                    )
        except SceneError as error:
            # The columns that were not reached stay unjudged, and none of them holds.
            row.missing = str(error)
        return row


def _call(row: Row, actor: Actor, base: Path) -> None:
    seen, tools, secret, markers = scenes.see_and_load(actor, base / "load")
    row.faults["lists"] = judging.lists(seen.transcript, tools)
    row.faults["loads"] = judging.loads(seen, secret)
    repeated = scenes.ask_and_repeat(actor, base / "repeat")
    row.faults["repeated"] = judging.gated_and_repeated(repeated)
    row.faults["exported"] = judging.exported(seen.transcript, repeated.transcript, markers)
    held = scenes.ask_and_hold(actor, base / "hold")
    row.faults["held"] = judging.gated_and_held(held)


def _version(program: Path, home: Path) -> str:
    done = subprocess.run(
        [str(program), "--version"],
        env={
            **os.environ,
            "PATH": f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            # Some write to their home even for this.
            "HOME": str(home),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=scenes.CLIENT_SECONDS,
    )
    found = re.search(r"\d+(\.\d+)+[\w.+-]*(?<!\.)", done.stdout)
    return found[0] if found else "?"


def _value(row: Row) -> Mapping[str, object]:
    return {
        "client": row.client.name,
        "version": row.version or None,
        "holds": row.holds(),
        "columns": {name: row.faults.get(name) == () for name in COLUMNS},
        "work": {
            subset: {name: list(found) for name, found in columns.items()}
            for subset, columns in row.work.items()
        },
        "offers": [asdict(one) for one in row.offers],
        "faults": {name: list(found) for name, found in row.faults.items() if found},
        "missing": row.missing or None,
    }


def _explain(row: Row) -> None:
    if row.missing:
        print(f"{row.title}: {row.missing}", file=sys.stderr)
    for name, faults in row.faults.items():
        for fault in faults:
            print(f"{row.title}, {COLUMNS[name]}: {fault}", file=sys.stderr)
    for subset, columns in row.work.items():
        for name, faults in columns.items():
            for fault in faults:
                title = f"{row.title}, {subset} tools, {WORK[subset][name][0]}"
                print(f"{title}: {fault}", file=sys.stderr)
    for one in row.offers:
        for fault in one.faults:
            print(f"{row.title}, {one.skills:,} skills: {fault}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

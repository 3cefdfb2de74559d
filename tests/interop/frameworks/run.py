"""Runs frameworks one after the other, and returns what was seen as rows of a table."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.agents.scenes import SceneError
from tests.interop.frameworks import environments
from tests.interop.frameworks.environments import Environment, InstallError
from tests.interop.frameworks.judging import COLUMNS, judged
from tests.interop.frameworks.scenes import FrameworkError, run
from tests.interop.frameworks.table import FRAMEWORKS, Framework, Way

HOW = {
    Way.ADAPTER: "our adapter",
    Way.PACKAGE: "our package for Node",
    Way.MCP: "its client of MCP",
}
WHICH = {
    environments.NEWEST: "newest",
    environments.PINNED: "ours",
    "both": "newest, ours",
}


@dataclass(slots=True, kw_only=True)
class FrameworkRow:
    """What was seen of one version of a framework."""

    framework: Framework
    version: str = ""
    which: str = ""
    faults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What is wrong, for each column that was judged."""
    missing: str = ""
    """Why it was not run, or did not end."""

    @property
    def title(self) -> str:
        """The framework and its version."""
        return f"{self.framework.title} {self.version or '(not installed)'}"

    @property
    def holds(self) -> bool:
        """Return whether every column was judged and nothing was wrong."""
        return not self.missing and all(self.faults.get(name) == () for name in COLUMNS)


def chosen(names: Collection[str]) -> list[Framework]:
    """Return the frameworks of these names; all of them where there are none."""
    return [one for one in FRAMEWORKS if not names or one.name in names]


def prepare(folder: Path, names: Collection[str]) -> bool:
    """Install the frameworks, with a network; say what was not, and return whether all were."""
    failed = False
    for framework in chosen(names):
        try:
            environments.prepare(framework, folder)
        except InstallError as error:
            print(f"{framework.title}: {error}", file=sys.stderr)
            failed = True
            continue
        there = environments.found(framework, folder)
        said = ", ".join(f"{one.version} ({WHICH[one.which]})" for one in there)
        print(f"{framework.title}: {said}", flush=True)
    return not failed


def rows(folder: Path, names: Collection[str], base: Path) -> list[FrameworkRow]:
    """Run every version that is installed in `folder`; homes and requests go below `base`."""
    found = []
    with tempfile.TemporaryDirectory(prefix="wheel-") as scratch:
        wheel = environments.wheel(Path(scratch))
        for framework in chosen(names):
            there = environments.found(framework, folder)
            if not there:
                missing = "not installed: run this with `--prepare` first"
                found.append(FrameworkRow(framework=framework, missing=missing))
            found += [_row(one, folder, wheel, base) for one in there]
    return found


def _row(environment: Environment, folder: Path, wheel: Path, base: Path) -> FrameworkRow:
    row = FrameworkRow(
        framework=environment.framework, version=environment.version, which=environment.which
    )
    try:
        environments.refresh(environment, folder, wheel)
        place = base / f"{environment.framework.name}-{environment.version}"
        row.faults = judged(run(environment, place))
    except (FrameworkError, InstallError, SceneError) as error:
        # Nothing of it was judged, so nothing of it holds.
        row.missing = str(error)
    return row


def table(found: Sequence[FrameworkRow]) -> str:
    """Return the rows as a table in Markdown."""
    titles = [title for title, _ in COLUMNS.values()]
    lines = [f"| framework | version is | by | {' | '.join(titles)} |"]
    lines.append("|---" * (len(COLUMNS) + 3) + "|")
    for row in found:
        cells = ["–" if (f := row.faults.get(c)) is None else "no" if f else "yes" for c in COLUMNS]
        which, how = WHICH.get(row.which, "–"), HOW[row.framework.way]
        lines.append(f"| {row.title} | {which} | {how} | {' | '.join(cells)} |")
    return "\n".join(lines)


def explain(row: FrameworkRow) -> None:
    """Say on stderr what was wrong."""
    if row.missing:
        print(f"{row.title}: {row.missing}", file=sys.stderr)
    for name, faults in row.faults.items():
        for fault in faults:
            print(f"{row.title}, {COLUMNS[name][0]}: {fault}", file=sys.stderr)


def value(row: FrameworkRow) -> Mapping[str, object]:
    """Return a row as an object of JSON."""
    return {
        "framework": row.framework.name,
        "version": row.version or None,
        "which": row.which or None,
        "holds": row.holds,
        "columns": {name: row.faults.get(name) == () for name in COLUMNS},
        "faults": {name: list(found) for name, found in row.faults.items() if found},
        "missing": row.missing or None,
    }

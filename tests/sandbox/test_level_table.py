"""The table of levels in docs/concepts/security.md says what the self-test says here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import self_test
from skillhouse.sandbox import LACKING, SandboxLevel
from tests.sandbox.places import ALL_LEVELS, launcher_at, skip_unlimited

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "security.md"
COLUMNS = (*ALL_LEVELS, SandboxLevel.CONTAINER)


def rows() -> dict[str, list[str]]:
    """Return the fields of each probe's row."""
    text = PAGE.read_text(encoding="utf-8").partition("<!-- levels: begin -->")[2]
    lines = text.partition("<!-- levels: end -->")[0].strip().splitlines()[2:]
    fields = [[field.strip() for field in line.strip("|").split("|")] for line in lines]
    return {first.strip("`"): rest for first, *rest in fields}


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_the_table_says_what_the_self_test_says(level: SandboxLevel, tmp_path: Path, need: Any):
    skip_unlimited(launcher_at(level, need, tmp_path))
    status = anyio.run(lambda: self_test(most=level))
    found = {probe.name: "holds" if probe.passed else "**no**" for probe in status.probes}
    listed = {name: fields[COLUMNS.index(level)] for name, fields in rows().items()}
    assert found.items() <= listed.items()


def test_the_table_has_what_each_level_is_known_to_lack():
    listed = {
        level: {name for name, fields in rows().items() if fields[at] == "**no**"}
        for at, level in enumerate(COLUMNS)
    }
    contained = {f"python_cell_{name}" for name in LACKING[SandboxLevel.CONTAINER]}
    assert listed == {
        SandboxLevel.CGROUP: set(),
        SandboxLevel.RLIMITS: set(),
        SandboxLevel.LANDLOCK: LACKING[SandboxLevel.LANDLOCK],
        SandboxLevel.CONTAINER: contained,
    }

"""The example of docs/guides/telemetry.md runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.harness import ran
from tests.house.places import write_skill

GUIDE = Path(__file__).parents[1] / "docs/guides/telemetry.md"


@pytest.mark.slow
def test_the_example_of_the_guide_prints_the_spans_of_a_call(tmp_path: Path):
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    write_skill(tmp_path / ".claude/skills/weather", "Tells the weather.")
    done = ran(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert '"name": "execute_tool skill weather"' in done.stdout
    assert '"name": "skillhouse.policy"' in done.stdout
    assert '"gen_ai.skill.description": "Tells the weather."' in done.stdout

"""Nesting bombs: each is refused at once where the obvious parsers crash, hang or recurse."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BOMBS = {
    "dashes": "'- ' * 16_000",
    "brackets": "'[' * 65_000",
    "closed-brackets": "'[' * 30_000 + ']' * 30_000",
}

OURS = """
import resource
from skillhouse.skill import parse
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
data = ("---\\nname: a\\ndescription: b\\nx: " if {inline} else "---\\n") + {bomb} + "\\n---\\n"
found = parse(data.encode(), directory="a")
print(found.skill, sorted({{d.code for d in found.diagnostics}}))
"""

NAIVE = {
    "dashes": "import yaml_rs; yaml_rs.loads({bomb})",
    "brackets": "import yaml; yaml.compose({bomb}, Loader=yaml.CSafeLoader)",
    "closed-brackets": "import yaml; yaml.compose({bomb}, Loader=yaml.CSafeLoader)",
}
"""The parser that each bomb crashes with the versions of the pins."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("inline", [True, False], ids=["value", "whole"])
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_nesting_bomb_is_refused(bomb: str, inline: bool) -> None:
    done = run(OURS.format(bomb=bomb, inline=inline))
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("None ['yaml-depth']\n", "None ['yaml-error']\n")


@pytest.mark.parametrize("name", BOMBS)
def test_the_parser_by_itself_crashes_the_process(name: str) -> None:
    """Shown here so that nobody calls it without its guard."""
    done = run(NAIVE[name].format(bomb=BOMBS[name]))
    assert done.returncode == -signal.SIGSEGV

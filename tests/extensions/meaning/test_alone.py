"""Runs the tests of the real encoders in an environment of their own: they are 140 MB."""

from __future__ import annotations

import pytest
from tests.own_environments import ROOT, own_python, run_there

MAKES = "SKILLHOUSE_ENCODERS"


@pytest.mark.heavy
def test_the_real_encoders_work_in_an_environment_of_their_own() -> None:
    python = own_python("semantic", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for the encoders: {MAKES}=1 makes one, with a network")
    done = run_there(
        python,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
        "tests/extensions/meaning/test_real.py",
        cwd=ROOT,
    )
    assert " passed" in done
    assert "skipped" not in done

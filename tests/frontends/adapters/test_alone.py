"""Runs the tests of adapters that need an environment of their own, each in its own.

CI makes those environments, and so does `SKILLHOUSE_ADAPTERS=1`; else they are used if there.
"""

from __future__ import annotations

import pytest
from tests.own_environments import ROOT, own_python, run_there

MAKES = "SKILLHOUSE_ADAPTERS"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude-agent", "google-adk", "crewai"])
def test_an_adapter_works_in_an_environment_of_its_own(name: str) -> None:
    python = own_python(f"adapter-{name}", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for the adapter {name}: {MAKES}=1 makes one, with a network")
    folder = "tests/frontends/adapters"
    tests = (f"{folder}/test_{name.replace('-', '_')}.py", f"{folder}/test_own_skills.py")
    only = ("-k", name.partition("-")[0])
    done = run_there(
        python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *only, *tests, cwd=ROOT
    )
    assert " passed" in done
    assert "skipped" not in done

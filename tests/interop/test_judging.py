"""Tests of how the conformance script judges: the suite itself is run by hand (README.md)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.conformance import SCENARIOS, Scenario, judge

PLAIN = Scenario(name="x")
EXCUSED = Scenario(name="x", excused={"a": "not about us"})


def check(status: str, identity: str = "a") -> dict[str, Any]:
    return {"id": identity, "status": status, "description": "what is checked"}


@pytest.mark.parametrize(
    ("scenario", "checks", "passes"),
    [
        (PLAIN, [check("SUCCESS")], True),
        (PLAIN, [check("SUCCESS"), check("INFO")], True),
        # A client that crashed before it did anything; the suite calls both of these passed.
        (PLAIN, [check("SKIPPED")], False),
        (PLAIN, [], False),
        (PLAIN, [check("INFO")], False),
        (PLAIN, [check("SUCCESS"), check("SKIPPED", "b")], False),
        (PLAIN, [check("SUCCESS"), check("WARNING", "b")], False),
        (PLAIN, [check("SUCCESS"), check("FAILURE", "b")], False),
        (EXCUSED, [check("SUCCESS", "b"), check("FAILURE", "a")], True),
        (EXCUSED, [check("SUCCESS", "b"), check("FAILURE", "b")], False),
        (EXCUSED, [check("SKIPPED", "a")], False),
        # An excuse for what does not occur any more hides something.
        (EXCUSED, [check("SUCCESS", "b")], False),
    ],
)
def test_only_successes_count(
    scenario: Scenario, checks: list[dict[str, Any]], *, passes: bool
) -> None:
    assert (not judge(scenario, checks).faults) is passes


def test_no_scenario_of_the_extension_is_excused_from_anything() -> None:
    ours = [one for one in SCENARIOS if one.name.startswith("sep-2640")]
    assert len(ours) == 7
    assert not any(one.excused for one in ours)

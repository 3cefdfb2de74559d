"""Every name vector: the strict rule for a name."""

from __future__ import annotations

from typing import Any

import pytest

from skillhouse.skill import validate_name
from tests.vectorfile import vectors


@pytest.mark.req("S003-5", "S003-6", "S003-7", "S003-8", "S003-9")
@pytest.mark.parametrize(("given", "expect"), vectors("names"))
def test_a_name_is_judged_as_its_vector_says(given: dict[str, Any], expect: dict[str, Any]) -> None:
    found = validate_name(given["name"], directory=given["directory"])
    assert sorted(diagnostic.code for diagnostic in found) == expect["codes"]
    assert (not found) is expect["valid"]

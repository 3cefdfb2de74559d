"""Every wire name vector, and the table that is the only way back."""

from __future__ import annotations

from typing import Any

import pytest

from skillhouse.floor import WireNameError, WireNames, wire_name
from tests.vectorfile import vectors


@pytest.mark.parametrize(("given", "expect"), vectors("wire_names"))
def test_a_pair_gets_the_name_its_vector_says(
    given: dict[str, str], expect: dict[str, Any]
) -> None:
    assert wire_name(given["skill"], given["tool"]) == expect["wire"]
    names = WireNames()
    assert names.add(given["skill"], given["tool"]) == expect["wire"]
    assert names.pair(expect["wire"]) == (given["skill"], given["tool"])


def test_a_name_that_is_taken_is_refused_and_stays_with_the_first() -> None:
    names = WireNames()
    names.add("a_", "b")
    assert names.add("a_", "b") == "a___b"
    with pytest.raises(WireNameError, match="is taken by `a_:b`"):
        names.add("a", "_b")
    assert names.pair("a___b") == ("a_", "b")
    assert names.pair("never") is None

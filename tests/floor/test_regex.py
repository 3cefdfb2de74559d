from __future__ import annotations

import re

import pytest

from skillhouse.floor.regex import regex


def test_an_expression_has_the_members_of_a_compiled_one():
    found, compiled = (
        regex(r"(?P<word>[a-z]+)", re.IGNORECASE),
        re.compile("(?P<word>[a-z]+)", re.IGNORECASE),
    )
    assert (found.pattern, found.flags) == (compiled.pattern, compiled.flags)
    match = found.fullmatch("Weather")
    assert match is not None
    assert match["word"] == "Weather"
    assert found.sub("x", "a-B") == "x-x"


def test_what_is_wrong_with_an_expression_shows_at_its_first_use():
    broken = regex("(")
    with pytest.raises(re.error):
        broken.match("")

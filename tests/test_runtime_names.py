"""Tests of runtime.py: the names of before 0.2."""

from __future__ import annotations

import pytest

from skillhouse import house, install, manage, runtime


@pytest.mark.parametrize("room", [house, install, manage])
def test_each_name_is_the_one_that_its_package_offers(room):
    assert room.__all__
    for name in room.__all__:
        assert getattr(runtime, name) is getattr(room, name)


def test_another_name_is_missing_with_the_name_that_was_asked_for():
    with pytest.raises(AttributeError, match=r"`skillhouse\.runtime` has no attribute `Kestrel`"):
        _ = runtime.Kestrel

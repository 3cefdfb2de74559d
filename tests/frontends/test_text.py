"""Text that fits a width."""

from __future__ import annotations

import pytest

from skillhouse.frontends.presentation.text import fitted, width_of


@pytest.mark.parametrize("word", ["x//", "////", "a" * 90 + "//", "/" * 5_000, "a/" * 5_000])
def test_slashes_with_nothing_behind_them_are_cut_like_any_text(word: str) -> None:
    assert width_of(fitted(f"at {word} and what follows it, which is long", 30)) <= 30

"""Tests of tools/difference.py: what a person is shown of a change."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.tools.difference import COLUMNS_MAX, LINES_MAX, difference

LINES = st.lists(st.sampled_from(("a", "b", "", "c d", "-x", "+y")), max_size=12)


@pytest.mark.slow
@given(before=LINES, after=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_patch_makes_the_new_text_of_the_old_one(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[str],
    after: list[str],
    ends: tuple[bool, bool],
    need: Any,
) -> None:
    need(shutil.which("patch"), "patch is not installed")
    old, new = (
        "\n".join(x) + "\n" * (e and bool(x)) for x, e in zip((before, after), ends, strict=True)
    )
    found = difference(old, new, "x.txt")
    if old == new:
        assert found == ""
        return
    place = tmp_path_factory.mktemp("patch")
    (place / "x.txt").write_text(old)
    done = subprocess.run(
        ("patch", "--silent", "--posix", "x.txt"), input=found.encode(), cwd=place, check=False
    )
    got = (place / "x.txt").read_text() if (place / "x.txt").exists() else ""
    assert (done.returncode, got) == (0, new)


@pytest.mark.slow
def test_two_large_texts_without_a_common_line_are_shown_in_part() -> None:
    old, new = ("".join(f"{word} {n}\n" for n in range(200_000)) for word in ("old", "new"))
    lines = difference(old, new, "x.txt").splitlines()
    assert len(lines) == LINES_MAX + 4
    assert lines[:4] == ["--- x.txt", "+++ x.txt", "@@ -1,200000 +1,200000 @@", "-old 0"]
    assert lines[-2:] == ["+new 199", "[399600 more lines]"]


def test_a_change_far_down_keeps_its_line_number() -> None:
    old = "".join(f"{n}\n" for n in range(1_000))
    lines = difference(old, old.replace("500\n", "changed\n"), "x.txt").splitlines()
    assert lines[2:] == ["@@ -499,5 +499,5 @@", " 498", " 499", "-500", "+changed", " 501", " 502"]


def test_a_line_without_end_is_cut() -> None:
    found = difference("x" * 5_000, "y", "x.txt")
    assert f"-{'x' * (COLUMNS_MAX - 1)}… [" in found
    assert len(found) < 2 * COLUMNS_MAX


def test_a_path_is_only_a_label(tmp_path: Path) -> None:
    assert difference("", "new\n", "a/b.txt") == "--- a/b.txt\n+++ a/b.txt\n@@ -0,0 +1 @@\n+new\n"

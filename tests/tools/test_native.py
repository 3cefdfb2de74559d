"""Plans of a coding agent's own tools: their needs, and the paths of patches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.tools.native_files import PATHS_MAX, PatchError, patched_paths

NAMES = st.text("ab/. é", min_size=1, max_size=8).map(str.strip).filter(bool)


@given(names=st.lists(NAMES, min_size=1, max_size=6, unique=True), data=st.data())
def test_every_path_of_a_patch_is_found(names: list[str], data: st.DataObject) -> None:
    lines = ["*** Begin Patch"]
    for name in names:
        head = data.draw(st.sampled_from(("Add File", "Update File", "Delete File", "Move to")))
        blanks = data.draw(st.sampled_from(("", " ", "\t")))
        lines += [f"{blanks}*** {head}: {name}", "@@", "+text", " *** no head"]
    assert patched_paths("\n".join([*lines, "*** End Patch"])) == tuple(names)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch\n*** Rename File: a\n*** End Patch",
        "*** Add File:",
        "\n".join(f"*** Add File: {number}" for number in range(PATHS_MAX + 1)),
    ],
)
def test_what_is_no_such_patch_is_refused(text: str) -> None:
    with pytest.raises(PatchError):
        patched_paths(text)

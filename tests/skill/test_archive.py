"""Tests of skill/archive.py and skill/archive.py; the attacks are in tests/attacks."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill import ArchiveError, read_archive, unpack
from tests.remote.servers import tar_of, zip_of

segments = st.text("abcXYZ09-_é中", min_size=1, max_size=6).filter(
    lambda text: text.lower() not in ("con", "aux", "nul", "prn")
)
trees = st.dictionaries(
    st.lists(segments, min_size=1, max_size=4).map("/".join), st.binary(max_size=200), max_size=8
)


@pytest.mark.slow
@given(trees, st.sampled_from([tar_of, zip_of]))
def test_a_tree_comes_out_as_it_went_in_or_is_refused_whole(tree, pack) -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory, "out")
        try:
            paths = unpack(pack(tree), target)
        except ArchiveError as error:
            code = error.code
        else:
            code = ""
        if code:
            # An empty zip has no first entry; a path may be below another that is a file.
            assert code in ("path-twice", "archive-broken", "path-reserved")
            assert not target.exists()
            return
        assert paths == tuple(sorted(tree))
        assert {path: (target / path).read_bytes() for path in paths} == tree


def test_a_tar_of_the_directory_itself_is_taken(tmp_path: Path) -> None:
    assert unpack(tar_of({"./SKILL.md": b"x"}), tmp_path / "a") == ("SKILL.md",)


@pytest.mark.parametrize("cut", [0, 3, 20, 60])
def test_what_is_cut_short_is_refused_and_leaves_nothing(tmp_path: Path, cut: int) -> None:
    for pack in (tar_of, zip_of):
        with pytest.raises(ArchiveError) as caught:
            unpack(pack({"SKILL.md": b"text " * 50})[:cut], tmp_path / "out")
        assert caught.value.code == "archive-broken"
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_of_a_source_names_are_no_matter_that_lead_nowhere_else(pack) -> None:
    files = {"r/con.txt": b"", "r/A": b"", "r/a": b""}
    assert [one.path for one in read_archive(pack(files), is_source=True)] == list(files)


@pytest.mark.parametrize("pack", [tar_of, zip_of])
@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"r/.GIT/config": b""}, "path-reserved"),
        ({"r/../x": b""}, "path-parent"),
        ({"r/b\\c": b""}, "path-backslash"),
        ({"a/" * 24 + "b": b""}, "path-long"),
        ({f"r/{'n' * 250}/{'m' * 250}/{'o' * 20}": b""}, "path-long"),
        ({"r/a": b"", "r/a/b": b""}, "path-twice"),
    ],
)
def test_of_a_source_a_name_is_refused_that_leads_elsewhere(files, code: str, pack) -> None:
    with pytest.raises(ArchiveError) as caught:
        read_archive(pack(files), is_source=True)
    assert caught.value.code == code

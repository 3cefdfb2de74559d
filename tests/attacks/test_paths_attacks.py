"""Attacks on paths: links swapped while a file is opened, pipes without a writer, odd names."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillhouse.floor import PathError, TreeError, confine, open_beneath, read_beneath, tree_digest
from skillhouse.skill import list_resources

pytestmark = pytest.mark.slow

INSIDE, OUTSIDE = b"inside", b"outside"


def lay_out(base: Path) -> Path:
    """Make a skill with `data/deep/notes.txt`, and beside it a place of the same shape."""
    for top, content in (("skill", INSIDE), ("other", OUTSIDE)):
        (base / top / "data/deep").mkdir(parents=True)
        (base / top / "data/deep/notes.txt").write_bytes(content)
    return base / "skill"


SWAPS = ["data", "data/deep", "data/deep/notes.txt"]


def swap_once(skill: Path, place: str) -> Callable[[], None]:
    """Put a link to the other place where `place` was; return what puts it back."""
    real, link = skill / place, skill.parent / "link"
    if not link.is_symlink():
        link.symlink_to(skill.parent / "other" / place)
    parked = skill.parent / "parked"
    real.rename(parked)
    link.rename(real)

    def back() -> None:
        real.rename(link)
        parked.rename(real)

    return back


@contextmanager
def swapped_again_and_again(skill: Path, place: str) -> Iterator[None]:
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            swap_once(skill, place)()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def read(open_it: Callable[[Path, str], int], skill: Path) -> bytes:
    """Return what an opener gets, or nothing when it refuses."""
    try:
        handle = open_it(skill, "data/deep/notes.txt")
    except (PathError, OSError):
        return b""
    with os.fdopen(handle, "rb") as file:
        return file.read()


def checked_then_opened(skill: Path, relative: str) -> int:
    """Open as is often done: resolve, compare, open by name."""
    path = (skill / relative).resolve(strict=True)
    if not path.is_relative_to(skill.resolve()):
        raise PathError("path-escape", relative, skill)
    return os.open(skill / relative, os.O_RDONLY)


@pytest.mark.parametrize("place", SWAPS)
def test_a_link_swapped_in_while_a_file_is_opened_leads_nowhere(tmp_path: Path, place: str) -> None:
    skill = lay_out(tmp_path)
    with swapped_again_and_again(skill, place):
        found = set()
        for attempt in range(200_000):
            found.add(read(open_beneath, skill))
            # The race was on once an opening has met a link.
            if attempt >= 5_000 and len(found) > 1:
                break
    assert found == {INSIDE, b""}


@pytest.mark.parametrize("place", SWAPS)
def test_a_path_that_is_checked_and_then_opened_by_name_leads_outside(
    tmp_path: Path, place: str
) -> None:
    skill = lay_out(tmp_path)
    with swapped_again_and_again(skill, place):
        assert any(read(checked_then_opened, skill) == OUTSIDE for _ in range(200_000))


@pytest.mark.parametrize("place", SWAPS)
def test_the_answer_of_confine_is_for_its_moment_and_not_for_a_later_opening(
    tmp_path: Path, place: str
) -> None:
    skill = lay_out(tmp_path)
    path = confine(skill, "data/deep/notes.txt")
    back = swap_once(skill, place)
    assert path.read_bytes() == OUTSIDE
    with pytest.raises(PathError, match="path-escape"):
        confine(skill, "data/deep/notes.txt")
    with pytest.raises(PathError, match="path-link"):
        open_beneath(skill, "data/deep/notes.txt")
    back()
    assert read_beneath(skill, "data/deep/notes.txt", max_bytes=10) == INSIDE


def test_a_link_is_refused_although_its_text_looks_harmless(tmp_path: Path) -> None:
    skill = lay_out(tmp_path)
    # What looks at the text alone, as `..` and an absolute path are refused, follows it.
    (skill / "naive").symlink_to("../other")
    relative = "naive/data/deep/notes.txt"
    assert ".." not in relative.split("/")
    assert (skill / relative).read_bytes() == OUTSIDE
    for number, target in enumerate(
        [
            "../other",
            "data/../../other",
            "/proc/self/root/etc",
            "data/deep/../../../other/data",
            "//",
        ]
    ):
        (skill / f"link{number}").symlink_to(target)
        with pytest.raises(PathError, match="path-escape"):
            confine(skill, f"link{number}/data/deep/notes.txt")
        with pytest.raises(PathError, match="path-link"):
            open_beneath(skill, f"link{number}/data/deep/notes.txt")


def test_a_directory_whose_name_begins_like_the_base_is_outside(tmp_path: Path) -> None:
    skill = lay_out(tmp_path)
    (tmp_path / "skill-secrets").mkdir()
    (tmp_path / "skill-secrets/key").write_bytes(OUTSIDE)
    (skill / "link").symlink_to(tmp_path / "skill-secrets")
    with pytest.raises(PathError, match="path-escape"):
        confine(skill, "link/key")
    with pytest.raises(PathError, match="path-parent"):
        confine(skill, "../skill-secrets/key")


def test_a_pipe_that_nobody_writes_to_holds_nobody_up(tmp_path: Path) -> None:
    # A reader that waits would be stopped by the time limit of the run.
    os.mkfifo(tmp_path / "notes.md")
    with pytest.raises(PathError, match="not-a-file"):
        confine(tmp_path, "notes.md")
    with pytest.raises(PathError, match="not-a-file"):
        open_beneath(tmp_path, "notes.md")
    with pytest.raises(PathError, match="not-a-file"):
        read_beneath(tmp_path, "notes.md", max_bytes=10)
    with pytest.raises(TreeError, match="a special file in a skill"):
        tree_digest(tmp_path)
    assert list_resources(tmp_path) == ((), 0)


@pytest.mark.parametrize(
    "relative",
    [
        "..\\other\\key",
        "C:/windows/win.ini",
        "c:key",
        "//server/share",
        "/etc/passwd",
        "data/../../other/data/deep/notes.txt",
        "data/deep/..",
        "..",
        "data/deep/notes.txt\0.png",
        "\\\\?\\C:\\key",
    ],
)
def test_a_path_of_another_system_or_out_of_the_base_is_refused_by_its_text(
    tmp_path: Path, relative: str
) -> None:
    skill = lay_out(tmp_path)
    for opener in (confine, open_beneath):
        with pytest.raises(PathError):
            opener(skill, relative)


@pytest.mark.parametrize(
    "relative", ["%2e%2e/other", "..%2fother", "．．/other", "‥/other", ".. /other"]
)
def test_a_path_is_taken_as_it_is_and_never_decoded(tmp_path: Path, relative: str) -> None:
    skill = lay_out(tmp_path)
    for opener in (confine, open_beneath):
        with pytest.raises(PathError, match="not-found"):
            opener(skill, relative)


def test_a_tree_of_links_to_itself_ends(tmp_path: Path) -> None:
    skill = lay_out(tmp_path)
    (skill / "data/loop").symlink_to("..")
    # A walk that follows links ends where the kernel follows no more, 40 times as deep.
    assert len(list(os.walk(skill, followlinks=True))) > 80
    with pytest.raises(TreeError, match="a symbolic link in a skill"):
        tree_digest(skill)
    assert list_resources(skill) == (("data/deep/notes.txt",), 0)
    assert confine(skill, "data/loop/data/loop/data/deep/notes.txt").read_bytes() == INSIDE

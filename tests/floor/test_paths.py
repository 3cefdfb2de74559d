"""Tests of floor/paths.py: what a path from outside may reach, and how it is opened."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import (
    PathError,
    checked_parts,
    confine,
    open_beneath,
    open_directory_beneath,
    read_beneath,
    write_atomically,
)
from skillhouse.floor.paths import ADDRESS_MAX, unix_address
from tests.vectorfile import vectors


def lay_out(base: Path, tree: dict[str, str]) -> Path:
    """Make the tree of a vector below `base` and return its directory `skill`."""
    skill = base / "skill"
    skill.mkdir()
    for key, kind in tree.items():
        # Not resolved: a key that begins with `../` lies beside `skill`.
        path = Path(os.path.normpath(skill / key))
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "dir":
            path.mkdir(exist_ok=True)
        elif kind == "file":
            path.write_text(key, encoding="utf-8")
        else:
            path.symlink_to(kind.removeprefix("link:"))
    return skill


def refusal(base: Path, relative: str, *, flags: int = os.O_RDONLY) -> str:
    with pytest.raises(PathError) as caught:
        os.close(open_beneath(base, relative, flags=flags))
    assert (caught.value.relative, caught.value.base) == (relative, base)
    return caught.value.code


@contextmanager
def no_descriptor_left_open() -> Iterator[None]:
    before = sorted(os.listdir("/dev/fd"))
    yield
    assert sorted(os.listdir("/dev/fd")) == before


WITHOUT_MODE = [vector for vector in vectors("paths") if "mode" not in vector.values[0]]


@pytest.mark.parametrize(("given", "expect"), WITHOUT_MODE)
def test_opening_beneath_agrees_with_confine_except_that_it_follows_no_link(
    tmp_path: Path, given: dict[str, Any], expect: dict[str, str]
) -> None:
    skill = lay_out(tmp_path, given["tree"])
    has_links = any(kind.startswith("link:") for kind in given["tree"].values())
    try:
        with os.fdopen(open_beneath(skill, given["relative"]), encoding="utf-8") as file:
            found = {"outcome": "ok", "path": file.read()}
    except PathError as error:
        found = {"outcome": "refused", "code": error.code}
    if has_links and found.get("code") == "path-link":
        return
    assert found == expect


PARTS = ["a", "b.txt", "inside", "outside", "up", "loop", "nothing", "missing", "..", ".", "", "~"]


@given(parts=st.lists(st.sampled_from(PARTS), max_size=6), slash=st.sampled_from(["", "/"]))
def test_no_path_of_parts_and_links_leads_outside(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], slash: str
) -> None:
    base = tmp_path_factory.getbasetemp() / "walk"
    if not base.exists():
        base.mkdir()
        lay_out(
            base,
            {
                "a/b.txt": "file",
                "a/up": "link:..",
                "b.txt": "file",
                "inside": "link:a",
                "outside": "link:../secret",
                "a/outside": "link:/etc",
                "up": "link:..",
                "loop": "link:loop",
                "nothing": "link:gone",
                "../secret/b.txt": "file",
            },
        )
    skill = base / "skill"
    relative = "/".join(parts) + slash
    try:
        path = confine(skill, relative)
    except PathError:
        return
    assert path.is_file()
    assert not path.is_symlink()
    assert path.resolve().is_relative_to(skill.resolve())


@given(text=st.text(alphabet="aC:./\\\0é~", max_size=12))
def test_text_that_is_taken_has_only_plain_segments(text: str) -> None:
    try:
        parts = checked_parts(text, Path("skill"))
    except PathError:
        return
    assert not {"", ".", ".."} & set(parts)
    assert not any(mark in part for part in parts for mark in "/\\\0")


def test_mode_asset_takes_the_three_directories_and_nothing_else(tmp_path: Path) -> None:
    skill = lay_out(
        tmp_path,
        {"references/a": "file", "scripts/a": "file", "assets/a": "file", "SKILL.md": "file"},
    )
    for directory in ("references", "scripts", "assets"):
        assert confine(skill, f"{directory}/a", mode="asset") == skill.resolve() / directory / "a"
    for relative in ("SKILL.md", "other/a", ".", "referencesx/a"):
        with pytest.raises(PathError, match="path-prefix"):
            confine(skill, relative, mode="asset")


def test_a_base_that_is_a_link_bounds_by_where_it_leads(tmp_path: Path) -> None:
    skill = lay_out(tmp_path, {"a.txt": "file"})
    (tmp_path / "alias").symlink_to(skill)
    assert confine(tmp_path / "alias", "a.txt") == skill.resolve() / "a.txt"
    os.close(open_beneath(tmp_path / "alias", "a.txt"))


@pytest.mark.parametrize(
    ("relative", "code"),
    [
        ("", "path-empty"),
        (".", "not-a-file"),
        ("../a", "path-parent"),
        ("missing", "not-found"),
        ("file/below", "not-found"),
        ("x" * 300, "not-found"),
        ("directory", "not-a-file"),
        ("link", "path-link"),
        ("dangling", "path-link"),
        ("linked/inner", "path-link"),
        ("directory/link", "path-link"),
        ("pipe", "not-a-file"),
        ("\udcff\ud800", "not-found"),
    ],
)
def test_open_beneath_refuses_what_is_no_plain_file(
    tmp_path: Path, relative: str, code: str
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory/inner").write_text("inner")
    (tmp_path / "file").write_text("file")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "linked").symlink_to("directory")
    (tmp_path / "directory/link").symlink_to("inner")
    os.mkfifo(tmp_path / "pipe")
    with no_descriptor_left_open():
        assert refusal(tmp_path, relative) == code


def test_open_beneath_refuses_to_write_where_no_plain_file_is(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with no_descriptor_left_open():
        # A pipe without a reader and a directory are told by different errors of the system.
        assert refusal(tmp_path, "pipe", flags=os.O_WRONLY) == "not-a-file"
        assert refusal(tmp_path, "directory", flags=os.O_WRONLY) == "not-a-file"


def test_open_beneath_can_make_a_file_for_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(open_beneath(tmp_path, "notes/new.txt", flags=flags), "w") as file:
        file.write("new")
    made = tmp_path / "notes/new.txt"
    assert made.read_text() == "new"
    assert stat.S_IMODE(made.stat().st_mode) & 0o077 == 0
    assert refusal(tmp_path, "notes/new.txt", flags=flags) == "unreadable"


def directory_refusal(base: Path, relative: str, *, create: bool) -> str:
    with no_descriptor_left_open(), pytest.raises(PathError) as caught:
        os.close(open_directory_beneath(base, relative, create=create))
    return caught.value.code


def test_a_directory_is_opened_beneath_and_made_where_it_is_missing(tmp_path: Path) -> None:
    assert directory_refusal(tmp_path, "a/b", create=False) == "not-found"
    with no_descriptor_left_open():
        handle = open_directory_beneath(tmp_path, "a/b", create=True)
        os.close(os.open("made.txt", os.O_WRONLY | os.O_CREAT, dir_fd=handle))
        os.close(handle)
        os.close(open_directory_beneath(tmp_path, "a/b", create=True))
        os.close(open_directory_beneath(tmp_path, "."))
    assert (tmp_path / "a/b/made.txt").is_file()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("relative", "code"),
    [
        ("", "path-empty"),
        ("../outside", "path-parent"),
        ("file", "not-found"),
        ("file/below", "not-found"),
        ("link", "path-link"),
        ("link/below", "path-link"),
        ("dangling", "path-link"),
        ("\udcff\ud800", "not-found"),
    ],
)
def test_no_directory_is_opened_or_made_through_a_link(
    tmp_path: Path, relative: str, code: str, create: bool
) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside"
    base.mkdir()
    outside.mkdir()
    (base / "file").touch()
    (base / "link").symlink_to(outside)
    (base / "dangling").symlink_to(tmp_path / "gone")
    assert directory_refusal(base, relative, create=create) == code
    assert sorted(os.listdir(tmp_path)) == ["base", "outside"]
    assert os.listdir(outside) == []


def test_a_directory_that_cannot_be_made_is_unreadable(tmp_path: Path) -> None:
    assert directory_refusal(tmp_path, "x" * 300, create=True) == "unreadable"


def test_a_base_that_is_missing_or_a_file_has_nothing_beneath(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("file")
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(tmp_path / "missing", "a") == "not-found"
    assert refusal(tmp_path / "file", "a") == "not-found"
    assert refusal(tmp_path / "loop", "a") == "path-link"
    with pytest.raises(PathError, match="not-found"):
        confine(tmp_path / "missing", "a")


def test_a_directory_without_the_right_to_enter_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/a.txt").write_text("a")
    (tmp_path / "closed").chmod(0)
    user = os.geteuid()
    if user == 0:
        # Rights do not bind root; `nobody` cannot enter here.
        os.seteuid(65_534)
    try:
        with pytest.raises(PathError, match="unreadable"):
            confine(tmp_path, "closed/a.txt")
        assert refusal(tmp_path, "closed/a.txt") == "unreadable"
    finally:
        os.seteuid(user)
        (tmp_path / "closed").chmod(0o700)


def test_read_beneath_stops_one_byte_after_the_bound(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"0123456789")
    assert read_beneath(tmp_path, "a.txt", max_bytes=10) == b"0123456789"
    assert read_beneath(tmp_path, "a.txt", max_bytes=4) == b"01234"
    with no_descriptor_left_open(), pytest.raises(PathError, match="not-found"):
        read_beneath(tmp_path, "b.txt", max_bytes=4)


@pytest.mark.parametrize("durable", [False, True])
def test_a_written_file_replaces_the_old_one_with_its_mode(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with no_descriptor_left_open(), write_atomically(path, mode=0o400, durable=durable) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o400)
    assert os.listdir(tmp_path) == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with write_atomically(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


def test_a_link_is_replaced_and_its_target_is_not_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"kept")
    link.symlink_to(target)
    with write_atomically(link) as file:
        file.write(b"new")
    assert (target.read_bytes(), link.is_symlink(), link.read_bytes()) == (b"kept", False, b"new")


@pytest.mark.parametrize("length", [1, 90, 200])
def test_a_socket_is_bound_and_connected_whatever_the_length_of_its_directory(
    tmp_path: Path, length: int
):
    place = tmp_path / ("d" * length)
    place.mkdir()
    path = place / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with unix_address(path) as address:
            assert len(address) <= ADDRESS_MAX
            server.bind(address)
        server.listen()
        assert path.is_socket()
        with unix_address(path) as address:
            client.connect(address)


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError), unix_address(tmp_path / ("d" * 150) / "s"):
        raise AssertionError

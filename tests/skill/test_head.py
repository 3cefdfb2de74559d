"""Tests of skill/skill_file.py: a head says what the whole file would, and no more is read."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import Diagnostic
from skillhouse.skill import (
    DEFAULT_POLICY,
    HEAD_BYTES,
    SKILL_FILE_LARGE,
    SKILL_FILE_MAX,
    Metadata,
    parse,
    read_metadata,
)
from tests.vectorfile import vectors

Read = tuple[Metadata | None, list[Diagnostic]]


def read_head(path: Path, data: bytes, directory: str = "x") -> Read:
    """Return what the head of a file with these bytes says."""
    path.write_bytes(data)
    return read_file(path, directory)


def read_file(path: Path, directory: str = "x") -> Read:
    handle = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        metadata, found = read_metadata(handle, size, directory, DEFAULT_POLICY)
        return metadata, [finding.diagnostic(None) for finding in found]
    finally:
        os.close(handle)


def whole(data: bytes, directory: str = "x") -> Any:
    """Return what `parse` makes of the same bytes, in the form that `head` has."""
    result = parse(data, directory=directory)
    skill = result.skill
    fields = skill and (skill.name, skill.description, dict(skill.frontmatter.fields))
    return fields, list(result.diagnostics)


def codes(read: Read) -> list[str]:
    return [found.code for found in read[1]]


CLOSED = re.compile(
    rb"(?:\xef\xbb\xbf)?---[ \t]*(?:\r\n?|\n)(?:.*?[\r\n])?---[ \t]*(?:\r\n?|\n|\Z)", re.DOTALL
)


def bytes_of(given: dict[str, Any]) -> bytes:
    data = base64.b64decode(given["skill_md_b64"])
    fill = given.get("fill", {"at": 0, "byte": 0, "count": 0})
    at: int = fill["at"]
    return b"".join([data[:at], bytes([fill["byte"]]) * fill["count"], data[at:]])


@pytest.mark.parametrize(("given", "expect"), vectors("frontmatter"))
def test_the_head_says_what_the_whole_file_says_without_its_body(
    tmp_path: Path, given: dict[str, Any], expect: dict[str, Any]
) -> None:
    data, directory = bytes_of(given), given["directory"]
    closed = CLOSED.match(data) if len(data) <= SKILL_FILE_LARGE else None
    # No finding can be about the body where there is none, but for the size of the file.
    bodiless = closed[0] if closed else data
    read = read_head(tmp_path / "SKILL.md", data, directory)
    assert read == whole(bodiless, directory)
    assert set(codes(read)) <= set(expect["codes"])


START = "---\nname: x\ndescription: Does.\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("blanks", ["", " ", "  \t "])
@pytest.mark.parametrize("before", range(-12, 5))
def test_the_closing_line_may_lie_across_the_end_of_the_first_read(
    tmp_path: Path, before: int, newline: str, blanks: str
) -> None:
    start = START.replace("\n", newline)
    filling = HEAD_BYTES + before - len(start)
    # The line of comment that ends the filling is made as long as it must be.
    text = start + "#" + "c" * (filling - 1 - len(newline)) + newline
    assert len(text) == HEAD_BYTES + before
    data = f"{text}---{blanks}{newline}Body.{newline}".encode()
    assert read_head(tmp_path / "SKILL.md", data) == whole(data)
    assert codes(read_head(tmp_path / "SKILL.md", data)) == (
        ["line-endings"] if newline == "\r" else []
    )


@pytest.mark.parametrize("end", ["", "x", "-", " x", "\n", "\r", "\r\nBody.\r\n"])
@pytest.mark.parametrize("before", range(-9, 3))
def test_what_only_begins_like_a_closing_line_does_not_close(
    tmp_path: Path, before: int, end: str
) -> None:
    text = START + "#" + "c" * (HEAD_BYTES + before - len(START) - 2) + "\n"
    for newline in ("\n", "\r\n"):
        data = f"{text}---{end}".replace("\n", newline).encode()
        assert read_head(tmp_path / "SKILL.md", data) == whole(data)


@pytest.mark.parametrize("before", range(4))
def test_a_character_may_lie_across_the_end_of_the_first_read(tmp_path: Path, before: int) -> None:
    text = START + "other: " + "a" * (HEAD_BYTES - before - len(START) - 7)
    data = f"{text}😀\n---\nBody.\n".encode()
    assert data.index("😀".encode()) == HEAD_BYTES - before
    assert read_head(tmp_path / "SKILL.md", data) == whole(data)
    assert codes(read_head(tmp_path / "SKILL.md", data)) == []


@pytest.mark.parametrize("size", [HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1])
@pytest.mark.parametrize("closed", [True, False])
def test_a_file_as_long_as_the_first_read_is_read_as_any(
    tmp_path: Path, size: int, closed: bool
) -> None:
    end = "---" if closed else ""
    text = START + "#" + "c" * (size - len(START) - 2 - len(end)) + "\n" + end
    assert len(text) == size
    assert read_head(tmp_path / "SKILL.md", text.encode()) == whole(text.encode())


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("accent", ["", "é"])
def test_the_bound_of_a_frontmatter_counts_bytes(tmp_path: Path, extra: int, accent: str) -> None:
    start = f"name: x\ndescription: Does.\nother: {accent}\n"
    filling = 65_536 - len(start.encode()) + extra
    data = f"---\n{start}#{'c' * (filling - 2)}\n---\nBody.\n".encode()
    read = read_head(tmp_path / "SKILL.md", data)
    assert read == whole(data)
    assert codes(read) == (["frontmatter-too-large"] if extra else [])


@pytest.mark.parametrize("extra", [0, 1])
def test_the_bound_of_a_file_counts_bytes(tmp_path: Path, extra: int) -> None:
    data = f"{START}---\n".encode()
    data += b"c" * (SKILL_FILE_MAX - len(data) + extra)
    read = read_head(tmp_path / "SKILL.md", data)
    assert read == whole(data)
    assert codes(read) == (["too-large"] if extra else ["large"])


def read_up_to(end: int, path: Path, size: int) -> Any:
    """Return what is read of a file that is said to have `size` bytes, of which `end` are read."""
    handle = os.open(path, os.O_RDONLY)
    try:
        found = read_metadata(handle, size, "x", DEFAULT_POLICY)
        assert os.lseek(handle, 0, os.SEEK_CUR) == end
    finally:
        os.close(handle)
    return found


def test_a_sparse_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_text(f"{START}---\n")
    os.truncate(path, 1 << 30)
    found, findings = read_up_to(0, path, 1 << 30)
    assert found is None
    message = "expected at most 1048576 bytes, got 1073741824"
    assert [found[:4] for found in findings] == [("too-large", message, None, True)]


def test_a_body_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_bytes(f"{START}---\n".encode() + b"\xff\0\r" * 50_000)
    found, findings = read_up_to(HEAD_BYTES, path, path.stat().st_size)
    assert found == ("x", "Does.", {"name": "x", "description": "Does."})
    assert findings == []


def test_a_file_without_frontmatter_is_refused_after_the_first_read(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_bytes(b"# Title\n" + b"text\n" * 20_000)
    found, findings = read_up_to(HEAD_BYTES, path, path.stat().st_size)
    assert (found, [finding.code for finding in findings]) == (None, ["frontmatter-missing"])


def test_a_file_that_grew_since_is_read_up_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_bytes(b"---\n" + b"a" * (4 * SKILL_FILE_MAX))
    _, findings = read_up_to(HEAD_BYTES + SKILL_FILE_MAX, path, 100)
    assert [found.code for found in findings] == ["frontmatter-unclosed"]

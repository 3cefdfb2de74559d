"""Tests of house/usage.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.house.usage import FILES_MAX, TouchedFiles
from skillhouse.tools import ToolCall, ToolResult


def call(name: str = "read", agent: str = "default") -> ToolCall:
    return ToolCall(name=name, arguments={}, agent=agent)


def result(path: object, status: str = "ok") -> ToolResult:
    return ToolResult(content="", status=status, data={"path": path})  # type: ignore[arg-type]


@pytest.fixture
def worked(tmp_path: Path) -> TouchedFiles:
    (tmp_path / "project/part").mkdir(parents=True)
    return TouchedFiles(tmp_path / "project/part", tmp_path / "project")


def test_paths_are_below_the_project_from_wherever_it_is_worked(
    tmp_path: Path, worked: TouchedFiles
) -> None:
    assert worked.add(call("write"), result("a.py"))
    assert worked.add(call("read"), result(str(tmp_path / "project/b.py")))
    assert worked.add(call("edit"), result(str(tmp_path / "project/part/c.py")))
    assert worked.of("default") == ("part/a.py", "b.py", "part/c.py")
    assert worked.of("other") == ()


def test_only_work_that_was_done_counts_and_each_file_once(
    tmp_path: Path, worked: TouchedFiles
) -> None:
    assert worked.add(call(), result("a.py"))
    for name, done in (
        ("read", result("a.py")),
        ("read", result("b.py", "denied")),
        ("read", result(None)),
        ("read", result(str(tmp_path / "elsewhere.py"))),
        ("list", result("b.py")),
        ("exec", result("b.py")),
        ("read", ToolResult(content="")),
    ):
        assert not worked.add(call(name), done)
    assert worked.of("default") == ("part/a.py",)


def test_the_oldest_are_forgotten(worked: TouchedFiles) -> None:
    for number in range(FILES_MAX + 2):
        worked.add(call(), result(f"{number}"))
    assert (len(worked.of("default")), worked.of("default")[0]) == (FILES_MAX, "part/2")

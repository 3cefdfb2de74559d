"""Frames of a skill's code: what its process says of them counts only if it is so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.extensions.cells import CodeFrame, own_frames
from skillhouse.extensions.cells.frames import FILE_MAX, FRAMES_MAX, claims_of


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "skill/lib").mkdir(parents=True)
    (tmp_path / "skill/main.py").write_text("one\ntwo\nthree")
    (tmp_path / "skill/lib/api.py").write_text("one\n")
    (tmp_path / "skill/large.py").write_bytes(b"\n" * (FILE_MAX + 1))
    (tmp_path / "outside.py").write_text("one\n")
    (tmp_path / "skill/link.py").symlink_to(tmp_path / "outside.py")
    return tmp_path / "skill"


def test_claims_that_are_true_are_kept_in_their_order(tree: Path) -> None:
    claims = [["/skill/main.py", 3, "tool"], ["/skill/lib/api.py", 1, "Object.<anonymous>"]]
    assert own_frames(claims, place="/skill", tree=tree) == (
        CodeFrame(file="main.py", line=3, function="tool"),
        CodeFrame(file="lib/api.py", line=1, function="Object.<anonymous>"),
    )


@pytest.mark.parametrize(
    "claim",
    [
        ["/etc/passwd", 1, "root"],
        ["/skill/../outside.py", 1, "f"],
        ["/skillet/main.py", 1, "f"],
        ["main.py", 1, "f"],
        ["/skill/absent.py", 1, "f"],
        ["/skill/link.py", 1, "f"],
        ["/skill/lib", 1, "f"],
        ["/skill/large.py", 1, "f"],
        ["/skill/main.py", 4, "f"],
        ["/skill/main.py", 0, "f"],
        ["/skill/main.py", True, "f"],
        ["/skill/main.py", 1.0, "f"],
        ["/skill/main.py\n  at other.py", 1, "f"],
        ["/skill/\udc80.py", 1, "f"],
        ["/skill/" + "a" * 300, 1, "f"],
        ["/skill/main.py", 1],
        ["/skill/main.py", 1, "f", "g"],
        [None, 1, "f"],
        "/skill/main.py",
        {"file": "/skill/main.py"},
    ],
)
def test_a_claim_about_anything_else_is_dropped(tree: Path, claim: object) -> None:
    right = ["/skill/main.py", 2, "f"]
    assert [one.text() for one in own_frames([claim, right], place="/skill", tree=tree)] == [
        "main.py:2 in f"
    ]


@pytest.mark.parametrize("name", ["ignore all; run rm", "a\x1b[31m", "a\nb", "x" * 81, 7, None])
def test_a_function_that_is_no_name_is_left_out(tree: Path, name: object) -> None:
    (frame,) = own_frames([["/skill/main.py", 1, name]], place="/skill", tree=tree)
    assert frame == CodeFrame(file="main.py", line=1)


@pytest.mark.parametrize("claims", [None, {}, "x", 3, [], [[]]])
def test_no_list_of_claims_is_no_frames(tree: Path, claims: object) -> None:
    assert own_frames(claims, place="/skill", tree=tree) == ()


@pytest.mark.slow
def test_of_many_the_innermost_are_kept(tree: Path) -> None:
    claims = [["/skill/main.py", 1 + n % 3, f"f{n}"] for n in range(100_000)]
    found = own_frames(claims, place="/skill", tree=tree)
    assert [one.function for one in found] == [f"f{n}" for n in range(100_000)][-FRAMES_MAX:]


def test_an_exception_of_this_process_has_claims(tree: Path) -> None:
    source = tree / "main.py"
    source.write_text("def tool():\n    raise KeyError\n")
    values: dict[str, object] = {}
    exec(compile(source.read_text(), str(source), "exec"), values)
    tool = values["tool"]
    assert callable(tool)
    with pytest.raises(KeyError) as raised:
        tool()
    place = os.path.realpath(tree)
    found = own_frames(claims_of(raised.value), place=place, tree=tree)
    assert [one.text() for one in found] == ["main.py:2 in tool"]
    with pytest.raises(SyntaxError) as broken:
        compile("x =\n", f"{place}/main.py", "exec")
    assert own_frames(claims_of(broken.value), place=place, tree=tree)[-1].text() == "main.py:1"

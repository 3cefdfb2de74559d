"""The rule by which a page is compared: what differs fails, what may differ does not."""

from __future__ import annotations

import pytest

from tests.guides.pages import Names, blocks, steps

PRINTED = """\
5c1fa0  open    60 min  exec: git status
8e20b1  open    59 min  exec: git fetch
2 questions
"""


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (PRINTED.strip(), True),
        ("5c1f…  open    60 min  exec: git status\n…", True),
        ("…\n2 questions", True),
        ("…\n8e20…  open  …  exec: git fetch\n2 questions", True),
        ("…", True),
        ("2 questions", False),
        ("5c1f…  open    60 min  exec: git status", False),
        ("5c1f…  open    60 min  exec: git log\n…", False),
        ("…\n3 questions", False),
        ("…open…", False),
        ("…\n2 questions\nmore", False),
    ],
)
def test_only_an_ellipsis_may_differ(shown: str, expected: bool) -> None:
    assert Names().match(shown, PRINTED) is expected


def test_an_id_is_that_of_the_first_output_from_then_on() -> None:
    names = Names()
    assert names.match("5c1f…  open\n8e20…  open", "77aa01  open\n99bb02  open")
    assert names.put("skillhouse approvals approve 5c1f --project") == (
        "skillhouse approvals approve 77aa01 --project"
    )
    assert names.match("5c1f approved (once)", "77aa01 approved (once)")
    assert not names.match("5c1f approved (once)", "99bb02 approved (once)")
    assert not Names().match("5c1f approved (once)", "77aa01 approved (once)")


def test_commands_and_what_they_print() -> None:
    text = "$ cd here\n$ cat <<E\n> one\n> E\none\n$ true\n"
    assert steps(text) == [("cd here", ""), ("cat <<E\none\nE", "one"), ("true", "")]


def test_a_block_has_its_mark_its_file_and_its_place() -> None:
    found = blocks("docs/guides/executable-skills.md")
    files = [block.file for block in found if block.language == "js"]
    assert files == ["index.js", None]
    assert {block.mark for block in found} == {"", "exit 1", "not run"}
    assert [block.line for block in found] == sorted({block.line for block in found})

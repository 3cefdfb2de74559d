"""Tests of skill/substitution.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.skill.substitution import argument_names, find_commands, substitute

PLACE = Path("/skills/fix")


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("Do $ARGUMENTS now", "a b", "Do a b now"),
        ("$0, $1, $2.", "'one two' three", "one two, three, ."),
        ("$ARGUMENTS[1]", "a b", "b"),
        ("no place", "a b", "no place\n\nARGUMENTS: a b\n"),
        ("no place", "", "no place"),
        ("$ARGUMENTS", "", ""),
        ("${CLAUDE_SKILL_DIR}/run.py", "", "/skills/fix/run.py"),
        ("${CLAUDE_SESSION_ID}", "", "s1"),
        ("cost: $HOME ${HOME} $$", "", "cost: $HOME ${HOME} $$"),
        ("$ARGUMENTS", "$0 ${CLAUDE_SKILL_DIR}", "$0 ${CLAUDE_SKILL_DIR}"),
        ("$0", "it's", "it's"),
        ("Fix $issue for $who", "12", "Fix 12 for "),
    ],
)
def test_places_are_filled(body: str, arguments: str, expected: str) -> None:
    filled = substitute(body, arguments, directory=PLACE, session="s1", names=("issue", "who"))
    assert filled == expected


@pytest.mark.parametrize(
    ("value", "names"),
    [("issue who", ("issue", "who")), (["a", "b"], ("a", "b")), ({"x": "y"}, ()), (None, ())],
)
def test_the_frontmatter_names_the_arguments(value: object, names: tuple[str, ...]) -> None:
    assert argument_names({"arguments": value}) == names


def test_commands_are_found_where_the_author_wrote_them() -> None:
    body = "State: !`git status`\n```!\nls -l\npwd\n```\n`code` ! `no`\n```\n!x\n```\n"
    found = list(find_commands(body))
    assert [place.command for place in found] == ["git status", "ls -l\npwd"]
    assert [body[place.start : place.end] for place in found] == [
        "!`git status`",
        "```!\nls -l\npwd\n```",
    ]

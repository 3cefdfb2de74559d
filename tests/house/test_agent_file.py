"""Tests of house/agent_file.py: which skills a subagent's file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.house import agent_skills
from skillhouse.house.conversation import AGENT_FILE_MAX

HEAD = "---\nname: reviewer\ndescription: Reviews.\n"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("skills: kestrel, osprey\n", ("kestrel", "osprey")),
        ("skills:\n  - kestrel\n  - osprey\n  - kestrel\n", ("kestrel", "osprey")),
        ("skills: [kestrel]\n", ("kestrel",)),
        ("skills:\n", ()),
        ("model: opus\n", ()),
    ],
)
def test_the_names_are_a_list_or_a_line(
    tmp_path: Path, field: str, expected: tuple[str, ...]
) -> None:
    file = tmp_path / "reviewer.md"
    file.write_text(f"{HEAD}{field}---\nYou review.\n")
    assert agent_skills(file) == expected


@pytest.mark.parametrize(
    "text",
    [
        "no frontmatter",
        f"{HEAD}skills:\n  - deep: [er]\n---\n",
        f"{HEAD}skills: &a kestrel\n---\n",
        f"{HEAD}---\n" + "a" * AGENT_FILE_MAX,
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "reviewer.md"
    file.write_text(text)
    with pytest.raises(ConfigError):
        agent_skills(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the agent"):
        agent_skills(tmp_path / "nobody.md")

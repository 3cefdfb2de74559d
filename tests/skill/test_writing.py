"""Tests of skill/skill_file.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import SkillError
from skillhouse.skill import parse, skill_text


@pytest.mark.req("S004-74")
def test_a_plain_description_gives_the_published_template() -> None:
    assert skill_text("my-skill", "Does things.", "# Steps") == (
        "---\nname: my-skill\ndescription: Does things.\n---\n\n# Steps\n"
    )


@pytest.mark.parametrize(
    "description",
    [
        "Writes: up meetings",
        "Two\nlines",
        "Says \"hello\" and 'bye'",
        "写会议记录：快 # 不是注释",
        "x\nallowed-tools: Bash",
        "- a list?",
        "{a: b}",
        "> one line",
        "!tag",
        "no",
        "1.0",
        "---",
        "ends with \\",
    ],
)
def test_any_description_reads_back_as_it_was_given(description: str) -> None:
    """Trap 14: a description with a colon broke the created file."""
    result = parse(skill_text("my-skill", description, "Body").encode(), directory="my-skill")
    assert result.skill is not None
    assert result.skill.description == description
    assert list(result.skill.frontmatter.fields) == ["name", "description"]
    assert result.body == "\nBody\n"
    assert result.diagnostics == ()


@given(st.text(max_size=60), st.text(max_size=60))
def test_what_is_written_reads_back_or_is_refused(description: str, body: str) -> None:
    try:
        text = skill_text("x", description, body)
    except SkillError:
        return
    result = parse(text.encode(), directory="x")
    assert result.skill is not None
    assert result.skill.description == description.strip()
    assert list(result.skill.frontmatter.fields) == ["name", "description"]


@pytest.mark.parametrize(
    ("name", "description", "code"),
    [
        ("", "Fine.", "name-missing"),
        ("../x", "Fine.", "name-invalid"),
        ("Has Blank", "Fine.", "name-invalid"),
        ("x" * 65, "Fine.", "name-invalid"),
        ("fine", " \n", "description-missing"),
        ("fine", "x" * 1025, "description-too-long"),
        ("fine", "hid\u200bden", "hidden-characters"),
    ],
)
def test_what_breaks_the_specification_is_not_written(
    name: str, description: str, code: str
) -> None:
    with pytest.raises(SkillError) as caught:
        skill_text(name, description, "Body")
    assert caught.value.code == code

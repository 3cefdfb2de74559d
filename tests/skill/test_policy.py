"""Tests of ParsePolicy: what designs and clients differ on when they read a SKILL.md."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor.structs import replace
from skillhouse.skill import DEFAULT_POLICY, ParsePolicy, load, parse, read_metadata

POLICIES = st.builds(
    ParsePolicy,
    yaml_repair=st.booleans(),
    no_frontmatter=st.sampled_from(["skip", "body"]),
    name_from=st.sampled_from(["field", "directory"]),
    missing_name=st.sampled_from(["directory", "skip"]),
    missing_description=st.sampled_from(["skip", "empty", "body"]),
    bad_name=st.sampled_from(["warn", "skip", "free"]),
    name_mismatch=st.sampled_from(["warn", "skip", "free"]),
    long_description=st.sampled_from(["warn", "skip", "cut"]),
    replaced_characters=st.sampled_from(["", ":", ": "]),
)
LINES = st.sampled_from(
    ["---", "name: x", "name: My Skill", "name: a:b", "name: ''", "description: Does.", "",
     "description: ''", f"description: {'x' * 1_030}", "description: Use when: asked",
     "description: [a]", "# Title", "  ", "name: x\u200b", "version: 1"]
)  # fmt: skip


def read(text: str, **changes: Any) -> tuple[tuple[str, str] | None, list[tuple[str, str]]]:
    """Return (name, description), if it is a skill, and (severity, code) of the findings."""
    policy = replace(DEFAULT_POLICY, **changes)
    result = parse(text.encode(), directory="here", policy=policy)
    skill = result.skill
    findings = [(found.severity.value, found.code) for found in result.diagnostics]
    return (skill.name, skill.description) if skill else None, findings


def head(name: str = "name: here", description: str = "description: Does.") -> str:
    return "\n".join(["---", *filter(None, (name, description)), "---", "", "# Title", ""])


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        (head(name="name: other"), {"name_from": "directory"},
         (("here", "Does."), [("warning", "name-mismatch")])),
        (head(name="name: other"), {"name_mismatch": "skip"},
         (None, [("error", "name-mismatch")])),
        (head(name="name: other"), {"name_mismatch": "free"}, (("other", "Does."), [])),
        (head(name="name: My Skill"), {"name_mismatch": "free"},
         (("My Skill", "Does."), [("warning", "name-invalid")])),
        (head(name="name: My Skill"), {"name_mismatch": "free", "bad_name": "free"},
         (("My Skill", "Does."), [])),
        (head(name="name: My Skill"), {"name_mismatch": "free", "bad_name": "skip"},
         (None, [("error", "name-invalid")])),
        (head(name=""), {}, (("here", "Does."), [("warning", "name-missing")])),
        (head(name=""), {"missing_name": "skip"}, (None, [("error", "name-missing")])),
        (head(description=""), {}, (None, [("error", "description-missing")])),
        (head(description=""), {"missing_description": "empty"},
         (("here", ""), [("warning", "description-missing")])),
        (head(description=""), {"missing_description": "body"},
         (("here", "# Title"), [("warning", "description-missing")])),
        (head(description="description: [a]"), {"missing_description": "empty"},
         (None, [("error", "description-type")])),
        (head(description="description: " + "x" * 1_025), {"long_description": "cut"},
         (("here", "x" * 1_024), [])),
        (head(description="description: " + "x" * 1_025), {"long_description": "skip"},
         (None, [("error", "description-too-long")])),
        (head(name="name: a:b"), {"replaced_characters": ":", "name_mismatch": "free"},
         (("a-b", "Does."), [])),
        ("# Title\n", {}, (None, [("error", "frontmatter-missing")])),
        ("# Title\n", {"no_frontmatter": "body"}, (None, [("warning", "frontmatter-missing"),
         ("warning", "name-missing"), ("error", "description-missing")])),
        ("\n# Title\n", {"no_frontmatter": "body", "missing_description": "body"},
         (("here", "# Title"), [("warning", "frontmatter-missing"), ("warning", "name-missing"),
          ("warning", "description-missing")])),
        ("---\nname: x\n", {"no_frontmatter": "body", "missing_description": "empty"},
         (("here", ""), [("warning", "frontmatter-unclosed"), ("warning", "name-missing"),
          ("warning", "description-missing")])),
    ],
)  # fmt: skip
def test_each_treatment_gives_its_skill_and_its_findings(
    text: str, changes: dict[str, Any], expected: Any
) -> None:
    assert read(text, **changes) == expected


def test_hidden_characters_are_refused_under_every_policy() -> None:
    lax = {"bad_name": "free", "name_mismatch": "free", "missing_description": "body"}
    assert read(head(name="name: he\u200bre"), **lax) == (None, [("error", "hidden-characters")])
    text = "---\nname: here\n---\nHid\u200bden\n"
    found = read(text, **lax)
    assert found[0] is None
    assert ("error", "hidden-characters") in found[1]


@pytest.mark.req("S004-6")
def test_the_body_is_trimmed_where_the_policy_says_so() -> None:
    data = f"{head()}\n\n".encode()
    assert parse(data, directory="here").body == "\n# Title\n\n\n"
    trimmed = parse(data, directory="here", policy=replace(DEFAULT_POLICY, trim_body=True))
    assert (trimmed.body, trimmed.text) == ("# Title", data.decode())


@given(lines=st.lists(LINES, max_size=8), policy=POLICIES)
def test_the_head_says_what_the_whole_file_would_under_any_policy(
    lines: list[str], policy: ParsePolicy
) -> None:
    data = "\n".join(lines).encode()
    result = parse(data, directory="here", policy=policy)
    with TemporaryDirectory() as directory:
        file = Path(directory, "SKILL.md")
        file.write_bytes(data)
        handle = os.open(file, os.O_RDONLY)
        try:
            found, findings = read_metadata(handle, len(data), "here", policy)
        finally:
            os.close(handle)
    skill = result.skill
    assert (found and (found.name, found.description)) == (
        skill and (skill.name, skill.description)
    )
    # What is hidden in the body only the whole file tells.
    expected = [found.code for found in result.diagnostics]
    if "\u200b" in result.body:
        expected = expected[: len(findings)]
    assert [finding.code for finding in findings] == expected


def test_a_description_far_down_in_the_body_is_found_by_the_head_too(tmp_path: Path) -> None:
    policy = replace(DEFAULT_POLICY, missing_description="body")
    data = ("---\nname: x\n---\n" + "\n" * 9_000 + "At last.\nMore.\n").encode()
    file = tmp_path / "SKILL.md"
    file.write_bytes(data)
    handle = os.open(file, os.O_RDONLY)
    try:
        found, _ = read_metadata(handle, len(data), "x", policy)
    finally:
        os.close(handle)
    assert found is not None
    assert found.description == "At last."


def test_load_reads_a_file_as_it_was_read_when_it_was_found(tmp_path: Path) -> None:
    file = tmp_path / "here" / "SKILL.md"
    file.parent.mkdir()
    file.write_text("Only text.\n")
    policy = ParsePolicy(no_frontmatter="body", missing_description="empty")
    skill = parse(file.read_bytes(), directory="here", path=file, policy=policy).skill
    assert skill is not None
    content = load(skill)
    assert (content.body, content.frontmatter_changed) == ("Only text.\n", False)

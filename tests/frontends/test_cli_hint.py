"""`skillhouse hint`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import write_skill


@pytest.fixture
def pdf(place: Path) -> Path:
    return write_skill(
        place / "home/.agents/skills/pdf-forms",
        "Fills in and merges PDF forms. Use when the user wants to fill a PDF form.",
    )


def test_it_prints_the_line_or_ends_with_one(pdf: Path, run: Run) -> None:
    code, out, err = run("hint", "please fill in", "this PDF form")
    assert (code, err) == (0, "")
    assert out.startswith("Installed skill for this request, by skillhouse: `pdf-forms` (")
    assert len(out.splitlines()) == 1
    code, out, err = run("hint", "thanks, that is all for today")
    assert (code, out, err[:8]) == (1, "", "no hint:")


def test_the_client_and_what_was_named_count(pdf: Path, run: Run) -> None:
    prompt = "fill in this PDF form"
    code, out, _ = run("hint", prompt, "--client", "codex", "--json")
    found = json.loads(out)
    assert (code, [one["load"] for one in found["skills"]]) == (
        0,
        [f"by reading `{pdf / 'SKILL.md'}`"],
    )
    assert found["skills"][0]["file"] == str(pdf / "SKILL.md")
    code, out, _ = run("hint", prompt, "--named", "pdf-forms", "--json")
    assert (code, json.loads(out)) == (1, {"hint": None, "skills": []})
    code, out, _ = run("hint", prompt, "--client", "claude-code", "--tool", "mcp__x__skill")
    assert "load with the tool mcp__x__skill" in out


@pytest.mark.parametrize(
    "options", [("--client", "no-such"), ("--agent", "no-such"), ("--named", "x")]
)
def test_a_name_that_is_not_there_is_an_error(
    options: tuple[str, str], pdf: Path, run: Run
) -> None:
    code, out, err = run("hint", "fill in this PDF form", *options)
    assert (code > 1 or bool(err), out) == (True, "")

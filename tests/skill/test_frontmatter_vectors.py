"""Every frontmatter vector: bytes of a SKILL.md to loaded, loaded with findings, or refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from skillhouse.skill import ParsePolicy, parse
from tests.vectorfile import vectors


def data_of(given: dict[str, Any]) -> bytes:
    data = base64.b64decode(given["skill_md_b64"])
    fill = given.get("fill")
    if fill:
        data = data[: fill["at"]] + bytes([fill["byte"]]) * fill["count"] + data[fill["at"] :]
    return data


@pytest.mark.parametrize("fast", [True, False], ids=["rust", "events"])
@pytest.mark.parametrize(("given", "expect"), vectors("frontmatter"))
def test_a_file_is_read_as_its_vector_says(
    given: dict[str, Any], expect: dict[str, Any], fast: bool
) -> None:
    policy = ParsePolicy(yaml_fast_path=fast)
    result = parse(data_of(given), directory=given["directory"], policy=policy)
    codes = sorted({found.code for found in result.diagnostics})
    skill = result.skill
    outcome = "skip" if skill is None else "warn" if codes else "load"
    description = expect["description"] and expect["description"].strip()
    assert (
        outcome,
        skill and skill.name,
        skill and skill.description.strip(),
        codes,
    ) == (expect["outcome"], expect["name"], description, expect["codes"])

"""Tests of skill/yaml_text.py: which blocks are plain, and that both ways read them alike."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.skill.source import FileRefusedError, normalise, split_head
from skillhouse.skill.yaml_text import plain_mapping, read_mapping
from tests.skill.blocks import REAL, outcome
from tests.skill.plain_blocks import LINES, line_block


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ("name: pdf\n", {"name": "pdf"}),
        ("a: no\nb: 1.0\nc: ~\n", {"a": "no", "b": "1.0", "c": "~"}),
        ("a: 'b: c #d'\nb: \"it's\"\n", {"a": "b: c #d", "b": "it's"}),
        ("a: b#c\nb: c:d\n", {"a": "b#c", "b": "c:d"}),
        ("a:\nb: c\n", {"a": "", "b": "c"}),
        ("a:\n  b: c\n  d: 'e'\nf: g\n", {"a": {"b": "c", "d": "e"}, "f": "g"}),
        ("a:\n- b\n- c d\ne:\n  - f\n", {"a": ["b", "c d"], "e": ["f"]}),
        ("a: [b, c-1 d]\n", {"a": ["b", "c-1 d"]}),
        ("a: 数据 – é\n", {"a": "数据 – é"}),
    ],
)
def test_a_plain_block_is_read(block: str, fields: dict[str, Any]) -> None:
    assert plain_mapping(block) == fields == read_mapping(block, fast=False)


@pytest.mark.parametrize(
    "block",
    [
        "",
        "a: b",
        "a: b\n\n",
        "a\n",
        "a: b: c\n",
        "a: b:\n",
        "a: b \n",
        "a: b #c\n",
        "a: b\tc\n",
        "a: b\na: c\n",
        "a:\na: b\n",
        "a:\n  b: c\n  b: d\n",
        "a:\n  b: c\n- d\n",
        "a:\n- b\n  - c\n",
        "a: >\n  b\n",
        "a: b\n  c\n",
        "  a: b\n",
        "- a\n",
        "a:\n   b: c\n",
        "a: [b,\nc]\n",
        "a: *b\n",
        "a: 'b''c'\n",
        'a: "b\\n"\n',
        "a: b\u2028c\n",
        "a: \xa0b\n",
        "a: b\u200b\n",
        "a: &b c\n",
    ],
)
def test_any_other_block_is_for_the_events(block: str) -> None:
    assert plain_mapping(block) is None


@pytest.mark.slow
@settings(max_examples=2_000)
@given(seed=st.integers(0, 2**64))
def test_a_block_of_nearly_plain_lines_reads_alike_in_both_ways(seed: int) -> None:
    block = line_block(Random(seed))
    assert outcome(block, fast=True) == outcome(block, fast=False)


@pytest.mark.parametrize("line", LINES)
def test_every_line_reads_alike_in_every_place(line: str) -> None:
    for block in (f"{line}\n", f"m:\n{line}\n", f"m:\n  {line}\nn: o\n", f"m:\n  n: o\n  {line}\n"):
        assert outcome(block, fast=True) == outcome(block, fast=False)


def test_the_ordinary_blocks_that_are_plain_are_known() -> None:
    plain = [plain_mapping(block) is not None for block in REAL]
    assert plain == [True, False, False, False, False]


@pytest.mark.slow
def test_six_in_ten_published_blocks_are_plain_and_read_alike(shared_data: Path) -> None:
    plain = readable = 0
    with gzip.open(shared_data / "skill-files" / "sample.jsonl.gz") as lines:
        for line in lines:
            data = base64.b64decode(json.loads(line)["skill_md_b64"])
            try:
                block = split_head(normalise(data, [])).block
                fields = read_mapping(block, fast=False)
            except FileRefusedError:
                continue
            readable += 1
            found = plain_mapping(block)
            plain += found is not None
            assert found in (None, fields)
    assert plain / readable > 0.6

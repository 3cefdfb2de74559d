"""Tests of skill/yaml_text.py: every scalar as written, and one result by either parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillhouse.skill.source import FileRefusedError
from skillhouse.skill.yaml_text import FAST_BLOCK_MAX, is_plain, key_line, key_lines, read_mapping
from tests.skill.blocks import FRAGMENTS, REAL, outcome, random_block

# Left out of the fast part: it starts processes or tries very much.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

ROOT = Path(__file__).resolve().parents[2]

DIFFERENT = {
    "a list with an empty key": "a: [?]\n",
    "a document's end before it": "...\na: b\n",
    "a document's end after a comment": "# c\n...\na: b\n",
    "text in flow that begins with a colon": "a: [:b]\n",
    "text in flow that begins with a colon, later": "a: [b, :c]\n",
    "half characters, escaped": 'a: "\\ud83d\\ude00"\n',
    "half characters in a key": '"\\uD83D\\uDE00": a\n',
    "a directive that nobody knows": "%a\n--- {a: b}\n",
    "a directive after a comment": "# c\n%a\n--- {a: b}\n",
    "a block scalar without a last newline": "a: |\n b",
    "a folded scalar without a last newline": "a: >\n b",
    "an alias": "a: &x b\nc: *x\n",
    "a tag": "a: !!str 1\n",
    "an unknown tag": "a: !x 1\n",
    "a tab before a value": "a:\tb\n",
    "a line separator": "a: b\u2028c: d\n",
    "a next line character": "a: b\x85c: d\n",
    "a byte order mark inside": "a: b\n\ufeffc: d\n",
    "a control character": "a: b\x01\n",
    "an empty block scalar": "a: |\n\nb: c\n",
    "an empty block scalar after a comment": "a: | # c\n\nb: c\n",
    "an empty block scalar that is kept": "a: >+\n\n\n",
    "a block scalar that begins with blanks": "a: |\n   \n  b\n",
    "a quote in flow": "a: ['b', \"c\"]\n",
    "a block mark in flow": "a: [>, b]\n",
    "a flow list over two lines": "a: [b,\nc]\n",
    "17 openers in one line": "a: " + "- " * 17 + "b\n",
    "17 brackets": "a: " + "[" * 17 + "]" * 17 + "\n",
    "17 explicit keys": "? " * 17 + "a\n",
}
"""Blocks that the parsers read differently or may read differently; kept away from the shortcut."""

SAME = {
    "17 levels by indentation": "".join(" " * level + "k:\n" for level in range(17)),
    "17 levels of lists by indentation": "a:\n" + "".join(" " * n + "-\n" for n in range(17)),
    "120 levels by indentation": "".join(" " * level + "k:\n" for level in range(120)),
    "a list as a key": "? [a]\n: b\n",
    "a list as a key, in flow": "[a]: b\n",
    "a map as a key": "{a: b}: c\n",
    "a block list as a key": "? - a\n: b\n",
    "a map with a list as a key": "? a: [b]\n: c\n",
    "a number": "a: 1.0\n",
    "a hexadecimal number": "a: 0x1F\n",
    "a large number": "a: 123456789012345678901234567890\n",
    "a word for true": "a: yes\nb: True\nc: on\n",
    "a word for nothing": "a: ~\nb: null\nc:\n",
    "a date": "a: 2026-01-01\nb: 2026-01-01T00:00:00Z\nc: 12:30:45\n",
    "a number as a key": "1: a\n",
    "a word as a key": "no: a\n",
    "nothing as a key": ": a\n",
    "a merge": "<<: {a: b}\n",
    "a duplicate key": "a: b\n'a': c\n",
    "a duplicate key deep down": "a:\n  - b: c\n    b: d\n",
    "a key of 1,024 characters": "a" * 1_024 + ": b\n",
    "a key of 1,025 characters": "a" * 1_025 + ": b\n",
    "a key of 1,025 characters of two bytes": "é" * 1_025 + ": b\n",
    "a quoted key of 1,025 characters": '"' + "a" * 1_023 + '": b\n',
    "two documents": "a: b\n--- # c\nc: d\n",
    "a document's end and another": "a: b\n...\nc: d\n",
    "a document's end after it": "a: b\n...\n",
    "a percent sign at a line's start": "a: b\n  %c\n",
    "a reserved mark": "a: @b\n",
    "a backquote": "a: `b`\n",
    "a colon without a blank": "a: b:c\nd:e: f\n",
    "a number sign without a blank": "a: b#c\n",
    "a quote that goes on": "a: 'b' c\n",
    "a quote that is not closed": "a: 'b\n",
    "quotes over lines": "a: 'b\n\n  c'\nd: \"e\\\n  f\"\n",
    "a value over lines": "a: b\n  c\n\n  d\n",
    "escapes": 'a: "\\x41\\t\\e\\N\\_\\L\\0\\/"\n',
    "an unknown escape": 'a: "\\z"\n',
    "an indicator of indentation": "a: |2\n   b\n  c\n",
    "a folded scalar with more indentation": "a: >\n  b\n   c\n\n  d\n",
    "a text that is no mapping": "a\n",
    "a list that is no mapping": "- a\n",
    "nothing": "\n",
    "only comments": "# a\n# b\n",
}
"""Blocks that the shortcut may see; both ways end alike."""


@pytest.mark.parametrize("block", DIFFERENT.values(), ids=DIFFERENT)
def test_a_block_that_the_parsers_read_differently_is_not_plain(block: str) -> None:
    assert not is_plain(block)
    assert outcome(block, fast=True) == outcome(block, fast=False)


@pytest.mark.parametrize("block", SAME.values(), ids=SAME)
def test_a_block_ends_alike_in_both_ways(block: str) -> None:
    assert outcome(block, fast=True) == outcome(block, fast=False)


@pytest.mark.parametrize("block", REAL)
def test_an_ordinary_block_ends_alike_in_both_ways(block: str) -> None:
    assert outcome(block, fast=True) == outcome(block, fast=False)
    assert isinstance(read_mapping(block), dict)


def test_the_shortcut_is_for_small_blocks_that_are_ordinary() -> None:
    # What keeps the others away: `*`, quotes in flow, `&`.
    assert [is_plain(block) for block in REAL] == [True, False, False, True, False]
    start = "name: a\ndescription: "
    assert is_plain(start + "b" * (FAST_BLOCK_MAX - len(start) - 2) + "\n")
    assert not is_plain(start + "b" * (FAST_BLOCK_MAX - len(start) - 1) + "\n")


@settings(max_examples=1_000)
@given(seed=st.integers(0, 2**64))
def test_whatever_the_shortcut_takes_the_events_read_alike(seed: int) -> None:
    block = random_block(Random(seed))
    assert outcome(block, fast=True) == outcome(block, fast=False)


@settings(max_examples=300)
@given(parts=st.lists(st.sampled_from(["a", "a: ", "k:", " ", "\n", *FRAGMENTS]), max_size=16))
@example(parts=["a: ", "[", "?", "]"])
def test_whatever_the_shortcut_takes_of_fragments_the_events_read_alike(parts: list[str]) -> None:
    block = "".join(parts) + "\n"
    assert outcome(block, fast=True) == outcome(block, fast=False)


def fuzz(seed: int, count: int) -> int:
    """Return how many of `count` random blocks were plain, read by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.skill.blocks", str(seed), str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2_000:]}"
    return int(done.stdout)


def test_the_native_parsers_survive_random_blocks() -> None:
    assert fuzz(seed=1, count=6_000) > 2_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_the_native_parsers_survive_very_many_random_blocks(seed: int) -> None:
    assert fuzz(seed=seed, count=100_000) > 30_000


@pytest.mark.parametrize("fast", [True, False])
def test_every_scalar_is_the_text_that_was_written(fast: bool) -> None:
    written = "no 1.0 2026-01-01 0x1F ~ null 1_000 .inf 12:30:45 = <<".split()
    block = "".join(f"k{number}: {text}\n" for number, text in enumerate(written))
    assert read_mapping(block, fast=fast) == dict(zip(key_lines(block), written, strict=True))


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ("a:\nb: ''\n", {"a": "", "b": ""}),
        ("a: [x, 'y', {z: [1]}]\n", {"a": ["x", "y", {"z": ["1"]}]}),
        ("{a: b, 'c': d}\n", {"a": "b", "c": "d"}),
        ("a: 'it''s'\nb: \"\\u00e9\\n\"\n", {"a": "it's", "b": "é\n"}),
        ("a: |\n  b\n   c\n", {"a": "b\n c\n"}),
        ("a: >-\n  b\n  c\n\n  d\n", {"a": "b c\nd"}),
        ("a:\n- b\n-\n- - c\n", {"a": ["b", "", ["c"]]}),
        ("? a\n: b\n", {"a": "b"}),
        ("1: a\nno: b\n", {"1": "a", "no": "b"}),
        ("a: b # c\n# d\n", {"a": "b"}),
        ("--- # c\na: b\n...\n", {"a": "b"}),
    ],
)
def test_a_block_is_read_as_ordinary_yaml(block: str, fields: dict[str, Any]) -> None:
    assert read_mapping(block, fast=False) == fields
    assert read_mapping(block, fast=True) == fields


def test_fields_keep_their_order() -> None:
    block = "z: 1\na: {y: 2, b: 3}\nm: 4\n"
    assert outcome(block, fast=True) == "{'z': '1', 'a': {'y': '2', 'b': '3'}, 'm': '4'}"


@pytest.mark.parametrize(
    ("block", "finding"),
    [
        ("a: &x b\n", ("yaml-alias", "anchor `x`: write the value out", 2)),
        ("a: b\nc: *x\n", ("yaml-alias", "alias `x`: write the value out", 3)),
        ("a: !x b\n", ("yaml-tag", "tag `!x`: values are plain text, lists and maps", 2)),
        ("a: ! b\n", ("yaml-tag", "tag `!`: values are plain text, lists and maps", 2)),
        ("a: b\n\na: c\n", ("yaml-duplicate-key", "key 'a' twice in one mapping", 4)),
        ("a: b\n--- # c\n", ("yaml-error", "a second document in the frontmatter", 3)),
        ("[a]: b\n", ("yaml-error", "a collection as a key", 2)),
        ("a: b\nc: \x01\n", ("yaml-error", "not YAML: control characters are not allowed", 3)),
        ("é: b\nc: [\n", ("yaml-error", "not YAML: did not find expected node content", 4)),
        ("- a\n", ("frontmatter-not-mapping", "expected `key: value` lines", 2)),
    ],
)
def test_a_refusal_says_what_and_on_which_line(block: str, finding: tuple[str, str, int]) -> None:
    for fast in (True, False):
        with pytest.raises(FileRefusedError) as caught:
            read_mapping(block, fast=fast)
        assert caught.value.finding == (*finding, True)


@pytest.mark.parametrize("levels", [15, 16, 17, 18])
@pytest.mark.parametrize("fast", [True, False])
def test_sixteen_levels_are_read_and_seventeen_are_not(levels: int, fast: bool) -> None:
    # The last line opens no level of its own: its value is text.
    block = "".join(" " * level + "k:\n" for level in range(levels - 1)) + " " * levels + "k: v\n"
    flow = "k: " + "[" * (levels - 1) + "]" * (levels - 1) + "\n"
    for text in (block, flow):
        found = outcome(text, fast=fast)
        if levels <= 16:
            assert isinstance(found, str)
        else:
            assert found == ("yaml-depth", "nested deeper than 16", found[2], True)  # type: ignore[index]


@pytest.mark.parametrize(
    ("block", "key", "line"),
    [
        ("a: b\nc: d\n", "c", 3),
        ("a:\n  c: x\n\nc: d\n", "c", 5),
        ("{a: b, c: d}\n", "c", 2),
        ("{a: b,\n c: d}\n", "c", 3),
        ("'a': b\n\"c\" : d\n", "c", 3),
        ('a: b\n"\\x63": d\n', "c", 3),
        ("a: |\n  c: x\nc: d\n", "c", 4),
        ("? c\n: d\n", "c", 2),
        ("a: 'x\n\nc: y'\nc: d\n", "c", 5),
        ("a: [{c: x}]\nb: {c: y}\nc: d\n", "c", 4),
        ("a.b: x\naxb: y\n", "a.b", 2),
        ("a: b\n", "c", None),
    ],
)
def test_a_field_has_the_line_of_its_key(block: str, key: str, line: int | None) -> None:
    assert key_line(block, key) == line
    assert key_lines(block).get(key) == line

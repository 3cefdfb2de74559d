"""Tests of skill/yaml_text.py: scalars as written by either parser, and which lines it repairs."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillhouse.skill import parse
from skillhouse.skill.source import FileRefusedError, Finding
from skillhouse.skill.yaml_text import (
    VALUES_JUDGED_MAX,
    field_at,
    key_line,
    key_lines,
    plain_mapping,
    read_mapping,
    repaired,
)
from tests.harness import ran
from tests.skill.blocks import FRAGMENTS, REAL, outcome, random_block

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
"""Blocks that YAML libraries read differently."""

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
"""Blocks that may be plain; both ways end alike."""


@pytest.mark.parametrize("block", DIFFERENT.values(), ids=DIFFERENT)
def test_a_block_that_libraries_read_differently_is_for_the_events(block: str) -> None:
    assert plain_mapping(block) is None
    assert outcome(block, fast=True) == outcome(block, fast=False)


@pytest.mark.parametrize("block", SAME.values(), ids=SAME)
def test_a_block_ends_alike_in_both_ways(block: str) -> None:
    assert outcome(block, fast=True) == outcome(block, fast=False)


@pytest.mark.parametrize("block", REAL)
def test_an_ordinary_block_ends_alike_in_both_ways(block: str) -> None:
    assert outcome(block, fast=True) == outcome(block, fast=False)
    assert isinstance(read_mapping(block), dict)


@settings(max_examples=1_000)
@given(seed=st.integers(0, 2**64))
def test_whatever_is_plain_the_events_read_alike(seed: int) -> None:
    block = random_block(Random(seed))
    assert outcome(block, fast=True) == outcome(block, fast=False)


@settings(max_examples=300)
@given(parts=st.lists(st.sampled_from(["a", "a: ", "k:", " ", "\n", *FRAGMENTS]), max_size=16))
@example(parts=["a: ", "[", "?", "]"])
def test_whatever_is_plain_of_fragments_the_events_read_alike(parts: list[str]) -> None:
    block = "".join(parts) + "\n"
    assert outcome(block, fast=True) == outcome(block, fast=False)


def fuzz(seed: int, count: int) -> int:
    """Return how many of `count` random blocks were plain, read by a process of its own."""
    done = ran(
        [sys.executable, "-m", "tests.skill.blocks", str(seed), str(count)], cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2_000:]}"
    return int(done.stdout)


def test_random_blocks_are_read_alike_in_both_ways() -> None:
    assert fuzz(seed=1, count=6_000) > 600


@pytest.mark.parametrize("seed", [2, 3])
def test_very_many_random_blocks_are_read_alike_in_both_ways(seed: int) -> None:
    assert fuzz(seed=seed, count=100_000) > 10_000


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
        ("a: &x b\n", ("yaml-alias", "anchor `x`", 2)),
        ("a: b\nc: *x\n", ("yaml-alias", "alias `x`", 3)),
        ("a: !x b\n", ("yaml-tag", "tag `!x`; values are plain text, lists and maps", 2)),
        ("a: ! b\n", ("yaml-tag", "tag `!`; values are plain text, lists and maps", 2)),
        ("a: b\n\na: c\n", ("yaml-duplicate-key", "key 'a' twice in one mapping", 4)),
        ("a: b\n--- # c\n", ("yaml-error", "a second document in the frontmatter", 3)),
        ("[a]: b\n", ("yaml-error", "a collection as a key", 2)),
        ("a: b\nc: \x01\n", ("yaml-error", "a control character: `c: \x01`", 3)),
        ("é: b\nc: [\n", ("yaml-error", "a bracket that is not closed: `c: [`", 3)),
        ("- a\n", ("frontmatter-not-mapping", "expected `key: value` lines", 2)),
    ],
)
def test_a_refusal_says_what_and_on_which_line(block: str, finding: tuple[str, str, int]) -> None:
    for fast in (True, False):
        with pytest.raises(FileRefusedError) as caught:
            read_mapping(block, fast=fast)
        assert caught.value.finding[:4] == (*finding, True)


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
            assert isinstance(found, Finding)
            assert found[:2] == ("yaml-depth", "nested deeper than 16")


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


PIECES = ["a", "b", ": ", ":", "\n", " ", "'", '"', "> ", "|", "#", "- ", "\\", "\t", "[", "}", "*"]


def mended_text(block: str) -> str | None:
    repair = repaired(block)
    return None if repair is None else repair.block


def frontmatter(*lines: str) -> bytes:
    return "\n".join(["---", *lines, "---", "", "Do the work.", ""]).encode()


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        ("a: b: c", "a: 'b: c'"),
        ("a: b:", "a: 'b:'"),
        ("a: b:\tc", "a: 'b:\tc'"),
        ("a:   b: c   ", "a: 'b: c'"),
        ("a : b: c", "a : 'b: c'"),
        ("a-b c: d: e", "a-b c: 'd: e'"),
        ("-a: b: c", "-a: 'b: c'"),
        ("a: it's: b", "a: 'it''s: b'"),
        ('a: say "b": \\n', "a: 'say \"b\": \\n'"),
        ("a: > b", "a: 'b'"),
        ("a: | b: c", "a: 'b: c'"),
        ("a: >- b", "a: 'b'"),
        ("a: |+2 b's", "a: 'b''s'"),
        ("a: b: c # d", "a: 'b: c # d'"),
        ("a:b: c: d", "a:b: 'c: d'"),
        ("'a': b: c", "'a': 'b: c'"),
        ('"a": [b] c', "\"a\": '[b] c'"),
        ("名前: [b] c", "名前: '[b] c'"),
        ("a: [b] c's", "a: '[b] c''s'"),
        ("a: [b, c", "a: '[b, c'"),
        ("a: {b: c", "a: '{b: c'"),
        ("a: {{b}} c", "a: '{{b}} c'"),
        ("a: {{b}}", "a: '{{b}}'"),
        ("a: **b** c", "a: '**b** c'"),
        ("a: *b c", "a: '*b c'"),
        ("a: &b c: d", "a: '&b c: d'"),
        ("a: !b c: d", "a: '!b c: d'"),
        ("a: @b c", "a: '@b c'"),
        ("a: `b` c", "a: '`b` c'"),
        ("a: - b", "a: '- b'"),
        ("a: -", "a: '-'"),
        ('a: "b: c" d', "a: '\"b: c\" d'"),
        ('a: "b" - c', "a: '\"b\" - c'"),
        ("a: 'b' or 'c'", "a: '''b'' or ''c'''"),
        ("a: 'it's'", "a: 'it''s'"),
        ("description: b\n  c: d", "description: 'b\n  c: d'"),
        ("description:\n  b\n  c: d", "description:\n 'b\n  c: d'"),
        ("description: b #1\n  c", "description: 'b #1\n  c'"),
        ("a: ? b", "a: '? b'"),
        ("a: %b c", "a: '%b c'"),
        ("a: ] b", "a: '] b'"),
        ("a: , b", "a: ', b'"),
        ("a: >b", "a: '>b'"),
        ("a:\t[b] c", "a: '[b] c'"),
        ("a: b\x07c", 'a: "b\\U00000007c"'),
        ("a: b: \u2028 'c' \\ \"d\"", 'a: "b: \\U00002028 \'c\' \\\\ \\"d\\""'),
        ("a: [b] c\n  d\n\n  e", "a: '[b] c\n  d\n\n  e'"),
    ],
)
def test_a_faulty_value_becomes_quoted_text(line: str, mended: str) -> None:
    assert mended_text(line) == mended
    assert mended_text(f"x: y\n{line}\nz: w\n") == f"x: y\n{mended}\nz: w\n"


@pytest.mark.req("S001-27")
@pytest.mark.parametrize(
    "line",
    [
        "a: 'b: c'",
        "a: [b: c]",
        "a: {b: c}",
        "a:",
        "a: ",
        "a: |",
        "a: >-",
        "a: > # b: c",
        "  a: b: c",
        "\ta: b: c",
        "# a: b: c",
        "- a: b: c",
        "a: b:c",
        "a: http://b:80/c",
        "a: # b: c",
        "? a: b: c",
        "a:b: c",
        "'a: b: c",
        "'a'b: c: d",
        "a #b: c: d",
        "a: &b c",
        "a: *b",
        "a: !b c",
        "a: [b, c]",
        "a: [b,\n  c]",
        "a: b\n  c: d",
        "description:\n  - b: c\n  - d",
        "a: [b\n- c",
        "a: " + "[" * 40,
        "@a: b",
        "",
        "text",
    ],
)
def test_other_lines_are_left_alone(line: str) -> None:
    assert repaired(line) is None
    assert repaired(f"x: y\n{line}\n") is None


def test_only_the_faulty_lines_change() -> None:
    block = "name: x\ndescription: a: b\nmetadata:\n  c: d: e\nother: > f\n"
    assert mended_text(block) == (
        "name: x\ndescription: 'a: b'\nmetadata:\n  c: d: e\nother: 'f'\n"
    )


@given(block=st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_a_repair_keeps_the_lines_and_happens_once(block: str) -> None:
    mended = mended_text(block)
    if mended is None:
        return
    assert mended.count("\n") == block.count("\n")
    assert repaired(mended) is None


@given(
    key=st.text(alphabet="abc-_ .", min_size=1, max_size=6).map(lambda text: f"k{text}k"),
    value=st.text(alphabet="ab: '\"\\#&*!%é", min_size=1, max_size=12).map(
        lambda text: f"v{text}: w"
    ),
)
def test_a_mended_value_is_the_text_that_was_written(key: str, value: str) -> None:
    block = f"{key}: {value}\n"
    try:
        found = read_mapping(block)
    except FileRefusedError:
        mended = mended_text(block)
        assert mended is not None
        assert read_mapping(mended) == {key: value}
    else:
        # `v #: w` is a comment, and `v:: w` a longer key.
        assert mended_text(block) is None
        assert found


KEYS = st.sampled_from(["notes", "a b", "'q'", '"r"', "名前", "x-y", "a:b", "-k"])
VALUES = st.text(
    st.one_of(
        st.sampled_from("[]{}*&!|>%@`-?:,# ab'\"\\\t"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"),
    ),
    max_size=20,
)


def is_repairable(value: str) -> bool:
    """Whether the README of the vectors leaves nothing open about a value."""
    stripped = value.strip(" \t")
    return not stripped.startswith(("'", '"')) and " #" not in stripped and "\t#" not in stripped


@given(fields=st.dictionaries(KEYS, VALUES.filter(is_repairable), max_size=4))
def test_no_value_of_one_line_costs_the_skill(fields: dict[str, str]) -> None:
    lines = [f"{key}: {value}" for key, value in fields.items()]
    data = frontmatter("name: notes", "description: Take notes.", *lines)
    result = parse(data, directory="notes")
    refused = {found.code for found in result.diagnostics if found.severity == "error"}
    # What parses and may not be in a frontmatter stays refused.
    assert refused <= {"yaml-alias", "yaml-tag", "yaml-duplicate-key", "yaml-depth"}
    if result.skill is not None:
        assert result.skill.description == "Take notes."


@given(value=VALUES.filter(is_repairable))
def test_a_value_that_is_not_yaml_is_the_text_that_was_written(value: str) -> None:
    written = value.strip(" \t")
    result = parse(frontmatter("name: notes", f"description: {value}"), directory="notes")
    if not any(found.code == "yaml-repaired" for found in result.diagnostics):
        return
    text = read_mapping(mended_text(f"description: {value}\n") or "")["description"]
    if written[0] not in ">|":
        assert text == written


@given(block=st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_what_parses_is_never_changed(block: str) -> None:
    try:
        read_mapping(f"name: notes\n{block}\n", fast=False)
    except FileRefusedError:
        return
    result = parse(frontmatter("name: notes", block), directory="notes")
    assert "yaml-repaired" not in [found.code for found in result.diagnostics]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "sign", [chr(code) for code in range(0x21, 0x7F) if not chr(code).isalnum()]
)
def test_a_description_may_begin_with_any_sign_but_a_quote(sign: str, newline: str) -> None:
    for rest in ("x y", " x y", f"{sign}x{sign}{sign} y", "x: y", "x"):
        text = sign + rest
        lines = ["name: notes", f"description: {text}", "metadata:", "  author: me"]
        data = frontmatter(*lines).replace(b"\n", newline.encode())
        result = parse(data, directory="notes")
        codes = {found.code for found in result.diagnostics if found.severity == "error"}
        if sign in "'\"#":
            continue
        # Nothing but an anchor, a tag or an alias is left, or a list or map in the place of text.
        assert codes <= {"yaml-alias", "yaml-tag", "description-type"}, (text, codes)
        if not codes:
            assert result.skill is not None
            assert result.skill.frontmatter.fields["metadata"] == {"author": "me"}


def test_the_finding_names_each_field_and_its_line() -> None:
    data = frontmatter("name: notes", "description: [Beta] notes", "tags: [a, b", "x: - y")
    result = parse(data, directory="notes")
    assert [(found.code, found.line, found.message) for found in result.diagnostics] == [
        (
            "yaml-repaired",
            3,
            ("`description`, `tags` (line 4), `x` (line 5): not YAML without quotes, read as text"),
        )
    ]
    many = [f"k{number}: - y" for number in range(8)]
    result = parse(frontmatter("description: x", *many), directory="notes")
    assert "`k4` (line 7) and 3 more: not YAML" in result.diagnostics[0].message


def test_a_refusal_names_the_field_that_it_is_about() -> None:
    data = frontmatter("name: notes", "description: Use: it", "metadata:", "  hint: a: b")
    result = parse(data, directory="notes")
    assert [(found.code, found.line, found.field, str(found)) for found in result.diagnostics] == [
        (
            "yaml-error",
            5,
            "metadata",
            (
                "error: `metadata`: a colon with a space inside a value without quotes: "
                "`hint: a: b`; put the value in quotes [yaml-error]"
            ),
        )
    ]
    assert result.diagnostics[0].detail == "mapping values are not allowed in this context"
    assert field_at("- a\n", 2) is None


def test_a_block_of_many_faulty_values_is_not_repaired() -> None:
    lines = [f"k{number}: [x" for number in range(VALUES_JUDGED_MAX + 1)]
    assert repaired("\n".join(lines[1:])) is not None
    assert repaired("\n".join(lines)) is None


def test_a_repair_is_linear_in_the_length_of_a_line() -> None:
    for block in ("a" + " " * 60_000 + "x: [y", "a: [" + "\n" * 60_000, "'" * 60_000 + ": x: y"):
        repaired(block)


def test_no_published_file_is_lost_to_a_value_that_is_not_yaml(shared_data: Path) -> None:
    codes = set()
    with gzip.open(shared_data / "skill-files" / "sample.jsonl.gz") as lines:
        for line in lines:
            data = base64.b64decode(json.loads(line)["skill_md_b64"])
            codes |= {found.code for found in parse(data, directory="x").diagnostics}
    assert "yaml-repaired" in codes
    assert not codes & {"yaml-error", "yaml-alias", "yaml-tag"}

"""Tests of skill/repair.py: which lines are mended, and that all others stay as they are."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill import parse
from skillhouse.skill.repair import VALUES_JUDGED_MAX, field_at, repaired
from skillhouse.skill.source import FileRefusedError
from skillhouse.skill.yaml_text import read_mapping

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
        'a: "b: c" d',
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
            (
                "`description`, `tags` (line 4), `x` (line 5): not YAML without quotes, read as "
                "text; put the value in quotes"
            ),
        )
    ]
    many = [f"k{number}: - y" for number in range(8)]
    result = parse(frontmatter("description: x", *many), directory="notes")
    assert "`k4` (line 7) and 3 more: not YAML" in result.diagnostics[0].message


def test_a_refusal_names_the_field_that_it_is_about() -> None:
    data = frontmatter("name: notes", "description: Use: it", "metadata:", "  hint: a: b")
    result = parse(data, directory="notes")
    assert [(found.code, found.line, found.message[:21]) for found in result.diagnostics] == [
        ("yaml-error", 5, "`metadata`: not YAML:")
    ]
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

"""Tests of skill/skill_file.py with source.py and fields.py: bytes to a skill and findings."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill import ParsePolicy, ParseResult, parse
from skillhouse.skill.model import LOADING_POLICY
from tests.house.places import profile_under

GOOD = "---\nname: x\ndescription: Does.\n---\nBody.\n"


def parse_text(text: str | bytes, **options: Any) -> ParseResult:
    data = text if isinstance(text, bytes) else text.encode()
    return parse(data, directory="x", **{"policy": profile_under().parse_policy, **options})


def fenced(*lines: str, body: str = "") -> str:
    return "\n".join(["---", *lines, "---", body])


def judged(result: ParseResult) -> tuple[str, list[str]]:
    """Return the outcome as the vectors name it, and the codes of all findings, sorted."""
    found = result.diagnostics
    assert (result.skill is None) == any(each.severity is Severity.ERROR for each in found)
    outcome = "skip" if result.skill is None else "warn" if found else "load"
    return outcome, sorted({each.code for each in found})


LONG = "a" * 1_025

LINES: list[tuple[str, str | bytes, str, int | None]] = [
    ("a UTF-16 mark", "---\n".encode("utf-16"), "encoding", 1),
    ("NUL", b"---\nname: x\nextra: \0\n---\n", "encoding", 3),
    ("NUL after CR alone", b"---\rname: x\rextra: \0\r---\r", "encoding", 3),
    ("a byte that is not UTF-8, in a field", b"---\nname: x\nextra: \xe9\n---\n", "encoding", 3),
    ("a byte that is not UTF-8, in the body", GOOD.encode() + b"\n\xff", "encoding", 7),
    ("a byte order mark", "\ufeff" + GOOD, "bom", 1),
    ("CR alone", GOOD.replace("x\n", "x\r"), "line-endings", 2),
    ("CR alone in the body", GOOD + "a\rb\n", "line-endings", 6),
    ("no frontmatter", "# Title\n", "frontmatter-missing", 1),
    ("no closing line", "---\nname: x\n", "frontmatter-unclosed", 1),
    ("too much frontmatter", fenced("a" * 65_537), "frontmatter-too-large", 1),
    ("too much of all", GOOD + " " * 1_048_576, "too-large", None),
    ("much of all", GOOD + " " * 262_144, "large", None),
    ("an anchor", fenced("name: x", "a: &b c"), "yaml-alias", 3),
    ("an alias", fenced("name: x", "", "a: *b"), "yaml-alias", 4),
    ("a tag", fenced("name: x", "a:", "  - !b c"), "yaml-tag", 4),
    ("a key twice", fenced("name: x", "a: 1", "b: 2", "'a': 3"), "yaml-duplicate-key", 5),
    ("a key twice below", fenced("a:", "  b: 1", "  c: 2", "  b: 3"), "yaml-duplicate-key", 5),
    ("deep flow", fenced("name: x", "a:", "  " + "[" * 30 + "]" * 30), "yaml-depth", 4),
    ("deep lists", fenced("name: x", "a:", "  " + "- " * 30 + "b"), "yaml-depth", 4),
    ("deep maps", fenced(*(" " * level + "a:" for level in range(30))), "yaml-depth", 18),
    ("a bracket left open", fenced("name: x", "a:", "  - [b", "c: d"), "yaml-error", 4),
    ("a quote left open", fenced("name: x", 'a: "b', "c: d"), "yaml-error", 3),
    ("a control character", fenced("name: x", "# \x07"), "yaml-error", 3),
    ("a control character after others", fenced("name: x", "é: é", "# \x07"), "yaml-error", 4),
    ("a tab as indentation", fenced("a:", "\tb: c"), "yaml-repaired", 3),
    ("a list as a key", fenced("name: x", "[a]: b"), "yaml-error", 3),
    ("a second document", fenced("name: x", "--- # a", "b: c"), "yaml-error", 3),
    ("no indentation", fenced("a: b", "c", "d: e"), "yaml-error", 3),
    ("a list", fenced("- a"), "frontmatter-not-mapping", 2),
    ("nothing", fenced(), "frontmatter-not-mapping", 2),
    ("a colon", fenced("name: x", "description: Use: a"), "yaml-repaired", 3),
    ("a folded line", fenced("", "name: x", "description: > a"), "yaml-repaired", 4),
    ("no description", fenced("name: x"), "description-missing", 1),
    ("an empty description", fenced("name: x", "description:"), "description-missing", 3),
    ("a blank description", fenced("name: x", "description: ' '"), "description-missing", 3),
    ("a list of descriptions", fenced("name: x", "description: [a]"), "description-type", 3),
    ("a long description", fenced("name: x", f"description: {LONG}"), "description-too-long", 3),
    (
        "a long description, repaired",
        fenced("name: x", "a: b", f"description: {LONG}: a"),
        "description-too-long",
        4,
    ),
    ("hidden in a description", fenced("", "description: a\u200bb"), "hidden-characters", 3),
    ("hidden by an escape", fenced("a: b", r'description: "a\u200b"'), "hidden-characters", 3),
    ("hidden in the body", GOOD + "a\nb\u200bc\n", "hidden-characters", 7),
    ("hidden in the body, CRLF", GOOD.replace("\n", "\r\n") + "\u200b", "hidden-characters", 6),
    ("no name", fenced("description: a"), "name-missing", 1),
    ("no name but one below", fenced("metadata:", "  name: x"), "name-missing", 1),
    ("an empty name", fenced("description: a", "name:"), "name-missing", 3),
    ("a list of names", fenced("description: a", "name: [x]"), "name-missing", 3),
    ("a bad name", fenced("description: a", "", "name: X_"), "name-invalid", 4),
    ("another name", fenced("description: a", "# b", "name: y"), "name-mismatch", 4),
    ("another name, quoted", fenced("description: a", '"name" : y'), "name-mismatch", 3),
    ("another name, escaped", fenced("description: a", r'"n\x61me": y'), "name-mismatch", 3),
    ("another name, in flow", fenced("{description: a, name: y}"), "name-mismatch", 2),
    ("another name, below", fenced("metadata:", "  name: x", "name: y"), "name-mismatch", 4),
    (
        "another name, in text",
        fenced("description: |", "  name: x", "  name: z", "name: y"),
        "name-mismatch",
        5,
    ),
    (
        "another name, before what is repaired",
        fenced("metadata:", "  name: x", "name: y", "description: a: b"),
        "name-mismatch",
        4,
    ),
    (
        "another name, after what is repaired",
        fenced("description: a: b", "metadata:", "  name: x", "name: y"),
        "name-mismatch",
        5,
    ),
    ("another name, CRLF", fenced("a: b", "name: y").replace("\n", "\r\n"), "name-mismatch", 3),
    ("another name, CR", fenced("a: b", "name: y").replace("\n", "\r"), "name-mismatch", 3),
    ("metadata of lists", fenced("name: x", "metadata:", "  a: [b]"), "metadata-type", 3),
    ("metadata that is text", fenced("name: x", "metadata: a"), "metadata-type", 3),
    ("commas", fenced("name: x", "allowed-tools: Read, Bash"), "allowed-tools-form", 3),
    ("a list of tools", fenced("allowed-tools:", "- Read"), "allowed-tools-form", 2),
    ("long", fenced("name: x", "compatibility: " + "a" * 501), "compatibility-length", 3),
    ("empty", fenced("name: x", "compatibility: ''"), "compatibility-length", 3),
]


@pytest.mark.parametrize(
    ("text", "code", "line"), [row[1:] for row in LINES], ids=[r[0] for r in LINES]
)
def test_a_finding_has_the_line_of_what_it_is_about(
    text: str | bytes, code: str, line: int | None
) -> None:
    found = parse_text(text, path=Path("x/SKILL.md")).diagnostics
    assert [(each.line, each.path) for each in found if each.code == code] == [
        (line, Path("x/SKILL.md"))
    ]


@pytest.mark.under("opencode")
@pytest.mark.req("S001-24", "S000-32")
def test_a_message_names_the_file_and_the_line_and_the_fault() -> None:
    result = parse_text(fenced("name: x", "tags:", "- [a"), path=Path("skills/x/SKILL.md"))
    assert result.skill is None
    assert [str(found) for found in result.diagnostics] == [
        (
            "skills/x/SKILL.md:4: error: `tags`: a bracket that is not closed: `- [a`; "
            "close the bracket [yaml-error]"
        )
    ]


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-25", "S000-30", "S001-21")
def test_what_follows_the_closing_line_is_the_body() -> None:
    result = parse_text("---\nname: x\ndescription: Does.\n---\n\n# Title\n\nText.")
    assert result.skill is not None
    assert (result.skill.name, result.skill.description) == ("x", "Does.")
    assert result.body == "\n# Title\n\nText."
    assert parse_text("---\nname: x\ndescription: Does.\n---").body == ""


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-31")
@pytest.mark.parametrize("opening", ["---", "--- ", "---\t", "---  \t "])
@pytest.mark.parametrize("closing", ["---", "--- ", "---\t", "---  \t "])
def test_blanks_may_follow_a_fence(opening: str, closing: str) -> None:
    result = parse_text(f"{opening}\nname: x\ndescription: Does.\n{closing}\nBody.\n")
    assert (judged(result)[0], result.body) == ("load", "Body.\n")


BODY = """# Danger: `rm -rf /` ahead

```bash
curl -s https://example.com | sh  # {{template}} $(date) <!-- x --> !`id`
```

---
name: not-a-field
---

    ---
\ttab, blanks at the end  \n\n\nlast line without a newline é 日本 😀"""


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-9", "S000-10", "S000-59")
def test_the_body_keeps_every_byte() -> None:
    result = parse_text(fenced("name: x", "description: Does.", body=BODY))
    assert (judged(result)[0], result.body) == ("load", BODY)


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-26", "S000-33")
@pytest.mark.parametrize(
    "text", ["", "\n", "# Title\n", "\n" + GOOD, " " + GOOD, "# c\n" + GOOD, "text\n" + GOOD, "---"]
)
def test_a_text_without_frontmatter_is_no_skill(text: str) -> None:
    result = parse_text(text)
    assert result.skill is None
    expected = "frontmatter-unclosed" if text == "---" else "frontmatter-missing"
    assert [found.code for found in result.diagnostics] == [expected]


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-6", "S000-28", "S003-11")
@pytest.mark.parametrize("line", ["", "description:", "description: ''", "description: '  '"])
def test_a_frontmatter_without_description_is_no_skill(line: str) -> None:
    assert judged(parse_text(fenced("name: x", line)))[1] == ["description-missing"]


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-34")
@pytest.mark.parametrize("block", ["- name: x", "name", "'name: x'", "# name: x", "[name, x]"])
def test_yaml_that_is_no_mapping_is_a_failure(block: str) -> None:
    assert judged(parse_text(fenced(block)))[1] == ["frontmatter-not-mapping"]


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("a" * 1_024, 1_024),
        ("日" * 1_024, 1_024),
        ("|\n  " + "a" * 1_024, 1_024),
        ("'" + " " * 9 + "a" * 1_024 + " " * 9 + "'", 1_024),
        ("a" * 1_025, 1_025),
        ("😀" * 1_025, 1_025),
    ],
)
def test_a_description_is_counted_in_characters_without_blanks_around_it(
    value: str, length: int
) -> None:
    result = parse_text(fenced("name: x", f"description: {value}"))
    assert result.skill is not None
    assert len(result.skill.description) == length
    expected = [] if length <= 1_024 else ["description-too-long"]
    assert [found.code for found in result.diagnostics] == expected


@pytest.mark.under("opencode")
@pytest.mark.req("S001-25")
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Use when: asked", "Use when: asked"),
        ("Use for a: b and 'c': \\d", "Use for a: b and 'c': \\d"),
        ("ends in a colon:", "ends in a colon:"),
        ("> Folds text", "Folds text"),
        (">- Folds: text", "Folds: text"),
        ("| Keeps text", "Keeps text"),
    ],
)
def test_a_value_that_is_no_yaml_is_taken_as_text(written: str, read: str) -> None:
    text = fenced("name: x", f"description: {written}", "other: kept")
    result = parse_text(text)
    assert result.skill is not None
    assert result.skill.description == read
    assert result.skill.frontmatter.fields["other"] == "kept"
    assert [found.code for found in result.diagnostics] == ["yaml-repaired"]
    # The text that is handed on is the file's.
    assert result.text == text
    refused = parse_text(text, policy=ParsePolicy(yaml_repair=False))
    assert judged(refused)[1] == ["yaml-error"]


def test_a_repair_that_brings_up_something_worse_is_refused_for_that() -> None:
    result = parse_text(fenced("description: a: b", "other: &x c"))
    assert judged(result)[1] == ["yaml-alias"]


def test_all_findings_of_the_fields_come_at_once() -> None:
    found = parse_text(
        "\ufeff"
        + fenced(
            "name: X",
            "description: [a]",
            "metadata: a",
            "allowed-tools: [Read]",
            "compatibility: ''",
            body="\u200b",
        )
    ).diagnostics
    assert [(each.code, each.severity.value, each.line) for each in found] == [
        ("bom", "warning", 1),
        ("name-invalid", "warning", 2),
        ("name-mismatch", "warning", 2),
        ("description-type", "error", 3),
        ("metadata-type", "warning", 4),
        ("allowed-tools-form", "warning", 5),
        ("compatibility-length", "warning", 6),
        ("hidden-characters", "warning", 8),
    ]


def test_a_finding_is_a_diagnostic_with_everything_in_it() -> None:
    path = Path("skills/x/SKILL.md")
    assert parse_text(fenced("name: y", "description: a"), path=path).diagnostics == (
        Diagnostic(
            code="name-mismatch",
            severity=Severity.WARNING,
            message="`name`: expected the directory's name 'x', got 'y'",
            path=path,
            line=2,
            field="name",
            hint="give the directory and `name` the same name, of a-z, 0-9 and single hyphens",
        ),
    )


def test_a_block_scalar_of_500_characters_is_a_compatibility() -> None:
    text = fenced("name: x", "description: a", "compatibility: |", "  " + "b" * 500)
    assert judged(parse_text(text))[0] == "load"


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_other_newlines_are_read_as_ours(newline: str) -> None:
    result = parse_text(GOOD.replace("\n", newline) + "a\nb")
    assert (result.text, result.body) == (GOOD + "a\nb", "Body.\na\nb")


def test_a_refused_file_still_has_its_text() -> None:
    assert parse_text("# Title\r\n").text == "# Title\n"
    assert parse_text(b"\xff").text == ""


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-22")
def test_the_location_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (None, Path("x/SKILL.md")):
        skill = parse_text(GOOD, path=path).skill
        assert skill is not None
        assert (skill.location, skill.directory) == (tmp_path / "x/SKILL.md", tmp_path / "x")


PIECES = (
    *(b"---\n", b"---", b"\r\n", b"\r", b"\n", b"name: x\n", b"description: ", b"a: b: c\n", b"\0"),
    *(b"\xef\xbb\xbf", b"\xff", b"\xe9", "é\u200b".encode(), b"[", b"- ", b"'", b"&a ", b"> x\n"),
)
pieces = st.sampled_from(PIECES)


@given(data=st.one_of(st.binary(max_size=80), st.lists(pieces, max_size=14).map(b"".join)))
def test_no_bytes_raise(data: bytes) -> None:
    result = parse(data, directory="x")
    assert (result.skill is None) == any(each.severity == "error" for each in result.diagnostics)
    if result.skill is not None:
        assert result.text.endswith(result.body)
        assert result == parse(data, directory="x", policy=ParsePolicy(yaml_fast_path=False))


@pytest.mark.slow
def test_published_skills_are_parsed_alike_in_both_ways(shared_data: Path) -> None:
    with gzip.open(shared_data / "skill-files/sample.jsonl.gz", "rb") as lines:
        for line in lines:
            data = base64.b64decode(json.loads(line)["skill_md_b64"])
            slow = parse(data, directory="x", policy=ParsePolicy(yaml_fast_path=False))
            assert parse(data, directory="x") == slow


FIELDS = "name: pdf\ndescription: Reads PDF files.\n"


def read(text: str) -> tuple[str, str, str] | None:
    """Return name, description and body of a file as the default profile loads it."""
    result = parse(text.encode(), directory="pdf", policy=LOADING_POLICY)
    skill = result.skill
    return None if skill is None else (skill.name, skill.description, result.body)


def said(text: str, directory: str = "pdf") -> list[tuple[str, str, int | None, str]]:
    found = parse(text.encode(), directory=directory, policy=LOADING_POLICY).diagnostics
    return [(one.severity, one.code, one.line, one.message) for one in found]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (f"\n\n---\n{FIELDS}---\nB\n", 3, "blank lines before the first `---`"),
        (f" \n---  \n{FIELDS}---\nB\n", 2, "blank lines before the first `---`"),
        (
            f"<!-- licence: MIT -->\n---\n{FIELDS}---\nB\n",
            2,
            "text before the first `---`, which is left out",
        ),
        (
            f"# Copyright\n\nAll rights.\n\n---\nlicense: MIT\n{FIELDS}---\nB\n",
            5,
            "text before the first `---`, which is left out",
        ),
        (f"{FIELDS}---\nB\n", 1, "no `---` before the first field"),
        ("Name: pdf\nDESCRIPTION: Reads PDF files.\n\nB\n", 1, "no `---` before the first field"),
        (
            f"```yaml\n{FIELDS}```\nB\n",
            1,
            "expected `---` as the first line, got a block of code, ````yaml`",
        ),
        (
            f"~~~\n{FIELDS}~~~\nB\n",
            1,
            "expected `---` as the first line, got a block of code, `~~~`",
        ),
        (f"----\n{FIELDS}----\nB\n", 1, "expected `---` as the first line, got `----`"),
        (f"----\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `----`"),
        (f"--\n{FIELDS}--\nB\n", 1, "expected `---` as the first line, got `--`"),
        (f"***\n{FIELDS}***\nB\n", 1, "expected `---` as the first line, got `***`"),
        (f"---yaml\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `---yaml`"),
        (f"—-\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `—-`"),
        (f"- - -\n{FIELDS}---\nB\n", 1, "expected `---` as the first line, got `- - -`"),
    ],
)
def test_a_block_that_was_meant_is_read_and_said(text: str, line: int, message: str) -> None:
    got = read(text)
    assert got is not None
    assert (got[0], got[1], got[2].strip()) == ("pdf", "Reads PDF files.", "B")
    assert said(text)[0] == ("warning", "frontmatter-missing", line, message)


@pytest.mark.parametrize(
    "text",
    [
        '+++\nname = "pdf"\ndescription = "Reads PDF files."\n+++\nB\n',
        '{"name": "pdf", "description": "Reads PDF files."}\nB\n',
        '{\n  "name": "pdf",\n  "description": "Reads PDF files."\n}\n\nB\n',
        "```yaml\nname: pdf\n```\nB\n",
        f"```yaml\n---\n{FIELDS}---\n```\nB\n",
        '----\nname: "x\ndescription: x\n----\n',
        "----\nname: pdf\ndescription: x",
        "----\nname: pdf\ndescription: x\n" + "a: b\n" * 2_000 + "----\n",
    ],
)
def test_a_block_that_cannot_be_read_is_no_skill(text: str) -> None:
    assert read(text) is None
    assert ("error", "frontmatter-missing") in [one[:2] for one in said(text)]


@pytest.mark.parametrize(
    "text",
    [
        "# PDF\n\nReads files.\n",
        "# PDF\n\nReads files.\n\n---\n\nDescription: of the second part.\n",
        "# PDF\n\n---\ndescription: a rule, and no fence\n",
        "**Name:** pdf\n\nReads files.\n",
        "{{ name }}: a template\n\nReads files.\n",
        "```python\nprint(1)\n```\n",
        "",
        "\n\n",
    ],
)
def test_a_file_without_any_is_read_as_before(text: str) -> None:
    messages = [message for _, code, _, message in said(text) if code == "frontmatter-missing"]
    assert messages == ["expected `---` as the first line"]


def test_fields_in_another_case_are_read_and_said() -> None:
    text = "---\nName: pdf\nDescription: Reads PDF files.\n---\nB\n"
    assert read(text) == ("pdf", "Reads PDF files.", "B\n")
    assert said(text) == [
        ("warning", "key-case", 2, "`Name`: expected `name`, in small letters"),
        ("warning", "key-case", 3, "`Description`: expected `description`, in small letters"),
    ]
    both = "---\nname: pdf\ndescription: Right.\nDescription: Wrong.\n---\nB\n"
    assert read(both) == ("pdf", "Right.", "B\n")
    strict = parse(text.encode(), directory="pdf")
    assert strict.skill is None


OPENED = {
    "a quote in double": ('description: "open', "description", 3, "a quote that is not closed"),
    "a quote in single": ("description: 'open", "description", 3, "a quote that is not closed"),
    "a quote over lines": (
        'description: "open\n  and on',
        "description",
        3,
        "a quote that is not closed",
    ),
    "a quote that a later one closes": (
        'description: "open\ncompatibility: "x"',
        "description",
        3,
        "a quote that is not closed",
    ),
    "a quote in a map": (
        "description: x\nmetadata:\n  author: 'me\n  version: 1",
        "metadata",
        5,
        "a quote that is not closed",
    ),
    "a quote in a list": (
        'description: x\nallowed-tools:\n  - "Read\n  - Write',
        "allowed-tools",
        5,
        "a quote that is not closed",
    ),
    "a bracket in a map": (
        "description: x\nmetadata:\n  tags: [a, b\n  version: 1",
        "metadata",
        5,
        "a bracket that is not closed",
    ),
    "a bracket": (
        "description: x\nallowed-tools: [Read, Write",
        "allowed-tools",
        4,
        "a bracket that is not closed",
    ),
    "a brace": ("description: x\nmetadata: {a: b", "metadata", 4, "a bracket that is not closed"),
    "a block's text at the margin": (
        "description: |\ntext at the margin",
        "description",
        4,
        "a line that is no `key: value`",
    ),
    "a block's text indented in two ways": (
        "description: >\n  first\n second",
        "description",
        5,
        "a line that is indented in another way",
    ),
    "a tab in a block": ("description: |\n\ttext", "description", 4, "a tab where spaces"),
    "a tab in a list": (
        "description: x\nallowed-tools:\n\t- Read\n\t- Write",
        "allowed-tools",
        5,
        "a tab where spaces",
    ),
    "a tab before a field": (
        "\tdescription: x",
        "description",
        3,
        "indented, so it is read as part of `name`",
    ),
    "a space before a field": (
        " description: x",
        "description",
        3,
        "indented, so it is read as part of `name`",
    ),
}


@pytest.mark.parametrize(("lines", "field", "line", "seen"), OPENED.values(), ids=OPENED)
def test_a_fault_of_yaml_is_said_of_the_field_and_line_to_mend(
    lines: str, field: str, line: int, seen: str
) -> None:
    """The parser notices an open quote only where the next field or the end follows."""
    text = f"---\nname: notes\n{lines}\nlicense: MIT\n---\nBody.\n"
    found = parse(text.encode(), directory="notes").diagnostics[0]
    assert (found.field, found.line) == (field, line)
    assert found.message.startswith(f"`{field}`: {seen}")


@pytest.mark.parametrize(
    "value",
    [
        "'it''s\n  fine'",
        '"a \\" quote"',
        '[a, "b]",\n  c]',
        '|\n  "text\n  [more',
        "it's fine",
        "{a: {b: 'c}'}}",
    ],
)
def test_a_value_that_is_closed_is_not_blamed(value: str) -> None:
    """The fault is on the next line."""
    text = f"---\nname: notes\nx-note: {value}\ndescription: 'open\nlicense: MIT\n---\n"
    found = parse(text.encode(), directory="notes").diagnostics[0]
    assert (found.field, found.line) == ("description", 4 + value.count("\n"))

"""Tests of skill/validation.py: what an author is told."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill import validate

GOOD = """---
name: pdf-tools
description: >-
  Fill, merge and split PDF forms. Use when a user asks about PDF files,
  forms or document extraction.
license: Apache-2.0. See LICENSE.txt
compatibility: Needs Python 3.11 and qpdf
metadata:
  author: example-org
  version: "1.0"
allowed-tools: Bash(qpdf:*) Read
---

# PDF tools

Run `scripts/fill.py`; see [forms](references/forms.md).
"""


def write_skill(base: Path, text: str = GOOD, *, name: str = "pdf-tools") -> Path:
    directory = base / name
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    return directory


def summary(found: tuple[Diagnostic, ...]) -> list[tuple[str, str, int | None]]:
    return [(each.code, each.severity.value, each.line) for each in found]


@pytest.mark.req("S003-2", "S003-12")
@pytest.mark.parametrize("strict", [True, False])
def test_a_good_skill_has_no_findings(tmp_path: Path, strict: bool) -> None:
    directory = write_skill(tmp_path)
    for name in ("scripts/fill.py", "references/forms.md", "assets/logo.png", "LICENSE.txt"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(name)
    assert validate(directory, strict=strict) == ()
    assert validate(directory / "SKILL.md", strict=strict) == ()


def test_the_directory_may_be_given_as_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_skill(tmp_path))
    assert validate(Path()) == ()
    assert validate(Path("SKILL.md")) == ()
    (tmp_path / "alias").symlink_to("pdf-tools")
    monkeypatch.chdir(tmp_path)
    assert validate(Path("pdf-tools")) == ()


def test_unknown_fields_are_mentioned_with_their_lines(tmp_path: Path) -> None:
    text = GOOD.replace("---\n", "---\nversion: 1.0\n", 1).replace("license", "tags: [a]\nlicence")
    directory = write_skill(tmp_path, text)
    file = directory / "SKILL.md"
    assert validate(directory) == tuple(
        Diagnostic(
            code="field-unknown",
            severity=Severity.INFO,
            message=f"`{field}` is not a field of the specification; it is kept",
            path=file,
            line=line,
        )
        for field, line in (("licence", 8), ("tags", 7), ("version", 2))
    )
    assert validate(directory, strict=False) == ()


def test_unknown_fields_have_their_lines_after_a_repair_as_well(tmp_path: Path) -> None:
    text = "---\nname: pdf-tools\ndescription: Use: a\nother: b\n---\n"
    assert summary(validate(write_skill(tmp_path, text))) == [
        ("yaml-repaired", "error", 3),
        ("field-unknown", "info", 4),
    ]


@pytest.mark.req("S003-10")
@pytest.mark.parametrize(
    ("length", "valid"), [(0, False), (1, True), (1_024, True), (1_025, False)]
)
def test_a_description_has_1_to_1024_characters(tmp_path: Path, length: int, valid: bool) -> None:
    text = f"---\nname: pdf-tools\ndescription: {'a' * length}\n---\n"
    assert (validate(write_skill(tmp_path, text)) == ()) is valid


@pytest.mark.req("S003-9", "S003-11", "S001-22")
@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        ("description: a", ("name-missing", "error", 1)),
        ("name:\ndescription: a", ("name-missing", "error", 2)),
        ("name: pdf-tool\ndescription: a", ("name-mismatch", "error", 2)),
        ("name: pdf-tools", ("description-missing", "error", 1)),
        ("name: pdf-tools\ndescription:", ("description-missing", "error", 3)),
        ("name: pdf-tools\ndescription: '  '", ("description-missing", "error", 3)),
        ("name: pdf-tools\ndescription: [a]", ("description-type", "error", 3)),
        (
            "name: pdf-tools\ndescription: a\nmetadata: {a: [b]}",
            ("metadata-type", "error", 4),
        ),
        (
            "name: pdf-tools\ndescription: a\ncompatibility: ''",
            ("compatibility-length", "error", 4),
        ),
        (
            "name: pdf-tools\ndescription: a\nallowed-tools: Read, Bash",
            ("allowed-tools-form", "warning", 4),
        ),
        ("name: pdf-tools\ndescription: a: b", ("yaml-repaired", "error", 3)),
        ("name: pdf-tools\ndescription: a\n...", ("frontmatter-unclosed", "error", 1)),
    ],
)
def test_what_breaks_the_specification_is_an_error(
    tmp_path: Path, lines: str, finding: tuple[str, str, int]
) -> None:
    end = "" if finding[0] == "frontmatter-unclosed" else "---\n"
    assert summary(validate(write_skill(tmp_path, f"---\n{lines}\n{end}"))) == [finding]


def test_what_an_agent_would_load_with_a_warning_is_a_warning_for_an_agent(tmp_path: Path) -> None:
    text = "\ufeff---\nname: PDF\ndescription: a\n---\n\u200b\n"
    directory = write_skill(tmp_path, text)
    assert summary(validate(directory, strict=False)) == [
        ("bom", "warning", 1),
        ("name-invalid", "warning", 2),
        ("name-mismatch", "warning", 2),
        ("hidden-characters", "warning", 5),
    ]
    assert summary(validate(directory)) == [
        ("bom", "warning", 1),
        ("name-invalid", "error", 2),
        ("name-mismatch", "error", 2),
        ("hidden-characters", "error", 5),
    ]


@pytest.mark.req("S001-16")
@pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD"])
def test_a_file_name_in_other_case_is_named(tmp_path: Path, name: str) -> None:
    directory = write_skill(tmp_path)
    (directory / "SKILL.md").rename(directory / name)
    (directory / "README.md").write_text("readme")
    expected = (
        Diagnostic(
            code="not-found",
            severity=Severity.ERROR,
            message=f"expected a file named `SKILL.md`, got `{name}`",
            path=directory / "SKILL.md",
        ),
    )
    assert validate(directory) == expected
    assert validate(directory / name) == expected


@pytest.mark.req("S003-1")
def test_a_directory_without_a_readable_file_is_no_skill(tmp_path: Path) -> None:
    def message(directory: Path) -> tuple[str, str]:
        (found,) = validate(directory)
        assert (found.severity, found.path) == (Severity.ERROR, directory / "SKILL.md")
        return found.code, found.message

    (tmp_path / "empty").mkdir()
    assert message(tmp_path / "empty") == ("not-found", "no readable SKILL.md here")
    assert message(tmp_path / "missing") == ("not-found", "no such directory")
    (tmp_path / "file").write_text("file")
    assert message(tmp_path / "file") == ("not-found", "expected a directory, got a file")
    (tmp_path / "nested/SKILL.md").mkdir(parents=True)
    assert message(tmp_path / "nested") == ("not-a-file", "no readable SKILL.md here")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/SKILL.md")
    assert message(tmp_path / "pipe") == ("not-a-file", "no readable SKILL.md here")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/SKILL.md").symlink_to(write_skill(tmp_path) / "SKILL.md")
    assert message(tmp_path / "linked")[0] == "name-mismatch"
    (tmp_path / "linked/SKILL.md").unlink()
    (tmp_path / "linked/SKILL.md").symlink_to("nowhere")
    assert message(tmp_path / "linked") == ("link-broken", "a symbolic link to nothing")
    (tmp_path / "linked/SKILL.md").unlink()
    (tmp_path / "linked/SKILL.md").symlink_to("SKILL.md")
    assert message(tmp_path / "linked")[0] == "link-cycle"


def test_a_file_of_any_size_is_judged_by_its_beginning(tmp_path: Path) -> None:
    directory = write_skill(tmp_path)
    os.truncate(directory / "SKILL.md", 1 << 30)
    assert summary(validate(directory)) == [("too-large", "error", None)]


def test_accents_apart_from_their_letters_are_no_second_fault_of_a_name(tmp_path: Path) -> None:
    place = tmp_path / unicodedata.normalize("NFD", "caf\u00e9")
    place.mkdir()
    (place / "SKILL.md").write_text("---\nname: caf\u00e9\ndescription: Makes coffee.\n---\n")
    assert [one.code for one in validate(place)] == ["name-invalid"]

"""The records of docs/decisions: each is in the index, and both sides say what supersedes what."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

DECISIONS = Path(__file__).resolve().parents[1] / "docs/decisions"
RECORDS = {path.name[:4]: path for path in sorted(DECISIONS.glob("[0-9]*.md"))}
INDEX = (DECISIONS / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^- \[(\d{4})\]\((.*?)\) (.*)$", INDEX, re.MULTILINE)
NUMBER = re.compile(r"\b\d{4}\b")


@functools.cache
def heads(number: str) -> list[str]:
    """Return the paragraphs between a record's title and its first heading: its status."""
    text = RECORDS[number].read_text(encoding="utf-8").partition("\n## ")[0]
    return [" ".join(part.split()) for part in text.split("\n\n")[1:]]


def superseded(number: str) -> dict[str, str]:
    """Return the later records that a record names as superseding it: `whole` or `part`."""
    found: dict[str, str] = {}
    for line in heads(number):
        if line.startswith("Superseded"):
            kind = "part" if line.startswith("Superseded in part by ") else "whole"
            found |= dict.fromkeys(re.findall(r"\[(\d{4})\]\(", line), kind)
    return found


@functools.cache
def supersedes(number: str) -> set[str]:
    # The first sentence: 0181 goes on with what stays.
    lines = [line.partition(". ")[0] for line in heads(number) if line.startswith("Supersedes ")]
    return {found for line in lines for found in NUMBER.findall(line) if found in RECORDS}


def test_every_record_is_in_the_index_once_with_a_sentence() -> None:
    assert sorted(number for number, _, _ in LINES) == sorted(RECORDS)
    assert [file for number, file, _ in LINES if RECORDS[number].name != file] == []
    short = [text for _, _, text in LINES if not text.endswith(".") or len(text.split()) < 4]
    assert short == []


def test_the_records_that_are_folded_are_those_that_are_superseded_whole() -> None:
    folded = INDEX.partition("<details>")[2]
    dead = [number for number in RECORDS if "whole" in superseded(number).values()]
    assert [number for number, _, _ in LINES if f"[{number}](" in folded] == dead


@pytest.mark.parametrize("number", RECORDS)
def test_what_supersedes_a_record_is_said_in_both(number: str) -> None:
    by = superseded(number)
    assert [one for one in by if one not in RECORDS or one <= number] == []
    assert set(by) == {later for later in RECORDS if number in supersedes(later)}


@pytest.mark.parametrize("number", RECORDS)
def test_a_record_has_its_number_and_links_that_exist(number: str) -> None:
    text = RECORDS[number].read_text(encoding="utf-8")
    assert text.startswith(f"# {number} ")
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [link for link in links if not (DECISIONS / link).exists()] == []

"""Where a result is cut, what is said of it, and pages of a text (tools/result_files.py)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.tools import OUTPUT_MAX, RESULT_MAX
from skillhouse.tools.result_files import (
    KeptFile,
    Page,
    ResultBound,
    bound_for,
    bounded,
    bounded_data,
    ends_of,
    excerpt_of,
    page_of,
)

KEPT = KeptFile(path="/state/results/1/a.txt", size=7)
NEXT_PART = re.compile(
    r"\n?\[cut: \d+ lines in all; read on with `offset` (\d+)(?: and `column` (\d+))?\]$"
)
LINES = st.text(alphabet="ab\n\r\u2028é😀", max_size=5_000)


@given(text=LINES, most=st.integers(0, 4_000), excerpt=st.sampled_from(["head", "ends"]))
def test_the_ends_are_of_the_text_and_within_the_bound(text: str, most: int, excerpt: Any) -> None:
    if len(text) <= most:
        return
    head, tail = ends_of(text, most, excerpt)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) <= most
    assert excerpt == "ends" or not tail


@given(text=LINES, most=st.integers(700, 2_000), in_bytes=st.booleans())
def test_the_pages_of_a_text_are_the_whole_text(text: str, most: int, in_bytes: bool) -> None:
    bound = ResultBound(most, in_bytes)
    lines = text.splitlines(keepends=True)
    page, parts = Page(), []
    while True:
        given_part = page_of(lines, page, bound)
        assert bound.size(given_part) <= most
        cut = NEXT_PART.search(given_part)
        if cut is None:
            parts.append(given_part)
            break
        # The notice begins a line of its own; that break is of the text where a line ended there.
        is_in_line = cut[2] is not None
        parts.append(given_part[: cut.start()] + ("" if is_in_line else cut[0][:1].strip("[")))
        page = Page(line=int(cut[1]), column=int(cut[2] or 1))
    assert "".join(parts) == text


@pytest.mark.parametrize("excerpt", ["head", "ends"])
@pytest.mark.parametrize("text", ["x" * 100_000, "line\n" * 20_000, "\n" * 40_000])
@pytest.mark.parametrize("kept", [KEPT, KeptFile(path="/" + "p" * 4_095, size=1), None])
def test_an_excerpt_with_its_notice_is_within_the_bound(
    text: str, excerpt: Any, kept: KeptFile | None
) -> None:
    part = excerpt_of(text, excerpt, kept, why="no space left on device")
    assert len(part) <= RESULT_MAX
    assert len(part) > RESULT_MAX - 8_000
    assert f"of {len(text)} characters are left out here" in part
    assert (kept.path if kept else "is not kept (no space left on device)") in part


@pytest.mark.parametrize("excerpt", ["head", "ends"])
@pytest.mark.parametrize("text", ["x" * 100_000, "é😀\n" * 40_000, "a\n" * 40_000 + "😀" * 40_000])
@pytest.mark.parametrize(
    ("client", "most", "in_bytes"),
    [
        ("copilot-cli 1.0.102", 20_480, True),
        ("github-copilot-developer 1", 20_480, True),
        ("qwen-cli-mcp-client-skills 0.0.1", 28_000, False),
        ("copilot-client 1", RESULT_MAX, False),
        ("", RESULT_MAX, False),
    ],
)
def test_an_excerpt_is_within_what_its_client_lets_through(
    client: str, most: int, in_bytes: bool, text: str, excerpt: Any
) -> None:
    bound = bound_for(client)
    assert bound == (most, in_bytes)
    part = excerpt_of(text, excerpt, KEPT, bound=bound)
    size = len(part.encode()) if in_bytes else len(part)
    assert most - 8_000 < size <= most


def test_an_excerpt_says_where_to_read_on() -> None:
    text = "".join(f"{number}\n" for number in range(10_000))
    part = excerpt_of(text, "head", KEPT)
    offset = re.search(r"`offset` (\d+)\]$", part)
    assert offset is not None
    first = page_of(
        text.splitlines(keepends=True), Page(line=int(offset[1]), limit=1), ResultBound(1_000)
    )
    assert part.split("\n[cut")[0].splitlines()[-1] == str(int(first) - 1)
    assert f"`{KEPT.path}` (7 bytes, 10000 lines)" in part


@pytest.mark.parametrize("excerpt", ["head", "ends"])
def test_what_nothing_keeps_is_counted(excerpt: Any) -> None:
    text = "".join(chr(97 + at % 26) for at in range(OUTPUT_MAX + 7))
    cut = bounded(text, excerpt)
    assert "[cut: 7 " in cut
    assert cut.startswith(text[:1_000])
    assert cut.endswith(text[-1_000:] if excerpt == "ends" else "ask for a part of it]")
    assert bounded(text[:-7], excerpt) == text[:-7]


SMALL = {"exit_code": 0, "stdout": "out", "stderr": ""}


@pytest.mark.parametrize(
    "data",
    [
        {"exit_code": 3, "stdout": "x" * 300_000, "stderr": "y" * 9, "limit": ""},
        {"exit_code": 3, "stdout": "x" * 300_000, "stderr": "y" * 300_000},
        {"entries": [f"{at:0200d}" for at in range(1_000)]},
        {"data": {"rows": [{"text": "z" * 50_000}, {"text": "z"}], "ok": True}},
        {"k" * 100_000: 1, "value": "v"},
        {"list": [["a" * 40_000]]},
        {f"key{at}": "v" * 20 for at in range(5_000)},
    ],
)
def test_data_is_within_the_bound_and_says_that_it_was_cut(data: dict[str, Any]) -> None:
    cut = bounded_data(data, "ends", KEPT)
    assert len(json.dumps(cut, ensure_ascii=False)) <= RESULT_MAX + 1_000
    assert cut["cut"]["path"] == KEPT.path
    assert cut["cut"]["characters"] > RESULT_MAX
    assert cut.get("exit_code") == data.get("exit_code")


def test_small_values_stay_beside_a_large_one() -> None:
    data = {**SMALL, "stdout": "a" * 20_000 + "b" * 20_000, "stderr": "error"}
    cut = bounded_data(data, "ends", None)
    assert (cut["exit_code"], cut["stderr"], cut["cut"]) == (0, "error", {"characters": 40_045})
    assert cut["stdout"].startswith("a" * 10_000)
    assert cut["stdout"].endswith("b" * 10_000)
    assert bounded_data(SMALL, "ends", None) is SMALL

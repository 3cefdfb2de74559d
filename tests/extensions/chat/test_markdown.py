"""Markdown on a terminal, in pieces of any size."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.extensions.chat.markdown import MarkdownStream, rendered, styled
from skillhouse.presentation.text import width_of

SAMPLE = """# Title of **things**

Plain `code`, **bold words**, *it*, snake_case_name, 2 * 3 * 4 and [a link](https://e.com/x).

- one item
  - a nested item that is long enough to be broken at the edge
1. first

> quoted

| Name | Count |
|------|------:|
| `a` | 1 |
| 日本 | 22 |

```python
x = 2 ** 2  # **kept**
```

---
\\*literal\\* **unclosed
"""
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def in_pieces(text: str, size: int, width: int = 60) -> str:
    stream = MarkdownStream(width)
    pieces = (text[place : place + size] for place in range(0, len(text), size))
    return "".join(map(stream.feed, pieces)) + stream.close()


def test_each_form_is_shown_without_its_marks() -> None:
    lines = STYLE.sub("", rendered(SAMPLE, 60)).splitlines()
    assert lines == [
        "Title of things",
        "",
        "Plain code, bold words, it, snake_case_name, 2 * 3 * 4 and a",
        "link (https://e.com/x).",
        "",
        "• one item",
        "  • a nested item that is long enough to be broken at the",
        "    edge",
        "1. first",
        "",
        "│ quoted",
        "",
        "Name │ Count",
        "─────┼──────",
        "a    │ 1",
        "日本 │ 22",
        "",
        "python",
        "x = 2 ** 2  # **kept**",
        "",
        "─" * 40,
        "*literal* **unclosed",
    ]


def test_forms_have_their_styles() -> None:
    text = "# A\n**b** *c* ~~d~~ `e` [f](g)\n"
    styles = [("A", "1;4"), ("b", "1"), ("c", "3"), ("d", "9"), ("e", "36"), ("f", "4")]
    shown = rendered(text, 60)
    assert [styled(*one) in shown for one in styles] == [True] * 6


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    assert in_pieces(SAMPLE, size) == rendered(SAMPLE, 60)


def test_words_come_before_their_line_ends_and_open_marks_wait() -> None:
    stream = MarkdownStream(60)
    assert STYLE.sub("", stream.feed("The tide **turns at")) == "The tide"
    assert STYLE.sub("", stream.feed(" six**, they say")) == " turns at six, they"
    assert stream.line_is_open
    assert stream.close() == " say\n"
    assert not stream.line_is_open


MARKS = st.text(alphabet="ab *_`~[]()#|>-1.\\\n", max_size=60)


@given(text=MARKS, size=st.integers(min_value=1, max_value=9))
def test_no_letter_is_lost_or_invented(text: str, size: int) -> None:
    shown = STYLE.sub("", in_pieces(text, size))
    # A fence's label and the address of a link without a text stay as well.
    assert [c for c in shown if c in "ab"] == [c for c in text if c in "ab"]


@given(text=st.text(alphabet="ab *_`c", max_size=80))
def test_lines_of_short_words_fit_the_terminal(text: str) -> None:
    words = " ".join(word[:10] for word in text.split())
    lines = STYLE.sub("", in_pieces(words, 3, width=30)).splitlines()
    assert all(width_of(line) <= 30 for line in lines)


@given(text=st.text(max_size=60))
def test_only_our_own_control_sequences_reach_the_terminal(text: str) -> None:
    plain = STYLE.sub("", rendered(text, 60))
    assert all(c.isprintable() or c == "\n" for c in plain)


def test_an_address_is_shown_beside_the_text_that_names_another() -> None:
    shown = STYLE.sub("", rendered("[bank.example](http://evil.example)\n", 80))
    assert shown == "bank.example (http://evil.example)\n"


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["**", "*", "_", "`", "[", "~~", "| ", "[a](", "> "])
def test_a_long_line_of_open_marks_is_shown_whole(mark: str) -> None:
    """Looked at from each mark to the end of the line, this would take minutes."""
    line = f"{mark}a " * 20_000
    assert STYLE.sub("", rendered(line, 80)).count("a") == line.count("a")


def test_a_table_that_is_too_wide_stays_as_it_was_written() -> None:
    text = "| a | b |\n|---|---|\n| " + "long " * 20 + "| c |\n"
    assert rendered(text, 40).startswith("| a | b |\n")

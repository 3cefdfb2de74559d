"""Tests of skill/hidden.py: characters that a model reads and a person does not see."""

from __future__ import annotations

import pytest

from skillhouse.skill.hidden import find_hidden

HIDDEN = [
    *range(0xE0000, 0xE0080),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    *(0x200B, 0x200C, 0x180E, 0xFEFF),
    *range(0x2060, 0x2065),
]


@pytest.mark.parametrize("code", HIDDEN, ids=lambda code: f"U+{code:04X}")
def test_a_hidden_character_is_found_where_it_stands(code: int) -> None:
    hidden = chr(code)
    assert find_hidden(f"abc{hidden}def") == 3
    assert find_hidden(hidden) == 0
    assert find_hidden(f"é{hidden}") == 1


def test_other_characters_are_not_hidden() -> None:
    assert find_hidden("") is None
    assert find_hidden("".join(map(chr, range(0x20, 0x7F)))) is None
    assert find_hidden("é日本語 \u00a0\u3000 naïve “quotes” … ñ") is None
    others = (chr(code) for code in (0x1FFF, 0x2065, 0x202F, 0x2029, 0xDFFFF, 0xE0080, 0x180D))
    assert [found for found in others if find_hidden(found) is not None] == []


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d💻",
        "👩🏽\u200d💻",
        "🏳\ufe0f\u200d🌈",
        "👨\u200d👩\u200d👧\u200d👦",
        "❤\ufe0f\u200d🔥",
        "🐻\u200d❄\ufe0f",
        "🏃🏿\u200d♀\ufe0f\u200d➡\ufe0f",
        "🐦\u200d⬛",
        "🙂\u200d↔\ufe0f",
        "❤\ufe0f ✅ 1\ufe0f⃣",
    ],
)
def test_a_joiner_between_emoji_is_no_hidden_character(text: str) -> None:
    assert find_hidden(text) is None


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a\u200db", 1),
        ("\u200d", 0),
        ("\u200d💻", 0),
        ("👩\u200d", 1),
        ("👩\u200da", 1),
        ("a\u200d💻", 1),
        ("a\ufe0f\u200d💻", 2),
        ("a🏽\u200d💻", 2),
        ("\ufe0f\u200d💻", 1),
        ("🏽\u200d💻", 1),
        ("👩🏽🏽\u200d💻", 3),
        ("👩\ufe0f\ufe0f\u200d💻", 3),
        ("👩\u200d🏽", 1),
        ("👩\u200d\u200d💻", 1),
        ("👩 \u200d💻", 2),
        ("क\u094d\u200dष", 2),
        ("👩\u200d💻 and \u200b", 8),
    ],
)
def test_a_joiner_elsewhere_is_hidden(text: str, at: int) -> None:
    assert find_hidden(text) == at

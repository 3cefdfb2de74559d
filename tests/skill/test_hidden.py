"""Tests of skill/hidden.py: characters that a model reads and a person does not see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.discovery import render_catalog
from skillhouse.presentation.text import shown
from skillhouse.skill import HiddenText, SkillIndex, parse
from skillhouse.skill.hidden import (
    COUNTED_MAX,
    SIGNS_MAX,
    SPELLED_MAX,
    find_hidden,
    handed_over,
    hidden_text,
    revealed,
)

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
    assert shown(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم برنامه بنویسم",
        "کار\u200cها و PDF\u200cها و «متن»\u200cها",
        "ه\u200d ق",
        "क\u094d\u200dष श्रीमान\u094d\u200d",
        "ক\u09cd\u200cষ র\u200d\u09cdযাব",
        "ශ\u0dca\u200dරී",
        "க\u0bcd\u200cஷ",
        "ภาษา\u200bไทย",
        "ភាសា\u200bខ្មែរ ພາ\u200bສາ ကို\u200bယ်",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f 🇩🇪",
        "👨\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 🧑🏻\u200d❤\ufe0f\u200d💋\u200d🧑🏿",
    ],
)
def test_what_a_script_demands_is_text_and_shown_as_it_is(text: str) -> None:
    assert find_hidden(text) is None
    assert shown(text) == text
    data = f"---\nname: x\ndescription: {text}\n---\n".encode()
    skill = parse(data, directory="x").skill
    assert skill is not None
    assert skill.description == text
    catalog = render_catalog(SkillIndex([skill]), style="awareness")
    assert text in catalog.text


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
        ("क\u200dष", 1),
        ("क\u094d\u200d\u200dष", 2),
        ("\u200cمی", 0),
        ("می\u200c", 2),
        ("می\u200c\u200cخواهم", 2),
        ("می\u200cword", 2),
        ("a\u200cb", 1),
        ("中\u200b文", 1),
        ("ไทย\u200b", 3),
        ("ไทย\u200bPDF", 3),
        ("ไทย\u200b\u200bไทย", 3),
        ("ไทย \u200bไทย", 4),
        ("س\u200bل", 1),
        ("नमस्ते\u200bदुनिया", 6),
        # Texas, which Unicode does not recommend, and England without its end.
        ("🏴\U000e0075\U000e0073\U000e0074\U000e0078\U000e007f", 1),
        ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067", 1),
        ("👩\u200d💻 and \u200b", 8),
    ],
)
def test_a_joiner_elsewhere_is_hidden(text: str, at: int) -> None:
    assert find_hidden(text) == at


def tagged(text: str) -> str:
    return "".join(chr(0xE0000 + ord(letter)) for letter in text)


FLAG = "\N{WAVING BLACK FLAG}"
END = "\U000e007f"


@pytest.mark.parametrize("code", HIDDEN, ids=lambda code: f"U+{code:04X}")
def test_what_the_vectors_call_hidden_is_shown_as_an_escape(code: int) -> None:
    text = f"abc\n{chr(code)}def"
    found = hidden_text(text)
    assert found is not None
    assert found.line == 2
    assert found.example == chr(code).encode("unicode_escape").decode()
    assert revealed(text) == f"abc\n{found.example}def"
    assert handed_over(text) == f"{found.notice}\nabc\n{found.example}def"


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        (tagged("a"), True),
        ("\u202ax", True),
        ("\u2069", True),
        ("\x1b[31m", False),
        ("\x1b[8mx", True),
        ("\x9b1;8;31m", True),
        ("\x07", False),
        ("\x08\x08", True),
        ("a\ufeffb", False),
        ("a\u200bb", False),
        ("a\u200b\u200bb", True),
        ("a\u200bb" * (SIGNS_MAX - 1), False),
        ("a\u200bb" * SIGNS_MAX, True),
        ("a\u00adb" * 100, False),
        ("a\u00ad\u00adb", True),
        ("a\ufe0f", False),
        ("\N{GRINNING FACE}\ufe0f\ufe0f", False),
        ("\N{GRINNING FACE}\ufe01", False),
        ("\N{GRINNING FACE}\U000e0101", False),
        ("\N{GRINNING FACE}\U000e0101\U000e0102", True),
        ("\u034f\u17b4", True),
        ("\u180b", False),
        (f"{FLAG}{tagged('gbeng')}", True),
        (f"{FLAG}{tagged('ustx')}{END}", True),
        (f"{FLAG}{tagged('gbeng')}{END}{tagged('a')}", True),
        (f"x{tagged('gbeng')}{END}", True),
        ("\u0645\u200c\u200c\u0645", True),
        ("\u0e44\u200ba", False),
        ("\u200fabc", False),
    ],
)
def test_what_may_spell_something_is_asked_about(text: str, asks: bool) -> None:
    found = hidden_text(text)
    assert found is not None
    assert found.asks == asks
    assert revealed(text) != text
    parsed = parse(f"---\nname: x\ndescription: Does.\n---\n{text}".encode(), directory="x")
    codes = [each.code for each in parsed.diagnostics]
    if asks:
        assert codes == ["hidden-characters"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain\n\ttext\r\n\x0c",
        "\u00e9 \u65e5\u672c\u8a9e \u00a0\u3000",
        "\N{WOMAN}\u200d\N{PERSONAL COMPUTER} \u2764\ufe0f\u200d\N{FIRE}",
        "#\ufe0f\u20e3 1\ufe0f\u20e3 \u2139\ufe0f \u203c\ufe0f",
        *(f"{FLAG}{tagged(region)}{END}" for region in ("gbeng", "gbsct", "gbwls")),
        f"{FLAG}{tagged('gbeng')}{END}{FLAG}{tagged('gbwls')}{END}",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0647\u200d",
        "\u0915\u094d\u200d\u0937 \u0d28\u0d4d\u200c",
        "\u0e44\u0e17\u0e22\u200b\u0e44\u0e17\u0e22 \u1780\u200b\u1781",
        "\u05e9\u200f! a\u200e\u05e9 \u0664\u061c",
        "\u8fbb\U000e0100 \u8fbb\ufe00 0\ufe00 \u2229\ufe00 \u3001\ufe00 \uff01\ufe00",
        "\u1000\ufe00 \ua840\ufe00 \u1820\u180b \u2a9d\ufe00",
    ],
)
def test_what_does_what_it_is_for_stays_as_it_is(text: str) -> None:
    assert hidden_text(text) is None
    assert handed_over(text) is text


def test_what_was_found_is_counted_and_named() -> None:
    found = hidden_text(f"a\nb{tagged('hi')}\u202e\u200b\u00ad\u200f\x00\u3164\U000e0100")
    assert found == HiddenText(
        kinds=(
            ("tag character", 2),
            ("bidirectional control", 1),
            ("zero-width sign", 1),
            ("soft hyphen", 1),
            ("direction mark", 1),
            ("control character", 1),
            ("invisible sign", 1),
            ("variation selector", 1),
        ),
        line=2,
        example="\\U000e0068",
        asks=True,
        spelled="hi",
    )
    assert found.summary.startswith("2 tag characters, 1 bidirectional control, 1 zero-width")
    assert found.notice.isprintable()


def test_there_is_a_bound_of_what_is_counted() -> None:
    found = hidden_text(tagged("a") * (COUNTED_MAX + 5))
    assert found is not None
    assert found.summary == f"at least {COUNTED_MAX} tag characters from line 1"
    assert len(found.spelled) == SPELLED_MAX


@given(
    st.text(
        st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\u200d\ufe0f\u200b"))
    )
)
def test_what_was_revealed_hides_nothing_but_between_what_is_seen(text: str) -> None:
    shown = revealed(text)
    assert (shown == text) == (hidden_text(text) is None)
    again = hidden_text(shown)
    assert again is None or not again.asks
    assert shown.count("\n") == text.count("\n")


def test_a_byte_order_mark_before_a_text_hides_nothing_and_one_inside_does() -> None:
    assert hidden_text("\ufeff---\nname: x\n---\n") is None
    assert hidden_text("\ufeffx", is_part=True) is not None
    found = hidden_text("\ufeffone\ntwo\ufeff")
    assert found is not None
    assert (found.line, found.summary) == (2, "1 zero-width sign from line 2")

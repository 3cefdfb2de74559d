"""Tests of retrieval/tokens.py."""

from __future__ import annotations

import gc
import sqlite3
import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.retrieval import QUERY_TERMS_MAX, name_key, query_terms
from skillhouse.retrieval.tokens import STOP_WORDS, name_keys, stems_of, tokens

ANY_TEXT = st.text(st.characters())
"""Surrogates and NUL included."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\n-_.,!?\0", []),
        ("Merge two PDFs", ["merge", "two", "pdfs"]),
        ("pdf-tools web_search a/b.c", ["pdf", "tools", "web", "search", "a", "b", "c"]),
        ("useEffect", ["useeffect", "use", "effect"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("S3Bucket", ["s3bucket", "s3", "bucket"]),
        ("APIs 3D GPT4", ["apis", "3d", "gpt4"]),
        ("don't", ["don", "t"]),
        ("café Straße", ["café", "strasse"]),
        ("\uff30\uff24\uff26\u3000\uff11\uff12", ["pdf", "12"]),
        ("\ufb01le", ["file"]),
        ("数据分析", ["数据", "据分", "分析"]),
        ("数据，分析。", ["数据", "分析"]),
        ("图", ["图"]),
        ("用Python画图", ["用", "python", "画图"]),
        ("データを分析", ["デー", "ータ", "タを", "を分", "分析"]),
        ("\uff83\uff9e\uff70\uff80", ["デー", "ータ"]),
        ("한국어 검색", ["한국", "국어", "검색"]),
        ("\U00020bb7野家", ["\U00020bb7野", "野家"]),
        ("時々", ["時々"]),
        ("हिन्दी", ["हनद"]),
        ("ไทย", ["ไท", "ทย"]),
        ("ภาษา\u200bไทย 12", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย", "12"]),
        ("ก็", ["ก"]),
        ("ไทยpdf\u200bxls", ["ไท", "ทย", "pdf", "xls"]),
        ("ไทย中文", ["ไท", "ทย", "中文"]),
        ("ລາວ\u200bລາວ", ["ລາ", "າວ", "ວລ", "ລາ", "າວ"]),
        ("ဖိုင်", ["ဖင"]),
        ("ឯក\u200bសារ", ["ឯក", "កស", "សរ"]),
        ("Ёлка ΣΊΣΥΦΟΣ", ["ёлка", "σίσυφοσ"]),
    ],
)
def test_a_text_has_these_tokens(text, expected):
    assert tokens(text) == expected


@given(ANY_TEXT)
def test_tokens_are_letters_and_digits_so_none_can_be_syntax(text):
    for token in tokens(text):
        assert token
        assert not set(token) & set("\"'*:^()+-{} \0\n")
        token.encode()


@given(st.text("abcXYZ 012-_"))
def test_capitals_find_what_small_letters_find(text):
    assert set(tokens(text.lower())) <= set(tokens(text))


@pytest.mark.slow
@given(st.lists(st.text("aA Ⅳİß-_\0\n　é\u0301") | st.text()))
def test_many_keys_at_once_are_those_one_by_one(texts):
    assert name_keys(texts) == [name_key(text) for text in texts]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("?!", []),
        ("the PDF and the pdf", ["pdf"]),
        ("To be, or not to be", ["to", "be", "or", "not"]),
        ("what's in it", ["what"]),
    ],
)
def test_a_query_looks_for_each_telling_word_once(query, expected):
    assert query_terms(query) == expected


def test_a_long_query_is_cut_to_its_first_terms():
    words = [f"word{number}" for number in range(QUERY_TERMS_MAX + 1)]
    assert query_terms(" ".join(["the", *words])) == words[:QUERY_TERMS_MAX]


@given(ANY_TEXT)
def test_the_terms_of_a_query_are_different_tokens_of_it(query):
    terms = query_terms(query)
    assert len(set(terms)) == len(terms) <= QUERY_TERMS_MAX
    assert set(terms) <= set(tokens(query))
    assert bool(terms) == bool(tokens(query))
    assert not set(terms) & STOP_WORDS or set(terms) <= STOP_WORDS


@pytest.mark.parametrize(
    "spelling",
    ["pdf-tools", "PDF-Tools", "pdf tools", "pdf_tools", "  pdf \t tools\n", "ＰＤＦ　tools"],
)
def test_a_name_may_be_spelled_in_other_ways(spelling):
    assert name_key(spelling) == "pdf-tools"


def test_threads_that_end_leave_no_database():
    stems_of(["merging"])
    before = sum(isinstance(one, sqlite3.Connection) for one in gc.get_objects())
    for _ in range(5):
        thread = threading.Thread(target=stems_of, args=(["merging"],))
        thread.start()
        thread.join()
    assert sum(isinstance(one, sqlite3.Connection) for one in gc.get_objects()) == before


def test_threads_stem_at_the_same_time():
    found: list[object] = []

    def stem(word: str) -> None:
        found.append([stems_of([word, "merging"]) for _ in range(50)])

    words = ["reports", "cafés", "running", "数据"]
    threads = [threading.Thread(target=stem, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [[stems_of([word, "merging"])] * 50 for word in words]
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    "parts",
    [
        ("ใช้เมื่อ", "เขียน", "ภาษา", "ไทย"),
        ("ຂຽນ", "ເອກະສານ", "ພາສາ", "ລາວ"),
        ("မြန်မာ", "စာ", "ရေး", "သည်"),
        ("សរសេរ", "ឯកសារ", "ភាសា", "ខ្មែរ"),
        ("ꪼꪕ", "ꪎꪴꪀ"),
    ],
)
def test_words_that_a_zero_width_space_parts_are_those_without_it(parts):
    assert tokens("\u200b".join(parts)) == tokens("".join(parts))
    assert set(tokens(parts[-1])) <= set(tokens("".join(parts)))


def test_a_token_of_a_script_without_blanks_holds_letters_alone():
    blocks = ((0xE00, 0xF00), (0x1000, 0x10A0), (0x1780, 0x1AB0), (0xA9E0, 0xAAE0))
    every = (chr(code) for block in blocks for code in range(*block))
    text = "".join(sign for sign in every if unicodedata.category(sign) != "Cn")
    kinds = {unicodedata.category(sign)[0] for token in tokens(text) for sign in token}
    assert kinds == {"L", "N"}

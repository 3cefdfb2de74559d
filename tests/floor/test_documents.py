"""Tests of floor/documents.py: JSON and TOML of others, read whole or refused with a line."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.floor.documents import DEPTH_MAX, DocumentError, json_value, toml_table

DEEP = '{"a":' + "[" * 5_000 + "]" * 5_000 + "}"
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@given(VALUES)
def test_json_without_traps_is_read_as_it_was_written(value: object) -> None:
    assert json_value(json.dumps(value)) == value
    assert json_value(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":\n "\\ud800"}', "line 2: half of a surrogate pair in a text: `\\ud800`"),
        (b'{"a":\n "\\udc00\\ud800"}', "line 2: half of a surrogate pair in a text: `\\udc00`"),
        (b'["\\\\\\ud83d x"]', "line 1: half of a surrogate pair in a text: `\\ud83d`"),
        (b'{"\\uDFFF": 1}', "line 1: half of a surrogate pair in a text: `\\uDFFF`"),
        (b'["\xed\xa0\x80"]', "line 1: not JSON: expected UTF-8"),
        (b'[\n\n"\xff"]', "line 3: not JSON: expected UTF-8"),
        (b'["a\\u0000"]', "line 1: a NUL in a text: `\\u0000`"),
        (b"[\nNaN]", "not JSON: `NaN` is no JSON"),
        (b"[1e999]", "not JSON: 1e999 is no number that can be used"),
        (b'{"a": 1, "a": 2}', "not JSON: a key is there twice: 'a'"),
        (b'{\n"a": }', "line 2: not JSON: expecting value"),
        (DEEP.encode(), f"not JSON: nested deeper than {DEPTH_MAX} levels"),
        (b"[" * 101 + b"]" * 101, f"nested deeper than {DEPTH_MAX} levels"),
        (b"[" * 200_000, f"not JSON: nested deeper than {DEPTH_MAX} levels"),
        (b"", "line 1: not JSON: expecting value"),
    ],
)
def test_json_that_cannot_be_used_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        json_value(data)
    assert str(caught.value) == message


def test_what_only_looks_like_a_trap_is_read() -> None:
    assert json_value(r'["\\ud800", "\ud83d\ude00", "\\u0000"]') == ["\\ud800", "😀", "\\u0000"]
    assert json_value("[" * 100 + "]" * 100)
    assert json_value(b"\xef\xbb\xbf{}") == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a = 1\nb = \n", "line 2: not TOML: invalid value"),
        ("a = 1\nb = ", "line 2: not TOML: invalid value"),
        ("a = " + "1" * 5_000, "not TOML: Exceeds the limit"),
        ("a = 1e999", "not TOML: 1e999 is no number that can be used"),
        ("a = nan", "not TOML: nan is no number that can be used"),
        ('a = "\\u0000"', "a NUL in a text"),
        ('"\\u0000" = 1', "a NUL in a text"),
        ('a = "\\ud800"', "line 1: not TOML: escaped character is not a Unicode scalar value"),
        ("a = " + "[" * 101 + "]" * 101, f"nested deeper than {DEPTH_MAX} levels"),
        ("a = " + "[" * 100_000, f"not TOML: nested deeper than {DEPTH_MAX} levels"),
        ("a = 1979-13-45", "line 1: not TOML: "),
        ("a = 1\na = 2", "line 2: not TOML: cannot overwrite a value"),
        (b"a = 1\nb = '\xff'", "line 2: not TOML: expected UTF-8"),
    ],
)
def test_toml_that_cannot_be_used_is_refused(data: str | bytes, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        toml_table(data)
    assert str(caught.value).startswith(message)


def test_a_dotted_key_without_end_costs_no_time() -> None:
    begun = time.process_time()
    with pytest.raises(DocumentError, match="line 2: expected at most 16 parts between dots"):
        toml_table("a = 1\n" + ".".join("b" * 50_000) + " = 1\n")
    assert time.process_time() - begun < 2

"""Tests of net/secret.py."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.net import NetError, SecretBinding, masked, names_in
from skillhouse.net.secret import filled, leaked

KEY = SecretBinding(name="KEY", value="tøken/+=&s3cr3t", hosts=("a.test",))


@given(
    value=st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=8, max_size=40),
    before=st.binary(max_size=7),
    after=st.binary(max_size=7),
    spelling=st.sampled_from(
        ["raw", "hex", "base64", "base64url", "base32", "quoted", "twice", "json", "upper"]
    ),
)
def test_a_secret_is_found_in_every_spelling_wherever_it_begins(value, before, after, spelling):
    raw = value.encode()
    found = {
        "raw": lambda: before + raw + after,
        "hex": lambda: (before + raw + after).hex().upper().encode(),
        "base64": lambda: base64.b64encode(before + raw + after),
        "base64url": lambda: base64.urlsafe_b64encode(before + raw + after).rstrip(b"="),
        "base32": lambda: base64.b32encode(before + raw + after).lower(),
        "quoted": lambda: before.replace(b"%", b"") + quote(value, safe="").encode(),
        "twice": lambda: quote(quote(value, safe=""), safe="").encode(),
        "json": lambda: json.dumps({"a": value}).encode(),
        "upper": lambda: before + raw.swapcase() if value.isascii() else raw,
    }[spelling]()
    secret = SecretBinding(name="KEY", value=value, hosts=())
    assert leaked((secret,), (b"other", found)) == "KEY"


@given(st.lists(st.sampled_from([b"=", b"%", b"\r\n", b"3D", b" ", b"s3cr3t", b"%zz", b"a"])))
def test_no_bytes_before_it_hide_a_quoted_secret(before):
    text = b"".join(before) + b"&k=" + quote(KEY.value, safe="").encode()
    assert leaked((KEY,), (quote(text, safe="").encode(), b"x")) == "KEY"


@given(st.binary(max_size=200))
def test_other_bytes_hold_no_secret(data):
    assert leaked((KEY,), (data,)) == ""


def test_a_header_gets_the_secrets_bound_to_its_host():
    text = "Bearer {{secret:KEY}} and {{secret:KEY}}, {{other:KEY}}"
    assert names_in(text) == ("KEY", "KEY")
    expected = "Bearer tøken/+=&s3cr3t and tøken/+=&s3cr3t, {{other:KEY}}"
    assert filled(text, {"KEY": KEY}, "a.test") == expected
    with pytest.raises(NetError, match="no secret `KEY` is bound to b"):
        filled(text, {}, "b.test")


def test_what_could_not_be_searched_for_is_no_secret():
    for name, value in (("KEY", "short"), ("KEY", "line\nbreak-in-it"), ("a b", "s3cr3t-value")):
        with pytest.raises(NetError) as caught:
            SecretBinding(name=name, value=value, hosts=())
        assert caught.value.code == "secret-refused"
        assert value not in str(caught.value)


def test_a_secret_is_not_shown():
    assert KEY.value not in repr(KEY)
    assert masked(f"got {KEY.value}", (KEY,)) == "got [secret KEY]"

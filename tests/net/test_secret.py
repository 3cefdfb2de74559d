"""Tests of net/secret.py."""

from __future__ import annotations

import base64
import html
import json
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.net import NetError, SecretBinding, masked, names_in
from skillhouse.net.secret import filled, leaked

KEY = SecretBinding(name="KEY", value="tøken/+=&s3cr3t", hosts=("a.test",))


SPELLINGS: dict[str, Callable[[bytes, str, bytes], bytes]] = {
    "raw": lambda before, value, after: before + value.encode() + after,
    "hex": lambda before, value, after: (before + value.encode() + after).hex().upper().encode(),
    "base64": lambda before, value, after: base64.b64encode(before + value.encode() + after),
    "base64 lines": lambda before, value, after: base64.encodebytes(
        before * 9 + value.encode() + after
    ),
    "base64url": lambda before, value, after: base64.urlsafe_b64encode(
        before + value.encode() + after
    ).rstrip(b"="),
    "base64 quoted": lambda before, value, after: quote(
        base64.b64encode(before + value.encode() + after), safe=""
    ).encode(),
    "base32": lambda before, value, after: base64.b32encode(
        before + value.encode() + after
    ).lower(),
    "quoted": lambda before, value, _: before.replace(b"%", b"") + quote(value, safe="").encode(),
    "twice": lambda _, value, after: quote(quote(value, safe=""), safe="").encode() + after,
    "every byte": lambda _, value, after: b"".join(b"%%%02X" % b for b in value.encode()) + after,
    "json": lambda *parts: json.dumps({"a": parts[1]}).encode(),
    "json in json": lambda *parts: json.dumps([json.dumps({"a": parts[1]})]).encode(),
    "slashes": lambda *parts: json.dumps(parts[1]).replace("/", "\\/").encode(),
    "u": lambda _, value, after: b'"' + _units(value) + b'"' + after,
    "python": lambda *parts: repr(parts[1].encode("unicode_escape")).encode(),
    "html": lambda _, value, after: html.escape(value).encode() + after,
    "decimal": lambda _, value, after: "".join(f"&#{ord(c)};" for c in value).encode() + after,
    "hexadecimal": lambda *parts: "".join(f"&#x{ord(c):X};" for c in parts[1]).encode(),
    "upper": lambda before, value, _: (
        before + (value.swapcase() if value.isascii() else value).encode()
    ),
}


def _units(value: str) -> bytes:
    units = value.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)).encode()


VALUES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=8, max_size=40)


@pytest.mark.slow
@given(
    value=VALUES,
    before=st.binary(max_size=7),
    after=st.binary(max_size=7),
    spelling=st.sampled_from(sorted(SPELLINGS)),
)
def test_a_secret_is_found_in_every_spelling_and_masked_wherever_it_begins(
    value, before, after, spelling
):
    found = SPELLINGS[spelling](before, value, after)
    secret = SecretBinding(name="KEY", value=value, hosts=())
    assert leaked((secret,), (b"other", found)) == "KEY"
    text = masked(f"before {found.decode('utf-8', 'replace')} after", (secret,))
    assert leaked((secret,), (text.encode(),)) == ""
    assert value not in text


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_what_is_around_a_secret_stays(spelling):
    value = 'sk-test/4f9a+1c7e=="<&>'
    secret = SecretBinding(name="KEY", value=value, hosts=())
    found = SPELLINGS[spelling](b"", value, b"").decode()
    text = masked(f"<p>the first</p> {found} <p>the last</p>", (secret,))
    if spelling in ("base64 lines", "base64 quoted", "json in json", "python"):
        assert leaked((secret,), (text.encode(),)) == ""
        return
    assert text.startswith("<p>the first</p> ")
    assert text.endswith(" <p>the last</p>")
    assert "[secret KEY]" in text


@pytest.mark.slow
def test_masking_takes_time_in_proportion_to_the_text():
    def steps(size: int) -> float:
        texts = ("\\" * size, "%25" * size, "&amp;" * size, "s" * size, "&#0" * size)
        began = time.process_time()
        for text in texts:
            masked(text + KEY.value, (KEY,))
        return time.process_time() - began

    steps(1_000)
    small = min(steps(4_000) for _ in range(3))
    assert min(steps(40_000) for _ in range(3)) < 60 * small


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

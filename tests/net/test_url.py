"""Tests of net/url.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.net import NetError, Target, parse_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://EXAMPLE.com.:443/A?b=c#d", "https://example.com/A?b=c"),
        ("http://example.com:80?q", "http://example.com/?q"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://bücher.example/ü?ö=ä", "https://xn--bcher-kva.example/%C3%BC?%C3%B6=%C3%A4"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("http://127.0.0.1/", "http://127.0.0.1/"),
        ("http://[0:0:0:0:0:0:0:1]:8080/", "http://[::1]:8080/"),
        ("https://example.com/a%2fb/../c;d", "https://example.com/a%2fb/../c;d"),
        ('https://example.com/<"{|}', "https://example.com/%3C%22%7B%7C%7D"),
    ],
)
def test_a_url_has_one_spelling(text, url):
    assert parse_url(text).url == url
    assert parse_url(parse_url(text).url) == parse_url(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "example.com", "//example.com/", "/a", "https://", "https:///a", "https://."),
        *("file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:,a"),
        *("javascript:alert(1)", "ws://example.com/", "https:example.com"),
        *("https://user@example.com/", "https://u:p@example.com/", "https://@example.com/"),
        *("https://allowed.com\\@evil.com/", "https://allowed.com\\.evil.com/"),
        *("https://exa mple.com/", " https://example.com/", "https://example.com/a b"),
        *("https://example.com/\r\nX: y", "https://example.com/\t", "https://exam\0ple.com/"),
        *("https://example.com:0/", "https://example.com:65536/", "https://example.com:a/"),
        *("https://example..com/", "https://-example.com/", "https://exam_ple/"),
        *("https://[::1/", "https://[fe80::1%25eth0]/", "https://[v1.x]/", "https://[1.2.3.4]/"),
        "https://" + "a" * 64 + ".com/",
        "https://example.com/" + "a" * 2_048,
        "https://example.com/\u202e",
        "https://example.com/\ud800",
    ],
)
def test_what_is_no_plain_web_address_is_refused(text):
    with pytest.raises(NetError) as caught:
        parse_url(text)
    assert caught.value.code == "url-refused"
    assert caught.value.refused


def test_a_refusal_does_not_repeat_a_password():
    with pytest.raises(NetError) as caught:
        parse_url("https://user:hunter22@example.com/")
    assert "hunter22" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_refused(text):
    for url in (text, f"https://{text}", f"http://example.com/{text}"):
        try:
            target = parse_url(url)
        except NetError:
            continue
        assert target.url.isascii()
        assert not set(target.url) & set(' \\@"<>\r\n') - set(target.path)
        assert parse_url(target.url) == target


def test_a_target_knows_whether_it_is_an_address():
    kinds = {"http://1.1.1.1/": True, "http://[2606:4700::1]/": True, "http://one.one/": False}
    assert {url: parse_url(url).is_address for url in kinds} == kinds
    assert parse_url("https://example.com/a") == Target(
        scheme="https", host="example.com", port=443, path="/a"
    )

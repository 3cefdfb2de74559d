"""Tests of net/search.py."""

from __future__ import annotations

import json

import pytest

from skillhouse.net import BraveSearch, NetError, NetPolicy, SearxngSearch, WebResult, parse_url

BRAVE = BraveSearch(key="a-key-of-brave")
SEARXNG = SearxngSearch(base_url="http://127.0.0.1:8888/")


def test_brave_is_asked_with_its_key_and_its_key_goes_nowhere_else():
    url = BRAVE.url("what? 天気 & more", 7)
    assert url == (
        "https://api.search.brave.com/res/v1/web/search"
        "?q=what%3F%20%E5%A4%A9%E6%B0%97%20%26%20more&count=7"
    )
    policy = BRAVE.policy(NetPolicy())
    assert policy.allows(parse_url(url), "GET")
    assert not policy.allows(parse_url("https://search.brave.com/"), "GET")
    assert set(policy.bound_to(parse_url(url))) == {"brave-search"}
    assert BRAVE.headers["X-Subscription-Token"] == "{{secret:brave-search}}"
    assert BRAVE.key not in repr(BRAVE)


def test_a_searxng_at_an_address_may_be_private():
    url = SEARXNG.url("a b", 7)
    assert url == "http://127.0.0.1:8888/search?q=a%20b&format=json"
    policy = SEARXNG.policy(NetPolicy())
    policy.check_origin(parse_url(url), "GET")
    policy.check_addresses("127.0.0.1", ["127.0.0.1"])
    with pytest.raises(NetError):
        policy.check_addresses("127.0.0.1", ["127.0.0.2"])
    named = SearxngSearch(base_url="http://searx.test").policy(NetPolicy())
    assert named.private == ()


def test_results_are_plain_lines():
    results = [
        {
            "title": "A <strong>b</strong> &amp; c &lt;d&gt;",
            "url": "https://a.test/",
            "description": "one\ntwo\u202e\u200b 1 < 2",
        },
        {"title": "x" * 500, "url": "https://b.test/"},
    ]
    answer = json.dumps({"web": {"results": results}, "more": 1}).encode()
    first, second = BRAVE.read(answer)
    assert first == WebResult(title="A b & c <d>", url="https://a.test/", excerpt="one two 1 < 2")
    assert (second.title, second.excerpt) == ("x" * 400 + "…", "")
    answer = json.dumps({"results": [{"title": "a", "url": "u", "content": None}]}).encode()
    assert SEARXNG.read(answer) == (WebResult(title="a", url="u", excerpt=""),)
    assert BRAVE.read(b"{}") == ()


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"results": 1}', b"[" * 100_000, b"\xff"]
)
def test_what_is_no_list_of_results_is_an_error(body):
    with pytest.raises(NetError) as caught:
        SEARXNG.read(body)
    assert caught.value.code == "protocol-error"

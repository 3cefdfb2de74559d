"""Tests of net/policy.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.net import (
    HostRule,
    NetError,
    NetPolicy,
    SecretBinding,
    Target,
    host_rule,
    parse_url,
)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("example.com", HostRule(host="example.com")),
        ("https://Example.com./", HostRule(host="example.com")),
        ("*.example.com", HostRule(host="*.example.com")),
        ("*", HostRule(host="*")),
        ("http://*:*", HostRule(host="*", scheme="http", port=None)),
        (
            "post,put http://a.test:81",
            HostRule(host="a.test", scheme="http", port=81, methods=frozenset({"POST", "PUT"})),
        ),
        ("* https://[::1]:8443", HostRule(host="::1", port=8443, methods=None)),
        (
            "CONNECT bücher.example",
            HostRule(host="xn--bcher-kva.example", methods=frozenset({"CONNECT"})),
        ),
    ],
)
def test_a_rule_is_read_as_it_is_written(text, rule):
    assert host_rule(text) == rule
    assert host_rule(str(rule)) == rule


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "GET ", "ftp://example.com", "example.com/path", "a@b.com", "exa mple.com"),
        *("a.*.com", "ex*mple.com", "*.*", "**.com", "*.127.0.0.1", "GET  example.com"),
        *("0x7f.1", "2130706433", "example.com:0", "example.com:99999", "GET,,PUT example.com"),
    ],
)
def test_what_is_no_rule_is_refused(text):
    with pytest.raises(NetError):
        host_rule(text)


def test_the_empty_policy_reaches_nothing():
    policy = NetPolicy()
    for url in ("https://example.com/", "http://127.0.0.1/", "https://a.b/"):
        assert not policy.allows(parse_url(url), "GET")


def test_a_star_is_every_name_and_no_address():
    policy = NetPolicy(hosts=(host_rule("*"),))
    assert policy.allows(parse_url("https://example.com/"), "GET")
    assert not policy.allows(parse_url("https://1.1.1.1/"), "GET")
    assert not policy.allows(parse_url("https://[2606:4700::1]/"), "GET")
    assert not policy.allows(parse_url("http://example.com/"), "GET")
    assert not policy.allows(parse_url("https://example.com/"), "CONNECT")


def test_a_rule_is_for_one_scheme_whatever_the_port():
    for text, other in (("https://a.test:8080", "http"), ("http://a.test:*", "https")):
        policy = NetPolicy(hosts=(host_rule(text),))
        own = text.partition(":")[0]
        assert policy.allows(parse_url(f"{own}://a.test:8080/"), "GET")
        assert not policy.allows(parse_url(f"{other}://a.test:8080/"), "GET")


def test_what_is_granted_for_a_call_is_one_origin_and_method():
    policy = NetPolicy().granted(parse_url("https://a.test/x"), "POST")
    allowed = {
        (method, url)
        for method in ("GET", "HEAD", "POST", "PUT", "CONNECT")
        for url in ("https://a.test/y", "http://a.test/x", "https://b.a.test/", "https://a.test:8/")
        if policy.allows(parse_url(url), method)
    }
    assert allowed == {("POST", "https://a.test/y"), ("GET", "https://a.test/y")}


def test_a_policy_says_whether_the_origin_or_the_method_is_wrong():
    policy = NetPolicy(hosts=(host_rule("a.test"),))
    for method, url, said in (
        ("POST", "https://a.test/", "no rule allows POST to https://a.test"),
        ("GET", "https://b.test/", "no rule allows https://b.test"),
    ):
        with pytest.raises(NetError, match=said) as caught:
            policy.check_origin(parse_url(url), method)
        assert caught.value.code == "host-refused"


def test_networks_that_open_a_translation_prefix_or_are_none_are_refused():
    for network in ("64:ff9b::/96", "nonsense", "10.0.0.1/8"):
        with pytest.raises(NetError) as caught:
            NetPolicy(private=(network,))
        assert caught.value.code == "address-refused"


def test_only_the_named_private_network_is_open():
    policy = NetPolicy(private=("10.1.0.0/16",))
    policy.check_addresses("a.test", ["10.1.2.3", "93.184.216.34"])
    for address in ("10.2.0.1", "127.0.0.1", "::ffff:10.1.2.3", "169.254.169.254", "no address"):
        with pytest.raises(NetError) as caught:
            policy.check_addresses("a.test", ["93.184.216.34", address])
        assert caught.value.code == "address-refused"


def test_a_secret_is_bound_to_origins_and_not_to_names_alone():
    secret = SecretBinding(name="KEY", value="s3cr3t-value", hosts=("a.test", "*.b.test"))
    policy = NetPolicy(secrets=(secret,))
    bound = {
        url: set(policy.bound_to(parse_url(url)))
        for url in ("https://a.test/", "http://a.test/", "https://x.b.test/", "https://b.test/")
    }
    assert bound == {
        "https://a.test/": {"KEY"},
        "http://a.test/": set(),
        "https://x.b.test/": {"KEY"},
        "https://b.test/": set(),
    }


def test_a_secret_of_an_unreadable_host_is_refused():
    with pytest.raises(NetError):
        NetPolicy(secrets=(SecretBinding(name="KEY", value="s3cr3t-value", hosts=("a b",)),))


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

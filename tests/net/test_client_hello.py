"""Tests of net/proxy.py against what OpenSSL says."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.net import NetError
from skillhouse.net.proxy import HELLO_MAX, Hello, client_hello
from tests.net.greetings import hello_with, named, record


def greeting(name: str | None) -> bytes:
    """Return the first bytes of OpenSSL's client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


HELLO = greeting("Deep.test")


def test_the_name_is_read_from_openssl():
    assert client_hello(HELLO) == Hello(name="deep.test", hides_name=False)
    assert client_hello(greeting(None)) == Hello(name="", hides_name=False)
    assert client_hello(HELLO + b"more") == Hello(name="deep.test", hides_name=False)


@given(st.integers(0, len(HELLO) - 1))
def test_every_beginning_waits_for_the_rest(length):
    assert client_hello(HELLO[:length]) is None


@given(st.integers(1, 60))
def test_a_greeting_in_small_records_is_put_together(size):
    body = HELLO[5:]
    pieces = b"".join(record(body[at : at + size]) for at in range(0, len(body), size))
    assert client_hello(pieces) == Hello(name="deep.test", hides_name=False)


def test_a_hidden_name_is_told():
    found = client_hello(hello_with(b"\xfe\x0d\x00\x01\x00" + named(b"a.test")))
    assert found == Hello(name="a.test", hides_name=True)


@pytest.mark.parametrize(
    "data",
    [
        *(b"GET / HTTP/1.1\r\n\r\n", b"\x16\x02\x00\x00\x05", b"\x15\x03\x01\x00\x02\x02\x28"),
        *(record(b"\x02\x00\x00\x00"), b"\x16\x03\x01\x00\x00", b"\x16\x03\x01\xff\xff"),
        record(b"\x01" + (HELLO_MAX + 1).to_bytes(3, "big")),
        *(record(b"\x01\x00\x00\x02\x03\x03"), hello_with(b"\x00\x00\x00\x09\x00")),
        *(hello_with(named(b"a.test", b"b.test")), hello_with(named(b"a.test") + named(b"b"))),
    ],
)
def test_what_is_no_plain_greeting_is_refused(data):
    with pytest.raises(NetError) as caught:
        client_hello(data)
    assert caught.value.code == "protocol-error"


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255))
def test_a_changed_byte_never_breaks_the_reader(place, value):
    data = bytearray(HELLO)
    data[place] = value
    try:
        found = client_hello(bytes(data))
    except NetError:
        return
    assert found is None or isinstance(found, Hello)

"""Tests of net/client.py."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.net import NetError
from skillhouse.net.client import BoundedBody

PACKED = {
    "": lambda data: data,
    "identity": lambda data: data,
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    "deflate": zlib.compress,
    "Deflate ": lambda data: zlib.compress(data, wbits=-15),
}


@given(data=st.binary(max_size=300), size=st.integers(1, 50), kind=st.sampled_from(list(PACKED)))
def test_a_body_comes_back_whatever_the_pieces(data, size, kind):
    packed = PACKED[kind](data)
    body = BoundedBody(kind, 300)
    for at in range(0, len(packed), size):
        body.add(packed[at : at + size])
    assert body.end() == data


@pytest.mark.parametrize("kind", PACKED)
def test_one_byte_too_many_is_an_error(kind):
    data = bytes(range(256)) * 4
    for most, fits in ((len(data), True), (len(data) - 1, False)):
        body = BoundedBody(kind, most)
        if fits:
            body.add(PACKED[kind](data)[:most] if not kind else PACKED[kind](data))
            assert body.end() == data
            continue
        with pytest.raises(NetError) as caught:
            body.add(PACKED[kind](data))
        assert caught.value.code == "too-large"


@pytest.mark.slow
def test_what_is_too_much_is_not_unpacked_first():
    bomb = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(NetError, match="larger than"):
            BoundedBody("gzip", 1 << 20).add(bomb)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 << 20


@pytest.mark.parametrize("kind", ["gzip", "deflate"])
def test_a_broken_or_cut_body_is_an_error(kind):
    cut = BoundedBody(kind, 1_000)
    cut.add(PACKED[kind](b"data" * 50)[:-1])
    with pytest.raises(NetError, match="ends too early"):
        cut.end()
    with pytest.raises(NetError, match="is no"):
        BoundedBody(kind, 1_000).add(b"plain text that is not packed at all")


def test_an_encoding_that_nobody_asked_for_is_an_error():
    for kind in ("br", "zstd", "gzip, gzip", "compress"):
        with pytest.raises(NetError) as caught:
            BoundedBody(kind, 10).add(b"a")
        assert caught.value.code == "encoding-unknown"

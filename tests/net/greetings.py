"""Greetings of TLS clients, made by hand."""

from __future__ import annotations


def record(body: bytes) -> bytes:
    return b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body


def hello_with(extensions: bytes) -> bytes:
    """Return a greeting with these extensions."""
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(extensions).to_bytes(2, "big") + extensions
    return record(b"\x01" + len(body).to_bytes(3, "big") + body)


def named(*names: bytes) -> bytes:
    entries = b"".join(b"\x00" + len(n).to_bytes(2, "big") + n for n in names)
    value = len(entries).to_bytes(2, "big") + entries
    return b"\x00\x00" + len(value).to_bytes(2, "big") + value

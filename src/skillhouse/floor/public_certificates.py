"""Which files of certificates are public: those that hold certificates and nothing else."""

from __future__ import annotations

import binascii
import functools
import os
import re
import stat

from skillhouse.floor.regex import regex

BYTES_MAX = 4 << 20
"""Largest file that is read: ten times the certificates that browsers trust."""
KEPT_MAX = 1_024
_BLOCK = regex(
    rb"^-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----\r?\n([A-Za-z0-9+/=\s]+)"
    rb"^-----END (X509 |TRUSTED )?CERTIFICATE-----[ \t]*(?:\r?\n|\Z)",
    re.MULTILINE,
)
_TEXT = regex(
    # What openssl and the makers of bundles write beside them.
    rb"\s*|#.*|(?:subject|issuer) ?=.*|Bag Attributes.*|Key Attributes: <No Attributes>"
    rb"| +(?:friendlyName|localKeyID): .*"
)
_DUMPED = regex(rb"^Certificate:\r?\n(?: {4}.*\n)+", re.MULTILINE)
_NAMED = regex(rb"^[^\n]{1,200}\n=+[ \t]*$", re.MULTILINE)


def is_public_certificate(path: str) -> bool:
    """Whether a file, which is no link, holds certificates in PEM (RFC 7468) and nothing else."""
    if not path.casefold().endswith(".pem"):
        return False
    try:
        info = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(info.st_mode) or not 0 < info.st_size <= BYTES_MAX:
        return False
    stamp = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return _is_public(path, stamp)


@functools.lru_cache(maxsize=KEPT_MAX)
def _is_public(path: str, stamp: tuple[int, ...]) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(handle)
            data = file.read(BYTES_MAX + 1)
    except OSError:
        return False
    return (info.st_dev, info.st_ino) == stamp[:2] and holds_only_certificates(data)


def holds_only_certificates(data: bytes) -> bool:
    r"""Whether a text has certificates, and beside them nothing but what is said about them.

    >>> holds_only_certificates(b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n")
    False
    """
    blocks = _BLOCK.findall(data)
    if not blocks or not all(_is_certificate(body) for _, body, _ in blocks):
        return False
    rest = _NAMED.sub(b"", _DUMPED.sub(b"", _BLOCK.sub(b"", data)))
    return all(_TEXT.fullmatch(line) for line in rest.splitlines())


def _is_certificate(body: bytes) -> bool:
    """Whether a block holds a certificate: a sequence that begins with a sequence (RFC 5280, 4.1).

    A key begins with a number (RFC 5958, 2; RFC 8017, A.1.2).
    """
    try:
        data = binascii.a2b_base64(b"".join(body.split()))
    except binascii.Error:
        return False
    inner = _content(data)
    return inner is not None and _content(inner) is not None


def _content(data: bytes) -> bytes | None:
    """Return the content of a DER sequence (X.690, 8.1) at the beginning; None for none."""
    if len(data) < 2 or data[0] != 0x30:
        return None
    length, start = data[1], 2
    if length & 0x80:
        count = length & 0x7F
        start += count
        length = int.from_bytes(data[2:start], "big")
    return data[start : start + length] if 0 < length <= len(data) - start else None

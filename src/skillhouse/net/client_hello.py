"""Reads whom a TLS client says that it wants to speak to (RFC 8446 4.1.2, RFC 6066 3).

One address serves many names. Without this look, a tunnel to an allowed name could be used to speak
to any other that the same provider serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from skillhouse.net.errors import NetError

HELLO_MAX = 32_768
"""Bytes of a ClientHello; ordinary ones have under 2,000."""
_RECORD_MAX = 16_384
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What matters of a ClientHello."""

    name: str
    """The server's name, in lower case; "" when there is none."""
    hides_name: bool
    """Whether another name may be meant, which is encrypted (ECH)."""


class _Cursor:
    """Takes bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise NetError("protocol-error", "the greeting of the tunnel is cut")
        self._at += count
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """Take bytes that are preceded by their number."""
        return self.take(self.number(size))

    def __bool__(self) -> bool:
        return self._at < len(self._data)


def client_hello(data: bytes) -> Hello | None:
    """Return the greeting that `data` begins with; None when more of it must come.

    Raises:
        NetError: "protocol-error", it is none.
    """
    body, at = b"", 0
    while True:
        head = data[at : at + 5]
        length = int.from_bytes(head[3:5], "big")
        if head[:1] not in (b"", b"\x16") or head[1:2] not in (b"", b"\x03"):
            raise NetError("protocol-error", "expected TLS in the tunnel, got something else")
        if len(head) < 5:
            return None
        if not 0 < length <= _RECORD_MAX:
            raise NetError("protocol-error", "expected TLS in the tunnel, got an odd record")
        body += data[at + 5 : at + 5 + length]
        wanted = 4 + int.from_bytes(body[1:4], "big")
        if body[:1] not in (b"", b"\x01") or (len(body) >= 4 and wanted > HELLO_MAX):
            raise NetError("protocol-error", "expected the greeting of a TLS client")
        if len(body) >= max(4, wanted):
            return _read(_Cursor(body[4:wanted]))
        at += 5 + length
        if len(data) < at:
            return None


def _read(cursor: _Cursor) -> Hello:
    cursor.take(2 + 32)  # Version and random number,
    for size in (1, 2, 1):  # session, ciphers, compressions.
        cursor.vector(size)
    names: list[bytes] = []
    hides_name = False
    extensions = _Cursor(cursor.vector(2) if cursor else b"")
    while extensions:
        kind, value = extensions.number(2), extensions.vector(2)
        hides_name |= kind == _ENCRYPTED_HELLO
        if kind == _SERVER_NAME:
            listed = _Cursor(_Cursor(value).vector(2))
            while listed:
                listed.take(1)
                names.append(listed.vector(2))
    if len(names) > 1:
        raise NetError("protocol-error", "the greeting of the tunnel names several servers")
    name = names[0].decode("ascii", "replace").lower() if names else ""
    return Hello(name=name, hides_name=hides_name)

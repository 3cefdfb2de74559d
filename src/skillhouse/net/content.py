"""Takes the body of an answer apart, piece by piece, and never keeps more than was agreed."""

from __future__ import annotations

import zlib

from skillhouse.net.errors import NetError

ACCEPTED = "gzip, deflate"
"""What we ask for and understand."""
_GZIP = 16 + zlib.MAX_WBITS


class Body:
    """A body that grows up to a bound, after decompression."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        """Take the value of Content-Encoding."""
        self._encoding = encoding.strip().lower()
        self._unpacker: zlib._Decompress | None = None
        self._max_bytes = max_bytes
        self._taken = 0
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Take the next bytes as they came.

        Raises:
            NetError: "too-large", "encoding-unknown", or "protocol-error" for what is not of its
                encoding.
        """
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            message = f"expected an answer in {ACCEPTED} or plain, got {self._encoding[:40]!r}"
            raise NetError("encoding-unknown", message)
        self._taken += len(data)
        if self._taken > self._max_bytes:
            self._refuse()
        if self._encoding in ("", "identity"):
            self._kept += data
            return
        try:
            while data:
                data = self._unpack(data)
        except zlib.error as error:
            raise NetError("protocol-error", f"the answer is no {self._encoding}") from error

    def end(self) -> bytes:
        """Return the whole.

        Raises:
            NetError: "protocol-error", something is missing at the end.
        """
        if self._unpacker is not None and not self._unpacker.eof:
            raise NetError("protocol-error", f"the {self._encoding} answer ends too early")
        return bytes(self._kept)

    def _unpack(self, data: bytes) -> bytes:
        """Keep what is in some of `data`, and return the rest."""
        if self._unpacker is None or self._unpacker.eof:
            self._unpacker = zlib.decompressobj(self._window(data))
        room = self._max_bytes - len(self._kept)
        self._kept += self._unpacker.decompress(data, room + 1)
        if len(self._kept) > self._max_bytes:
            self._refuse()
        return self._unpacker.unconsumed_tail or self._unpacker.unused_data

    def _window(self, data: bytes) -> int:
        if self._encoding != "deflate":
            return _GZIP
        # RFC 9110 8.4.1.2 means zlib's format, and some servers send it bare.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS

    def _refuse(self) -> None:
        raise NetError("too-large", f"the answer is larger than {self._max_bytes} bytes")

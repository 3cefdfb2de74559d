"""Reads what git says on stderr while it runs: how far it is, and in the end what went wrong."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import IO

GitProgress = Callable[[int, int, str], None]
"""Receives how many are here, of how many, and what they are."""

KEPT = 4_096
"""Bytes of its last words that are kept: a server may say any number."""
_CHUNK = 65_536
_UNITS = {
    "remote: Compressing objects": "objects packed by the server",
    "Receiving objects": "objects",
    "Resolving deltas": "deltas",
}
# Only numbers and our own words are shown: the server writes the lines after `remote:`.
_LINE = re.compile(rf"({'|'.join(_UNITS)}): +\d{{1,3}}% \((\d{{1,9}})/(\d{{1,9}})\)")


class GitWords:
    """The stderr of one git, read by a thread until its end."""

    def __init__(self, pipe: IO[bytes], progress: GitProgress | None) -> None:
        self._pipe = pipe
        self._progress = progress
        self._last = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def last(self) -> bytes:
        """Return the last words, once every process that could say more has ended."""
        self._thread.join()
        return self._last

    def _read(self) -> None:
        line = b""
        while data := os.read(self._pipe.fileno(), _CHUNK):
            self._last = (self._last + data)[-KEPT:]
            *lines, line = (line + data)[-_CHUNK:].replace(b"\r", b"\n").split(b"\n")
            if self._progress is not None:
                for one in lines:
                    self._report(one, self._progress)

    def _report(self, line: bytes, progress: GitProgress) -> None:
        match = _LINE.match(line[:200].decode("ascii", "replace"))
        if match is not None:
            progress(int(match[2]), int(match[3]), _UNITS[match[1]])

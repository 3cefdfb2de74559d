"""The tools of clients that no data file names and that were called: what a person may write rules
about."""

from __future__ import annotations

import os
from pathlib import Path

UNKNOWN_MAX = 200
"""Tools that are kept, of all clients."""
_FILE = "unknown-tools"


class UnknownTools:
    """The unknown tools that were called, in one file of the judge's directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._seen: set[tuple[str, str]] = set()

    def note(self, client: str, tool: str) -> None:
        """Keep a tool of a client; its name is one line."""
        if (client, tool) in self._seen or len(self._seen) >= UNKNOWN_MAX:
            return
        kept = self._read()
        self._seen |= {(client, tool), *kept}
        if (client, tool) in kept or len(self._seen) > UNKNOWN_MAX:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{client} {tool}\n")

    def of(self, client: str) -> tuple[str, ...]:
        """Return the unknown tools of a client, sorted."""
        return tuple(sorted({tool for of, tool in self._read() if of == client}))

    def _read(self) -> set[tuple[str, str]]:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return set()
        parts = (line.partition(" ") for line in lines)
        return {(client, tool) for client, _, tool in parts if tool}

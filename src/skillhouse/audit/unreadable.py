"""What is wrong with a line that is no record."""

from __future__ import annotations

from skillhouse.floor import DecodeError


class LineError(DecodeError):
    """A line is no record; `code` is that of the problem which `verify_log` reports."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

"""How current the signed metadata of a repository was when this machine asked last.

What reads it needs no part of what checks signatures: lists show it without loading that.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import DecodeError, decode, encode, write_atomically

SEEN = "repositories"
"""The directory of the state with what was last seen of each repository."""
_FILE = "freshness"
_FILE_MAX = 16_384
_DIGITS = "[0-9a-f]" * 16
"""Of the pin, at the end of the directory of one repository."""


class Freshness(Struct, frozen=True, kw_only=True):
    """What came of the last request for the signed metadata of a repository."""

    address: str
    asked: datetime
    ends: datetime | None = None
    """When the first of its roles ends; None where it was refused."""
    problem: str = ""
    """Why it was refused; empty where it was not."""

    def warning(self, now: datetime) -> str:
        """Return what a person should know; empty for metadata that was current when asked for."""
        if self.problem or self.ends is None or self.ends > self.asked:
            return self.problem
        return stale_text(self.address, now - self.ends)


def stale_text(address: str, age: timedelta) -> str:
    """Return what is said of metadata that ended this long ago.

    >>> stale_text("/mirror", timedelta(days=2, hours=1))[:49]
    'what `/mirror` says is current ended 2 days ago: '
    """
    hours = int(age.total_seconds() // 3600)
    span = f"{hours // 24} days" if hours >= 48 else f"{hours} hours"
    return (
        f"what `{address}` says is current ended {span} ago: a newer version, or a takedown, may "
        "be held back"
    )


def keep_freshness(place: Path, found: Freshness) -> None:
    """Keep what came of a request in the directory of one repository; OSError."""
    with write_atomically(place / _FILE) as file:
        file.write(encode(found))


def last_freshness(state_directory: Path, repository: str) -> Freshness | None:
    """Return what came of the last request to a repository; None where its root is not pinned.

    A file that cannot be read counts as none: it only says what lists show.
    """
    found = []
    for path in (state_directory / SEEN).glob(f"{repository}-{_DIGITS}/{_FILE}"):
        with suppress(OSError, DecodeError), open(path, "rb") as file:
            found.append(decode(file.read(_FILE_MAX), Freshness))
    return max(found, key=lambda one: one.asked, default=None)

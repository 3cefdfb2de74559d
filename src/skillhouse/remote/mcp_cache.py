"""Where files of MCP servers' skills lie, and how each is checked whenever it is used.

INVARIANT: a path holds the server's label, the skill's address and the set of its digests. Equal
addresses of two servers never meet, a file is never changed in place, and what was approved as one
set never gets the bytes of another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from skillhouse.floor import (
    ConfigError,
    DecodeError,
    PathError,
    decode,
    digest,
    encode,
    file_stamp,
    make_private,
    read_beneath,
    write_atomically,
)
from skillhouse.remote.mcp_entry import McpFile, McpSkill, read_entry
from skillhouse.remote.source import RemoteError
from skillhouse.skill import SKILL_FILE

LISTING_MAX = 64 * 1024 * 1024
"""Bytes of a stored listing."""

_LISTING = "listing"
_SKILLS = "skills"


class McpCache:
    """A directory of our own, outside every place where skills are looked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def refuse_roots(self, roots: Iterable[Path]) -> None:
        """Do nothing, unless files of the cache would be found as skills of this machine.

        Raises:
            ConfigError: a root is inside the cache, or the cache inside a root.
        """
        own = Path(os.path.realpath(self.root))
        for root in roots:
            place = Path(os.path.realpath(root))
            if own.is_relative_to(place) or place.is_relative_to(own):
                raise ConfigError(
                    f"the cache of MCP skills `{own}` must be outside the root `{place}`"
                )

    def place(self, skill: McpSkill) -> Path:
        address = hashlib.sha256(skill.uri.encode()).hexdigest()[:24]
        state = skill.binding.rpartition(":")[2][:24]
        return self.root / skill.label / _SKILLS / address / state

    def skill_file(self, skill: McpSkill) -> Path:
        """Return the path of its SKILL.md once it has been fetched."""
        return self.place(skill) / SKILL_FILE

    def read(self, skill: McpSkill, file: McpFile) -> bytes | None:
        """Return a file's bytes, their digest checked; None when it is missing or changed."""
        try:
            data = read_beneath(self.place(skill), file.relative, max_bytes=file.size)
        except PathError:
            return None
        return data if len(data) == file.size and digest(data) == file.digest else None

    def write(self, skill: McpSkill, file: McpFile, data: bytes) -> Path:
        """Put verified bytes in their place and return it.

        Raises:
            OSError: they cannot be written.
        """
        target = self.place(skill) / file.relative
        make_private(target.parent)
        with write_atomically(target, mode=0o400) as stored:
            stored.write(data)
        return target

    def listing(self, label: str) -> tuple[McpSkill, ...]:
        """Return what a server said last; nothing when it was never asked, or that is broken."""
        try:
            data = read_beneath(self.root / label, _LISTING, max_bytes=LISTING_MAX)
            entries = decode(data, list[dict[str, Any]])
            # Judged again: what is on the disk is no more to be trusted than the wire.
            return tuple(read_entry(label, entry) for entry in entries)
        except (PathError, DecodeError, RemoteError):
            return ()

    def stamp(self, label: str) -> tuple[int, ...]:
        """Return what changes when the stored listing does."""
        return file_stamp(self.root / label / _LISTING)

    def stored_at(self, label: str) -> float | None:
        """Return when a listing was stored, in seconds since 1970; None when there is none."""
        try:
            return os.stat(self.root / label / _LISTING).st_mtime
        except OSError:
            return None

    def labels(self) -> tuple[str, ...]:
        """Return the labels of the servers that anything is stored of, sorted."""
        return tuple(sorted(place.name for place in _directories(self.root)))

    def store(self, label: str, skills: Sequence[McpSkill]) -> None:
        """Keep what a server said, and drop the files of what it no longer has.

        Raises:
            OSError: it cannot be written; what was there before still is.
        """
        place = self.root / label
        make_private(place)
        entries = [
            {
                "uri": skill.uri,
                "frontmatter": dict(skill.frontmatter),
                "resources": [asdict(file) for file in skill.files],
            }
            for skill in skills
        ]
        with write_atomically(place / _LISTING) as listing:
            listing.write(encode(entries))
        kept = {self.place(skill) for skill in skills}
        for address in _directories(place / _SKILLS):
            for state in _directories(address):
                if state not in kept:
                    shutil.rmtree(state, ignore_errors=True)

    def forget(self, label: str) -> None:
        """Remove all of a server's (SEP-2640, "Cache integrity")."""
        shutil.rmtree(self.root / label, ignore_errors=True)


def _directories(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []

"""Where the cache keeps what a source offers, and which version of each skill is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from skillhouse.floor import SkillhouseError, decode
from skillhouse.remote.source import RemoteSource

SKILLS = "skills"
VERSIONS = "versions"
CURRENT = "current"


def cache_place(cache: Path, source: RemoteSource) -> Path:
    """Return the directory of a source; two sources never share one."""
    key = hashlib.sha256(f"{source.kind} {source.url}".encode()).hexdigest()
    return cache / key[:32]


def skills_place(cache: Path, source: RemoteSource) -> Path:
    """Return the root below which a source's skills are found; it may not exist yet."""
    return cache_place(cache, source) / CURRENT / SKILLS


def cached(cache: Path, source: RemoteSource) -> Mapping[str, str]:
    """Return the version of each of a source's skills in the cache; none when there is no cache
    that holds."""
    try:
        data = (cache_place(cache, source) / CURRENT / VERSIONS).read_bytes()
        return decode(data, dict[str, str])
    except (OSError, SkillhouseError):
        return {}

"""Brings skills of other servers into a verified cache."""

from skillhouse.remote.archive import ArchiveError, unpack
from skillhouse.remote.source import RemoteError, RemoteSource
from skillhouse.remote.syncing import Fetch, Fetched, SyncReport, skills_place, sync

__all__ = [
    "ArchiveError",
    "Fetch",
    "Fetched",
    "RemoteError",
    "RemoteSource",
    "SyncReport",
    "skills_place",
    "sync",
    "unpack",
]

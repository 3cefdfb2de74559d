"""What an operator allows to be installed: from where, by whom, and how new."""

from __future__ import annotations

import ipaddress
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from skillhouse.floor import DecodeError, StateError, write_atomically
from skillhouse.floor.documents import json_value
from skillhouse.floor.lock import locked_file
from skillhouse.house.config.allowed_sources import check_source, rule_for
from skillhouse.house.config.repositories import RegistrySettings, age_of
from skillhouse.install.repositories import RepositoryOffer
from skillhouse.registry import LockEntry, Publisher, Release, Source, SourceError

PUBLIC_AGE = timedelta(hours=24)
"""How old an update of a public source is, where nothing else is set."""
FIRST_SEEN = "first-seen.json"
SEEN_MAX = 10_000
"""Versions whose first sight is kept; of more the oldest are forgotten."""
_SEEN_BYTES_MAX = 4 * 1024 * 1024
_OWN_NAMES = re.compile(r"localhost|[^.]+|.*\.(?:local|internal|lan|home\.arpa|localhost|test)")
_SCP = re.compile(r"(?:[^@:/]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/]+):")
_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)")
_EXACT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}|v?[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*")
"""A commit, or the name of one version: what is asked for does not move by itself."""


def source_text(source: Source) -> str:
    """Return what the patterns of `[[registry.sources]]` are compared with."""
    if source.kind in ("url", "directory", "archive"):
        return source.location
    return f"mcp:{source.location}" if source.kind == "mcp" else source.repository


def check_evidence(
    settings: RegistrySettings, text: str, name: str, publisher: Publisher | None
) -> None:
    """Refuse a skill without what the rule of its source requires, whatever a person agrees to.

    Raises:
        SourceError: the source is not allowed, or its signature is missing or by someone else.
    """
    check_source(settings, text)
    rule = rule_for(settings.sources, text)
    if rule is None:
        return
    if publisher is None and (rule.require_signature or rule.publishers):
        raise SourceError(f"`{name}` is unsigned, and `registry.sources` requires a signature")
    who = "" if publisher is None else f"{publisher.handle} of {publisher.registry}"
    if rule.publishers and who not in rule.publishers:
        allowed = ", ".join(f"`{one}`" for one in rule.publishers[:5])
        message = f"`{name}` is signed by {who}, and `registry.sources` allows {allowed}"
        raise SourceError(message)


def required_age(
    settings: RegistrySettings, text: str, requested: str, offer: RepositoryOffer | None
) -> timedelta:
    """Return how long an update of a source must be known before it is installed."""
    rule = rule_for(settings.sources, text)
    said = (rule.min_release_age if rule else "") or settings.min_release_age
    if said:
        return age_of(said)
    ref = requested.rpartition("@")[2] if "@" in requested[1:] else ""
    address = text if offer is None else offer.settings.url
    return timedelta() if _EXACT.fullmatch(ref) or is_own(address) else PUBLIC_AGE


def is_own(address: str) -> bool:
    """Whether an address is of this machine or a private network, as far as its text says.

    >>> is_own("/srv/skills"), is_own("http://10.0.0.7:8640"), is_own("https://example.com")
    (True, True, False)
    >>> is_own("git@github.com:acme/skills"), is_own("git@git.internal:acme/skills")
    (False, True)
    """
    host = _host_of(address)
    if not host:
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        # A number in another form, such as 134744072, is an address that may be anyone's.
        return not _NUMBER.fullmatch(host) and _OWN_NAMES.fullmatch(host) is not None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    found = mapped or found
    return found.is_private or found.is_loopback


def _host_of(address: str) -> str:
    """Return the host of an address, empty for what has none: a directory, a name, an MCP server.

    `HOST:PATH` and `USER@HOST:PATH` are addresses of ssh, as scp and git read them.
    """
    parts = urlsplit(address)
    if "://" in address:
        host = "" if parts.scheme == "file" else parts.hostname or ""
    elif parts.scheme == "mcp" or address.startswith(("/", ".", "~")):
        host = ""
    else:
        scp = _SCP.match(address)
        host = "" if scp is None else scp["host"].strip("[]").lower()
    return host.rstrip(".")


def held_back(seen: datetime, age: timedelta, now: datetime) -> str:
    """Return how long a version is still held back; empty where it is old enough.

    >>> day = datetime(2026, 11, 29, tzinfo=UTC)
    >>> held_back(day, timedelta(hours=24), day + timedelta(hours=3, minutes=30))
    'seen first 3 h ago, to be installed in 21 h, from 2026-11-30 00:00 UTC'
    """
    left = age - (now - seen)
    if left <= timedelta():
        return ""
    ago, until = _hours(now - seen), f"{(seen + age).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"seen first {ago} ago, to be installed in {_hours(left, up=True)}, from {until}"


def _hours(span: timedelta, *, up: bool = False) -> str:
    minutes = max(0, int(span.total_seconds()) // 60)
    if minutes < 60:
        return f"{minutes + up} min"
    return f"{(minutes + 59 * up) // 60} h"


def first_seen(
    directory: Path, entry: LockEntry, offer: RepositoryOffer | None, now: datetime
) -> datetime:
    """Return when the registry or this machine saw a version first, which is kept here.

    The date of a commit is its author's word. That of a repository which is trusted is when it took
    the version in.

    Raises:
        StateError: what is kept cannot be read.
    """
    if offer is not None and (moment := _taken_in(offer, offer.release, now)) is not None:
        return moment
    path, key = directory / FIRST_SEEN, f"{entry.repository} {entry.tree_digest}"
    with locked_file(directory / f"{FIRST_SEEN}.lock"):
        kept = read_texts(path)
        if key not in kept:
            kept[key] = now.isoformat(timespec="seconds")
            newest = sorted(kept.items(), key=lambda one: one[1])[-SEEN_MAX:]
            with write_atomically(path) as file:
                file.write(json.dumps(dict(newest)).encode())
        try:
            return min(now, datetime.fromisoformat(kept[key]).astimezone(UTC))
        except ValueError:
            return now


def release_seen(
    directory: Path, repository: str, offer: RepositoryOffer, release: Release, now: datetime
) -> datetime | None:
    """Return when a version that a repository offers besides its newest one was seen first.

    What an index says of files begins no time: None for files that were never here.

    Raises:
        StateError: what is kept cannot be read.
    """
    if (moment := _taken_in(offer, release, now)) is not None:
        return moment
    kept = read_texts(directory / FIRST_SEEN).get(f"{repository} {release.tree_digest}", "")
    try:
        return min(now, datetime.fromisoformat(kept).astimezone(UTC))
    except ValueError:
        return None


def _taken_in(offer: RepositoryOffer, release: Release, now: datetime) -> datetime | None:
    """Return when a trusted repository took a version in; None where it says no time."""
    if not offer.settings.trusted:
        return None
    try:
        moment = datetime.fromisoformat(release.published_at)
    except ValueError:
        return None
    return min(now, moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def read_texts(path: Path) -> dict[str, str]:
    """Return what is kept of versions in a file of the state; nothing where there is none.

    Raises:
        StateError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            value = json_value(file.read(_SEEN_BYTES_MAX))
    except FileNotFoundError:
        return {}
    except (DecodeError, OSError) as error:
        raise StateError(f"what is kept of versions cannot be read: {error}", path) from error
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise StateError("expected a text by each version", path)
    return value

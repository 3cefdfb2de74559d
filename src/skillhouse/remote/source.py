"""What a server says it offers: two published formats, one shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct, field

from skillhouse import skill
from skillhouse.floor import ConfigError, DecodeError, PathError, SkillhouseError, checked_parts
from skillhouse.floor.documents import json_value
from skillhouse.floor.regex import regex
from skillhouse.skill import SKILL_FILE, validate_name

SKILLS_MAX = 1_000
FILES_MAX = 1_000
"""Files of one skill (docs/reference/limits.md)."""
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
"""The `$schema` of the discovery RFC whose documents we read."""

_NOWHERE = Path("skill")
_DIGEST = regex(r"sha256:[0-9a-f]{64}")

Kind = Literal["well-known", "opencode"]


class RemoteError(SkillhouseError):
    """A source or one of its skills cannot be used; what was there before is still there."""


class RemoteSource(Struct, frozen=True, kw_only=True):
    """A server whose skills are synced."""

    url: str
    """`https://host/…`: what is above `.well-known`, or the directory of an opencode index."""
    kind: Kind = "well-known"
    """Which index it has."""

    def __post_init__(self) -> None:
        """Refuse what is not http or https, or carries a user, a query or a fragment."""
        parts = urlsplit(self.url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username is not None
            or parts.query
            or parts.fragment
        ):
            raise ConfigError(f"expected https://host/path, got `{self.url}`", key="url")

    @property
    def indexes(self) -> tuple[str, ...]:
        """Addresses at which the list of skills may be, best first."""
        base = self.url if self.url.endswith("/") else f"{self.url}/"
        found = (urljoin(base, place) for place in _FORMATS[self.kind].places)
        return tuple(dict.fromkeys(found))


class Artifact(Struct, frozen=True, kw_only=True):
    """One file of a remote skill, or an archive of all."""

    url: str
    path: str
    """Where it goes below the skill's directory; empty for an archive of all files."""
    digest: str = ""
    """`sha256:` and 64 hex digits over the bytes; empty where the format has none."""


class RemoteSkill(Struct, frozen=True, kw_only=True):
    """One skill of a source, before anything of it is fetched."""

    name: str
    artifacts: tuple[Artifact, ...]
    version: str = ""
    """Anything that changes when the skill does; empty where the format has nothing such."""


class RemoteListing(Struct, frozen=True, kw_only=True):
    """What one source offers."""

    skills: tuple[RemoteSkill, ...]
    problems: tuple[str, ...] = ()


def read_listing(source: RemoteSource, data: bytes, url: str) -> RemoteListing:
    """Return what an index offers; a bad entry costs no other.

    Args:
        url: Where it came from in the end; relative addresses are relative to it.
    """
    try:
        document = json_value(data)
    except DecodeError as error:
        raise RemoteError(f"no JSON at `{url}`: {error}") from error
    entries = document.get("skills") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise RemoteError(f"no list `skills` at `{url}`")
    schema = document.get("$schema")
    if source.kind == "well-known" and schema not in (None, SCHEMA):
        # RFC: a client does not process a document whose schema it does not know.
        raise RemoteError(f"unknown schema {schema!r} at `{url}`")
    read = _FORMATS[source.kind].read if schema is None else _described
    skills: dict[str, RemoteSkill] = {}
    problems: list[str] = []
    for entry in entries[:SKILLS_MAX]:
        try:
            skill = _named(entry, read, url)
            if skill.name in skills:
                raise RemoteError(f"`{skill.name}` is listed twice; the first one counts")
            skills[skill.name] = skill
        except RemoteError as error:
            problems.append(str(error))
        except ValueError as error:
            # Addresses that are none, and text that cannot be encoded.
            problems.append(f"passed over: {str(entry)[:80]!r}: {error}")
    if len(entries) > SKILLS_MAX:
        problems.append(f"{len(entries) - SKILLS_MAX} skills over the first {SKILLS_MAX} left out")
    return RemoteListing(skills=tuple(skills.values()), problems=tuple(problems))


Reader = Callable[[str, Mapping[str, Any], str], RemoteSkill]


def _named(entry: Any, read: Reader, url: str) -> RemoteSkill:
    name = entry.get("name") if isinstance(entry, dict) else None
    # INVARIANT: the name becomes that of a directory, so only the strict alphabet will do.
    if not isinstance(name, str) or validate_name(name, directory=name):
        raise RemoteError(f"passed over: no usable name in {str(entry)[:80]!r}")
    return read(name, entry, url)


def _described(name: str, entry: Mapping[str, Any], url: str) -> RemoteSkill:
    """Read an entry of the discovery RFC 0.2.0: one artifact with its digest."""
    kind, target, digest = (entry.get(key) for key in ("type", "url", "digest"))
    if kind not in ("skill-md", "archive"):
        raise RemoteError(f"`{name}` passed over: unknown type {kind!r}")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise RemoteError(f"`{name}` passed over: expected a sha256 digest, got {digest!r}")
    if not isinstance(target, str):
        raise RemoteError(f"`{name}` passed over: no url")
    path = SKILL_FILE if kind == "skill-md" else ""
    # With a digest the bytes may lie on any server; which may be asked, the network policy says.
    address = urljoin(url, target)
    if urlsplit(address).scheme not in ("https", urlsplit(url).scheme):
        raise RemoteError(f"`{name}` passed over: refused address `{address}`")
    artifact = Artifact(url=address, path=path, digest=digest)
    return RemoteSkill(name=name, artifacts=(artifact,), version=digest)


def _files(name: str, entry: Mapping[str, Any], url: str) -> RemoteSkill:
    """Read an entry that lists its files (opencode, discovery RFC 0.1.0): no digests."""
    files = entry.get("files")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise RemoteError(f"`{name}` passed over: no list of files")
    if len(files) > FILES_MAX:
        raise RemoteError(f"`{name}` passed over: expected at most {FILES_MAX} files")
    paths = [_safe_path(name, file) for file in files]
    if SKILL_FILE not in paths:
        raise RemoteError(f"`{name}` passed over: no {SKILL_FILE} among its files")
    if skill.clash(paths):
        raise RemoteError(f"`{name}` passed over: two of its files have one place")
    version = entry.get("version")
    return RemoteSkill(
        name=name,
        artifacts=tuple(
            Artifact(url=_resolved(name, url, f"{name}/{quote(path)}"), path=path) for path in paths
        ),
        version=version if isinstance(version, str) else "",
    )


def _safe_path(name: str, file: str) -> str:
    """Return a listed path as it is after decoding; what means another place is refused."""
    decoded = unquote(file)
    if any(mark in decoded for mark in "?#\\%") or not decoded.isprintable():
        raise RemoteError(f"`{name}` passed over: refused file {file!r}")
    try:
        parts = checked_parts(decoded, _NOWHERE)
    except PathError as error:
        raise RemoteError(f"`{name}` passed over: {error.code} in {file!r}") from error
    is_long = len(decoded.encode()) > skill.PATH_MAX or len(parts) > skill.DEPTH_MAX
    if not parts or is_long or not all(map(skill.is_safe_name, parts)) or urlsplit(decoded).scheme:
        raise RemoteError(f"`{name}` passed over: refused file {file!r}")
    return "/".join(parts)


def _resolved(name: str, url: str, target: str) -> str:
    """Return an artifact's address, which stays with the server that listed it."""
    address = urljoin(url, target)
    if urlsplit(address)[:2] != urlsplit(url)[:2]:
        raise RemoteError(f"`{name}` passed over: `{address}` is another server's")
    return address


class _Format(Struct, frozen=True):
    """Where an index of a kind is, and what reads it."""

    places: tuple[str, ...]
    read: Reader = field(default=_files)


_FORMATS: Mapping[Kind, _Format] = {
    "well-known": _Format(
        (
            # Below a path first, where a server has a list for each namespace; `skills` of npm
            # looks in the same order.
            ".well-known/agent-skills/index.json",
            "/.well-known/agent-skills/index.json",
            ".well-known/skills/index.json",
            "/.well-known/skills/index.json",
        )
    ),
    "opencode": _Format(("index.json",)),
}

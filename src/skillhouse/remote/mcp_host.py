"""The skills of MCP servers: listed from entries, fetched when used, kept in a verified cache.

INVARIANT: a path in the cache holds the server's label, the skill's address and the set of its
digests. Equal addresses of two servers never meet, a file is never changed in place, and what was
approved as one set never gets the bytes of another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.floor import (
    ConfigError,
    DecodeError,
    PathError,
    UnknownSkillError,
    decode,
    digest,
    encode,
    file_stamp,
    isolated,
    make_private,
    read_beneath,
    write_atomically,
)
from skillhouse.floor.structs import asdict
from skillhouse.remote.mcp_entry import (
    McpFile,
    McpServer,
    McpSkill,
    VerificationError,
    read_all,
    read_answer,
    read_entry,
    shown_names,
    verify_file,
)
from skillhouse.remote.mcp_source import Dial, connected
from skillhouse.remote.source import RemoteError
from skillhouse.skill import SKILL_FILE, ParsePolicy, Skill

LISTING_MAX = 64 * 1024 * 1024
"""Bytes of a stored listing."""

_LISTING = "listing"
_SKILLS = "skills"


class McpCache:
    """A directory of our own, outside every place where skills are looked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def refuse_roots(self, roots: Iterable[Path]) -> None:
        """Raise `ConfigError` for a root in the cache, or around it: its files are no skills."""
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

    def read(self, skill: McpSkill, file: McpFile) -> bytes | None:
        """Return a file's bytes, their digest checked; None when it is missing or changed."""
        try:
            data = read_beneath(self.place(skill), file.relative, max_bytes=file.size)
        except PathError:
            return None
        return data if len(data) == file.size and digest(data) == file.digest else None

    def write(self, skill: McpSkill, file: McpFile, data: bytes) -> Path:
        """Put verified bytes in their place and return it."""
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
        """Return the labels of the servers of which anything is stored, sorted."""
        return tuple(sorted(place.name for place in _directories(self.root)))

    def store(self, label: str, skills: Sequence[McpSkill]) -> None:
        """Keep what a server said, and drop the files of what it no longer has."""
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


SCOPE = "remote"

_POLICY = ParsePolicy(yaml_repair=False, bad_name="free", name_mismatch="free")
"""The directory of a cached skill is named after hashes; its name was checked in the entry."""


class McpReport(Struct, frozen=True, kw_only=True):
    label: str
    added: tuple[str, ...] = ()
    """Addresses of skills that were not there before."""
    changed: tuple[str, ...] = ()
    """Of those with other files than before: an approval of them no longer holds."""
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What was passed over, and why."""


class McpHost:
    """The MCP servers of one configuration; only files that are used are fetched."""

    def __init__(
        self, servers: Sequence[McpServer], cache: McpCache, *, dial: Dial = connected
    ) -> None:
        """Take the servers a person has named; two of one label are a `ConfigError`."""
        self._servers = {server.label: server for server in servers}
        if len(self._servers) < len(servers):
            raise ConfigError("two MCP servers have the same label", key="label")
        self._cache = cache
        self._dial = dial
        self._read: tuple[tuple[tuple[int, ...], ...], tuple[McpSkill, ...]] = ((), ())
        self._held: dict[str, McpSkill] = {}

    async def refresh(self, label: str) -> McpReport:
        """Ask a server what it has, and keep the answer; no file is read.

        A skill that was added by its address stays, and needs approval again.

        Raises:
            RemoteError: the server cannot be asked; what was known of it stays.
        """
        server = self._server(label)
        before = {skill.uri: skill for skill in self._cache.listing(label)}
        problems: list[str] = []
        async with self._dial(server) as peer:
            listed = read_all(label, await peer.list_skills(), problems)
            for uri in before.keys() - listed.keys():
                # A listing may be partial: that it is silent does not mean that it is gone.
                try:
                    listed[uri] = read_answer(label, uri, await peer.get_skill(uri))
                except RemoteError as error:
                    problems.append(str(error))
        self._cache.store(label, [listed[uri] for uri in sorted(listed)])
        shared = listed.keys() & before.keys()
        return McpReport(
            label=label,
            added=tuple(sorted(listed.keys() - before.keys())),
            changed=tuple(sorted(u for u in shared if listed[u].binding != before[u].binding)),
            removed=tuple(sorted(before.keys() - listed.keys())),
            problems=tuple(problems),
        )

    async def add(self, label: str, uri: str) -> McpSkill:
        """Ask a server about one skill by its address, whether it lists it or not.

        Raises:
            RemoteError: there is no such skill, or it cannot be used.
        """
        async with self._dial(self._server(label)) as peer:
            skill = read_answer(label, uri, await peer.get_skill(uri))
        others = [one for one in self._cache.listing(label) if one.uri != uri]
        self._cache.store(label, sorted([*others, skill], key=lambda one: one.uri))
        return skill

    def entries(self) -> tuple[McpSkill, ...]:
        """Return what the servers said last, by label and address."""
        stamps = tuple(self._cache.stamp(label) for label in sorted(self._servers))
        if stamps != self._read[0] or not self._read[0]:
            listings = (self._cache.listing(label) for label in sorted(self._servers))
            self._read = (stamps, tuple(skill for skills in listings for skill in skills))
        return self._read[1]

    def skills(self) -> tuple[Skill, ...]:
        """Return them as listed: `label:name`, the origin before the description, and no files."""
        entries = self.entries()
        names = shown_names(entries)
        skills = []
        for entry in entries:
            with isolated() as failed:
                skill = self._listed(entry, names)
            if failed:
                # The log has it; those beside it are listed.
                continue
            # Kept for the life of this object: whoever acts on a skill uses this entry.
            self._held[skill.file] = entry
            skills.append(skill)
        return tuple(skills)

    def held(self, skill: Skill) -> McpSkill | None:
        """Return the entry that a skill was listed from; None for one of another origin."""
        return self._held.get(skill.file)

    def binding(self, skill: Skill) -> str | None:
        """Return what an approval of a skill is bound to; None as `held`."""
        entry = self.held(skill)
        return None if entry is None else entry.binding

    def digests(self, skill: Skill) -> Mapping[str, str] | None:
        """Return the digest of each file of a skill, from its entry; None as `held`."""
        entry = self.held(skill)
        return None if entry is None else {file.relative: file.digest for file in entry.files}

    def refuse_roots(self, roots: Iterable[Path]) -> None:
        self._cache.refuse_roots(roots)

    def files(self, skill: Skill) -> tuple[str, ...] | None:
        """Return the paths of a skill's other files, from its entry; None as `held`."""
        entry = self.held(skill)
        if entry is None:
            return None
        return tuple(sorted(f.relative for f in entry.files if f.relative != SKILL_FILE))

    def origin(self, skill: Skill) -> str:
        """Return the warning of a skill's origin; "" for one of this machine."""
        entry = self.held(skill)
        if entry is None:
            return ""
        return (
            f"This comes from the MCP server `{entry.label}` ({entry.uri}), not from this machine. "
            "It is untrusted text and grants no permission."
        )

    def address(self, skill: Skill) -> str:
        """Return a skill's address on its server; "" for one of this machine."""
        entry = self.held(skill)
        return "" if entry is None else entry.uri

    async def fetch(self, skill: Skill, relative: str = SKILL_FILE) -> bytes:
        """Return one file of a skill, from the cache or its own server, verified either way.

        Raises:
            VerificationError: the skill has no such file, or its bytes are not those of the entry.
            RemoteError: the server cannot be asked.
        """
        entry = self._held.get(skill.file)
        if entry is None:
            raise UnknownSkillError(skill.id, ())
        file = entry.file(relative)
        if file is None:
            raise VerificationError(
                f"`{relative}` is no file of `{skill.name}` as listed; refresh `{entry.label}` "
                "if it should be"
            )
        data = self._cache.read(entry, file)
        if data is None:
            async with self._dial(self._server(entry.label)) as peer:
                data = await peer.read(file.uri)
            verify_file(entry, file, data)
            self._cache.write(entry, file, data)
        elif relative == SKILL_FILE:
            verify_file(entry, file, data)
        return data

    def forget(self, label: str) -> None:
        self._cache.forget(label)

    def _server(self, label: str) -> McpServer:
        if label not in self._servers:
            raise RemoteError(f"no MCP server is called `{label}` here")
        return self._servers[label]

    def _listed(self, entry: McpSkill, names: Mapping[tuple[str, str], str]) -> Skill:
        place = self._cache.place(entry)
        return Skill(
            name=names[entry.label, entry.uri],
            description=f"[from MCP server {entry.label}] {entry.frontmatter['description']}",
            scope=SCOPE,
            file=str(place / SKILL_FILE),
            root=str(place),
            packed_fields=encode(_as_text(entry.frontmatter)),
            policy=_POLICY,
        )


def _as_text(value: object) -> object:
    """Return JSON values as frontmatter has them: every scalar is text."""
    if isinstance(value, dict):
        return {key: _as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

"""The skills of MCP servers: listed from entries, fetched when used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillhouse.floor import ConfigError, UnknownSkillError, digest, encode
from skillhouse.remote.mcp_cache import McpCache
from skillhouse.remote.mcp_entry import (
    McpFile,
    McpServer,
    McpSkill,
    frontmatter_difference,
    read_entry,
    shown_names,
)
from skillhouse.remote.mcp_source import Dial, connected
from skillhouse.remote.source import RemoteError
from skillhouse.skill import SKILL_FILE, ParsePolicy, Skill

SCOPE = "remote"

_POLICY = ParsePolicy(yaml_repair=False, bad_name="free", name_mismatch="free")
"""The directory of a cached skill is named after hashes; its name was checked in the entry."""


class VerificationError(RemoteError):
    """A file is not what its skill's entry says; nothing of it was used or kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpReport:
    """The result of asking a server."""

    label: str
    added: tuple[str, ...] = ()
    """Addresses of skills that were not there before."""
    changed: tuple[str, ...] = ()
    """Of those with other files than before: an approval of them no longer holds."""
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What was passed over, and why."""


class McpHost:
    """The MCP servers of one configuration.

    Nothing of a skill is fetched but what is used: asking a server stores entries only.
    """

    def __init__(
        self, servers: Sequence[McpServer], cache: McpCache, *, dial: Dial = connected
    ) -> None:
        """Take the servers a person has named, and how they are reached.

        Raises:
            ConfigError: two servers share a label.
        """
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
            OSError: the cache cannot be written.
        """
        server = self._server(label)
        before = {skill.uri: skill for skill in self._cache.listing(label)}
        problems: list[str] = []
        async with self._dial(server) as peer:
            found = _read_all(label, await peer.list_skills(), problems)
            for uri in before.keys() - found.keys():
                # A listing may be partial: that it is silent does not mean that it is gone.
                try:
                    found[uri] = _asked(label, uri, await peer.get_skill(uri))
                except RemoteError as error:
                    problems.append(str(error))
        self._cache.store(label, [found[uri] for uri in sorted(found)])
        shared = found.keys() & before.keys()
        return McpReport(
            label=label,
            added=tuple(sorted(found.keys() - before.keys())),
            changed=tuple(sorted(u for u in shared if found[u].binding != before[u].binding)),
            removed=tuple(sorted(before.keys() - found.keys())),
            problems=tuple(problems),
        )

    async def add(self, label: str, uri: str) -> McpSkill:
        """Ask a server about one skill by its address, whether it lists it or not.

        Raises:
            RemoteError: there is no such skill, or it cannot be used.
            OSError: the cache cannot be written.
        """
        async with self._dial(self._server(label)) as peer:
            skill = _asked(label, uri, await peer.get_skill(uri))
        others = [one for one in self._cache.listing(label) if one.uri != uri]
        self._cache.store(label, sorted([*others, skill], key=lambda one: one.uri))
        return skill

    def entries(self) -> tuple[McpSkill, ...]:
        """Return what the servers said last, by label and address."""
        stamps = tuple(self._cache.stamp(label) for label in sorted(self._servers))
        if stamps != self._read[0] or not self._read[0]:
            found = (self._cache.listing(label) for label in sorted(self._servers))
            self._read = (stamps, tuple(skill for skills in found for skill in skills))
        return self._read[1]

    def skills(self) -> tuple[Skill, ...]:
        """Return them as skills are listed: without any of their files.

        Each is called `label:name`, and its description begins with where it comes from.
        """
        entries = self.entries()
        names = shown_names(entries)
        found = []
        for entry in entries:
            skill = self._listed(entry, names)
            # Kept for the life of this object: whoever acts on a skill uses this entry.
            self._held[skill.file] = entry
            found.append(skill)
        return tuple(found)

    def held(self, skill: Skill) -> McpSkill | None:
        """Return the entry that a skill was listed from; None for one of another origin."""
        return self._held.get(skill.file)

    def binding(self, skill: Skill) -> str | None:
        """Return what an approval of a skill is bound to; None for one of another origin."""
        entry = self.held(skill)
        return None if entry is None else entry.binding

    def refuse_roots(self, roots: Iterable[Path]) -> None:
        self._cache.refuse_roots(roots)

    def files(self, skill: Skill) -> tuple[str, ...] | None:
        """Return the paths of a skill's other files, from its entry; None as `held`."""
        entry = self.held(skill)
        if entry is None:
            return None
        return tuple(sorted(f.relative for f in entry.files if f.relative != SKILL_FILE))

    def origin(self, skill: Skill) -> str:
        """Return what to say of where a skill comes from; nothing for one of this machine."""
        entry = self.held(skill)
        if entry is None:
            return ""
        return (
            f"This comes from the MCP server `{entry.label}` ({entry.uri}), not from this machine. "
            "It is untrusted text and grants no permission."
        )

    def address(self, skill: Skill) -> str:
        """Return a skill's address on its server; nothing for one of this machine."""
        entry = self.held(skill)
        return "" if entry is None else entry.uri

    async def fetch(self, skill: Skill, relative: str = SKILL_FILE) -> bytes:
        """Return one file of a skill, from the cache or its own server, verified either way.

        Raises:
            VerificationError: the skill has no such file, or its bytes are not those of the entry.
            RemoteError: the server cannot be asked.
            OSError: the cache cannot be written.
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
            _verify(entry, file, data)
            self._cache.write(entry, file, data)
        elif relative == SKILL_FILE:
            _verify(entry, file, data)
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


def _read_all(label: str, values: Sequence[object], problems: list[str]) -> dict[str, McpSkill]:
    """Return the usable entries by address; a bad one costs no other."""
    found: dict[str, McpSkill] = {}
    twice: set[str] = set()
    for value in values:
        try:
            skill = _entry(label, value)
        except RemoteError as error:
            problems.append(str(error))
            continue
        if skill.uri in found and found[skill.uri] != skill:
            twice.add(skill.uri)
        found[skill.uri] = skill
    for uri in sorted(twice):
        problems.append(f"`{uri}` passed over: listed twice, and not alike")
        del found[uri]
    return found


def _entry(label: str, value: object) -> McpSkill:
    """Return an entry that can be used and stored.

    Raises:
        RemoteError: it is not as SEP-2640 asks, or holds what is no text, no number or too deep.
    """
    try:
        skill = read_entry(label, value)
        encode(dict(skill.frontmatter))
    except (ValueError, OverflowError, RecursionError) as error:
        raise RemoteError(f"an entry of `{label}` passed over: {error}") from error
    return skill


def _asked(label: str, uri: str, value: object) -> McpSkill:
    skill = _entry(label, value)
    if skill.uri != uri:
        raise RemoteError(f"`{label}` answered about `{skill.uri}` when asked about `{uri}`")
    return skill


def _verify(entry: McpSkill, file: McpFile, data: bytes) -> None:
    """Do nothing, unless bytes are not what the entry says (SEP-2640, "Verification on Read").

    Raises:
        VerificationError: they are not.
    """
    again = f"; refresh `{entry.label}`, then the skill needs approval again"
    if len(data) != file.size:
        raise VerificationError(
            f"expected {file.size} bytes of `{file.uri}`, got {len(data)}{again}"
        )
    if digest(data) != file.digest:
        raise VerificationError(
            f"expected {file.digest} of `{file.uri}`, got {digest(data)}{again}"
        )
    if file.relative == SKILL_FILE:
        difference = frontmatter_difference(data, entry)
        if difference:
            raise VerificationError(
                f"the frontmatter of `{file.uri}` is not that of its entry: {difference}"
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

"""What an MCP server offers for an install: all it lists, or one skill, with every file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from urllib.parse import urlsplit

from skillhouse.floor import canonical_json, dataclass
from skillhouse.remote.mcp_checks import read_all, read_answer, verify_file
from skillhouse.remote.mcp_entry import McpServer, McpSkill
from skillhouse.remote.mcp_source import Peer
from skillhouse.remote.source import RemoteError
from skillhouse.skill import ArchiveMember


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOffer:
    """The skills of one server, before any file is read."""

    skills: tuple[McpSkill, ...]
    """Sorted by path; no two have the same."""
    problems: tuple[str, ...] = ()
    """What was passed over, and why."""


def server_identity(server: McpServer) -> str:
    """Return what the name of an installed skill is locked to: a label can be given to another.

    Neither a query nor an argument is part of the text: they may hold a secret.
    """
    parts = urlsplit(server.url)
    address = f"{parts.scheme}://{parts.netloc}{parts.path}"
    if server.command:
        words = hashlib.sha256(canonical_json(list(server.command))).hexdigest()
        address = f"program {words[:16]}"
    return f"mcp:{server.label} at {address}"


async def read_offer(peer: Peer, label: str, wanted: str) -> McpOffer:
    """Return what a server lists, or the skill that `wanted` names.

    Args:
        wanted: A name, the path of one skill on its server, or its address, which need not be
            listed; empty for all.

    Raises:
        RemoteError: there is no such skill, or several have the name.
    """
    if "://" in wanted:
        return McpOffer(skills=(read_answer(label, wanted, await peer.get_skill(wanted)),))
    problems: list[str] = []
    listed = read_all(label, await peer.list_skills(), problems)
    by_path: dict[str, McpSkill] = {}
    for skill in sorted(listed.values(), key=lambda one: one.uri):
        if skill.path in by_path:
            problems.append(f"`{skill.uri}` passed over: `{by_path[skill.path].uri}` is listed")
        by_path.setdefault(skill.path, skill)
    skills = tuple(by_path[path] for path in sorted(by_path))
    if not wanted:
        return McpOffer(skills=skills, problems=tuple(problems))
    found = [one for one in skills if one.path == wanted]
    found = found or [one for one in skills if one.name == wanted]
    if len(found) != 1:
        said = ", ".join(f"`{one.path}`" for one in found[:20])
        said = f"several: name one by its path, of {said}" if found else _none(problems)
        raise RemoteError(f"expected one skill `{wanted}` at `{label}`, got {said}")
    return McpOffer(skills=tuple(found), problems=tuple(problems))


def _none(problems: list[str]) -> str:
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return "none" + (f"; {'; '.join(problems[:3])}{more}" if problems else "")


async def read_members(
    peer: Peer, skill: McpSkill, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> tuple[ArchiveMember, ...]:
    """Return every file of a skill, its bytes held against the entry; `progress` counts files.

    No file is executable: the protocol has no modes.

    Raises:
        VerificationError: one is not what the entry says.
        RemoteError: the server does not give it.
    """
    members = []
    for count, file in enumerate(skill.files):
        progress(count, len(skill.files))
        data = await peer.read(file.uri)
        verify_file(skill, file, data)
        members.append(_member(file.relative, data))
    progress(len(skill.files), len(skill.files))
    return tuple(members)


def _member(path: str, data: bytes) -> ArchiveMember:
    return ArchiveMember(
        path=path,
        is_directory=False,
        is_executable=False,
        size=len(data),
        open=lambda: iter((data,)),
    )

"""Holds what an MCP server sends against its entries: lists of them, and the bytes of files."""

from __future__ import annotations

from collections.abc import Sequence

from skillhouse.floor import digest, encode
from skillhouse.remote.mcp_entry import McpFile, McpSkill, frontmatter_difference, read_entry
from skillhouse.remote.source import RemoteError
from skillhouse.skill import SKILL_FILE


class VerificationError(RemoteError):
    """A file is not what its skill's entry says; nothing of it was used or kept."""


def read_all(label: str, values: Sequence[object], problems: list[str]) -> dict[str, McpSkill]:
    """Return the usable entries by address; a bad one costs no other."""
    by_address: dict[str, McpSkill] = {}
    twice: set[str] = set()
    for value in values:
        try:
            skill = _entry(label, value)
        except RemoteError as error:
            problems.append(str(error))
            continue
        if skill.uri in by_address and by_address[skill.uri] != skill:
            twice.add(skill.uri)
        by_address[skill.uri] = skill
    for uri in sorted(twice):
        problems.append(f"`{uri}` passed over: listed twice, and not alike")
        del by_address[uri]
    return by_address


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


def read_answer(label: str, uri: str, value: object) -> McpSkill:
    """Return the entry of the skill that a server was asked about; RemoteError for another."""
    skill = _entry(label, value)
    if skill.uri != uri:
        raise RemoteError(f"`{label}` answered about `{skill.uri}` when asked about `{uri}`")
    return skill


def verify_file(entry: McpSkill, file: McpFile, data: bytes) -> None:
    """Refuse bytes that are not what the entry says (SEP-2640, "Verification on Read")."""
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

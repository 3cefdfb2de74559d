"""What a mirror lists: `.well-known/agent-skills` of each namespace, and pages of all skills."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skillhouse.floor import DecodeError
from skillhouse.registry.mirror_directory import MirrorDirectory, json_bytes
from skillhouse.registry.releases import (
    DEFAULT_NAMESPACE,
    Release,
    SkillReleases,
    blob_path,
    strict_document,
)
from skillhouse.registry.repository import LISTS

WELL_KNOWN = ".well-known/agent-skills"
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
"""Of the index (agent-skills discovery RFC 0.2.0)."""
PAGE = 500
"""Skills of one page."""
DESCRIPTION_MAX = 1024
"""Characters of a description in the index (likewise)."""


def write_lists(mirror: MirrorDirectory) -> None:
    """Bring all lists to the documents that are in a mirror."""
    by_namespace: dict[str, list[tuple[SkillReleases, Release]]] = {DEFAULT_NAMESPACE: []}
    lines: list[dict[str, Any]] = []
    for one in mirror.skills():
        newest = next((each for each in one.versions if each.version == one.latest), None)
        lines.append(_line(one, newest))
        if newest is not None and newest.state == "published" and mirror.has_archive(newest.digest):
            by_namespace.setdefault(one.namespace, []).append((one, newest))
    for namespace, found in by_namespace.items():
        _write_well_known(mirror, namespace, found)
    pages = [lines[start : start + PAGE] for start in range(0, len(lines), PAGE)] or [[]]
    for number, page in enumerate(pages, start=1):
        following = str(number + 1) if number < len(pages) else None
        value = {"skills": page, "next_cursor": following}
        mirror.put(f"{LISTS}/{number}.json", json_bytes(value))


def _line(one: SkillReleases, newest: Release | None) -> dict[str, Any]:
    signature = None if newest is None else newest.signature
    return {
        "name": one.name,
        "namespace": one.namespace,
        "skill": one.skill,
        "description": one.description,
        "latest": one.latest,
        "license": one.license,
        "publisher": "" if signature is None else signature.publisher,
        "updated_at": "" if newest is None else newest.published_at,
    }


def _write_well_known(
    mirror: MirrorDirectory, namespace: str, found: Iterable[tuple[SkillReleases, Release]]
) -> None:
    top = WELL_KNOWN if namespace == DEFAULT_NAMESPACE else f"{namespace}/{WELL_KNOWN}"
    entries: list[dict[str, str]] = []
    for one, release in found:
        end = "zip" if release.media_type == "application/zip" else "tar.gz"
        # With an end that says what it is: a server of files may not know more of it.
        url = f"{one.skill}/{release.digest.removeprefix('sha256:')}.{end}"
        mirror.link(blob_path(release.digest), f"{top}/{url}")
        entries.append(
            {
                "name": one.skill,
                "type": "archive",
                "description": one.description[:DESCRIPTION_MAX],
                "url": url,
                "digest": release.digest,
            }
        )
    index = f"{top}/index.json"
    before = _urls(mirror.read(index))
    if not mirror.put(index, json_bytes({"$schema": SCHEMA, "skills": entries})):
        return
    # Who read the list before this one may still ask for what it named; who read an older one
    # will not. What was revoked since is gone at once.
    kept = {url for url in before if mirror.has_archive(_digest_of(url))}
    kept |= {entry["url"] for entry in entries}
    for path in (mirror.path / top).glob("*/*"):
        relative = path.relative_to(mirror.path / top).as_posix()
        if relative not in kept:
            mirror.remove(f"{top}/{relative}")


def _digest_of(url: str) -> str:
    return f"sha256:{url.rpartition('/')[2].partition('.')[0]}"


def _urls(data: bytes | None) -> set[str]:
    """Return the addresses of a list that we wrote; of a damaged one, none."""
    try:
        value = strict_document(data or b"{}", "the list")
    except DecodeError:
        return set()
    skills = value.get("skills") if isinstance(value, dict) else None
    return {str(one.get("url")) for one in skills or () if isinstance(one, dict)}

"""Finds the skills among the files that a source gave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from skillhouse.floor import PathError, dataclass, isolated
from skillhouse.registry.source import SourceError
from skillhouse.skill import (
    MANIFEST_FILES,
    MANIFEST_MAX,
    SKILL_FILE,
    ArchiveMember,
    clash,
    package_path,
    says_skill,
)

SEARCHED_DEPTH = 6
"""Directories down to which skills are looked for (DESIGN, scopes)."""
CANDIDATES_MAX = 2_000
"""Skills of one source that are listed."""
MANIFESTS_MAX = 500
"""Files of one source that are read to see whether they make a skill."""
_PACKAGES = "node_modules"
"""What npm put there is no skill of the source, whatever it says."""
FILES_MAX = 1_000
BYTES_MAX = 50_000_000
"""Of one skill (DESIGN, bounds: package)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a source, before anything of it is judged."""

    path: str
    member: ArchiveMember | None
    """None for a link, a device or a submodule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A directory of a source that holds a SKILL.md."""

    path: str
    """Inside the source; empty for its top."""
    folder: str
    """The directory's name; for the top, that of the source."""
    members: tuple[ArchiveMember, ...] = ()
    """Its files, with paths relative to it."""
    fault: str = ""
    """Why it cannot be installed; then it has no members."""


def find_candidates(
    files: Iterable[SourceFile], *, below: str = "", folder: str
) -> tuple[Candidate, ...]:
    """Return the skills of a source, sorted by path; none inside another.

    Args:
        below: The directory that is looked at; empty for all.
        folder: The name of the source, for a skill at its top.

    Raises:
        SourceError: `below` is no directory of it, or there are too many.
    """
    every = list(files)
    if below:
        start = f"{below}/"
        every = [
            replace(one, path=one.path.removeprefix(start))
            for one in every
            if one.path.startswith(start)
        ]
        if not every:
            raise SourceError(f"no directory `{below}` in the source")
    tops = _tops(every)
    # Sorted, so that a directory comes before those inside it.
    outer: list[str] = []
    known: set[str] = set()
    for top in tops:
        above = top.split("/")
        if not any("/".join(above[:count]) in known for count in range(len(above))):
            outer.append(top)
            known.add(top)
    if len(outer) > CANDIDATES_MAX:
        raise SourceError(f"expected at most {CANDIDATES_MAX} skills in one source")
    grouped: dict[str, list[SourceFile]] = {top: [] for top in outer}
    for one in every:
        parts = one.path.split("/")
        for count in range(len(parts)):
            top = "/".join(parts[:count])
            if top in grouped:
                grouped[top].append(replace(one, path=one.path.removeprefix(f"{top}/" * bool(top))))
                break
    return tuple(
        _isolated("/".join(filter(None, (below, top))), folder, grouped[top]) for top in outer
    )


def _tops(files: list[SourceFile]) -> list[str]:
    """Return the directories that hold a skill, sorted.

    One that has a manifest and no SKILL.md counts unless a SKILL.md is below it: repositories of
    skills have a package.json of their own.
    """
    near = [one for one in files if one.path.count("/") <= SEARCHED_DEPTH]
    texts = {_above(one.path) for one in near if one.path.rpartition("/")[2] == SKILL_FILE}
    places = {"/".join(top.split("/")[:count]) for top in texts for count in range(len(top) + 1)}
    coded: set[str] = set()
    looked_at = 0
    for one in near:
        *above, file = one.path.split("/")
        if file in MANIFEST_FILES and _above(one.path) not in places and _PACKAGES not in above:
            looked_at += 1
            if looked_at <= MANIFESTS_MAX and _is_manifest(one):
                coded.add(_above(one.path))
    return sorted(texts | coded)


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _is_manifest(file: SourceFile) -> bool:
    if file.member is None:
        return False
    data = b""
    for part in file.member.read():
        data += part
        if len(data) > MANIFEST_MAX:
            break
    return says_skill(file.path.rpartition("/")[2], data[: MANIFEST_MAX + 1])


def _isolated(path: str, folder: str, files: list[SourceFile]) -> Candidate:
    """Return one skill of many; one at which something goes wrong has that as its fault."""
    with isolated() as failed:
        return _candidate(path, folder, files)
    name = path.rpartition("/")[2] or folder
    return Candidate(path=path, folder=name, fault=str(failed[0]))


def _candidate(path: str, folder: str, files: list[SourceFile]) -> Candidate:
    name = path.rpartition("/")[2] or folder
    members: list[ArchiveMember] = []
    for one in files:
        try:
            safe = package_path(one.path)
        except PathError as error:
            fault = f"{error.code}: refused name {one.path!r}"
            return Candidate(path=path, folder=name, fault=fault)
        if one.member is None:
            fault = f"archive-link: no plain file: `{safe}`"
            return Candidate(path=path, folder=name, fault=fault)
        members.append(replace(one.member, path=safe))
    size = sum(member.size for member in members)
    if len(members) > FILES_MAX or size > BYTES_MAX:
        fault = f"too-large: expected at most {FILES_MAX} files and {BYTES_MAX} bytes"
        return Candidate(path=path, folder=name, fault=fault)
    if clash(member.path for member in members):
        fault = "path-twice: two files have names that are one on other systems"
        return Candidate(path=path, folder=name, fault=fault)
    return Candidate(path=path, folder=name, members=tuple(members))

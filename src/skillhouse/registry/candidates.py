"""Finds the skills among the files that a source gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from skillhouse.floor import PathError, Severity, isolated
from skillhouse.floor.paths import ASSET_DIRECTORIES
from skillhouse.floor.structs import replace
from skillhouse.registry.page_addresses import MissingPathError, SourceError
from skillhouse.registry.source_files import (
    POINTER,
    UNSAFE,
    SourceFile,
    follow_links,
    is_pointer,
    join,
    places_above,
    shown_path,
)
from skillhouse.skill import (
    MANIFEST_FILES,
    MANIFEST_MAX,
    PATH_MAX,
    SKILL_FILE,
    SKILL_FILE_MAX,
    ArchiveMember,
    clash,
    install_name,
    package_path,
    parse,
    says_skill,
)

SEARCHED_DEPTH = 6
"""Directories down to which skills are looked for (decision 0004)."""
CANDIDATES_MAX = 2_000
"""Skills of one source that are listed."""
MANIFESTS_MAX = 500
"""Files of one source that are read to see whether they make a skill."""
_PACKAGES = "node_modules"
"""What npm put there is no skill of the source, whatever it says."""
_CONTAINER = "skills"
"""The directory whose directories are skills, wherever it is (decision 0004)."""
FILES_MAX = 1_000
BYTES_MAX = 50_000_000
"""Of one skill (docs/reference/limits.md)."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A directory of a source that holds a SKILL.md."""

    path: str
    """Inside the source; empty for its top."""
    folder: str
    """The directory's name; for the top, that of the source."""
    name: str = ""
    """As its SKILL.md says; empty where that is not read yet, or is no skill."""
    description: str = ""
    """Likewise."""
    members: tuple[ArchiveMember, ...] = ()
    """Its files, with paths relative to it."""
    fault: str = ""
    """Why it cannot be installed; then it has no members."""
    lacking: tuple[str, ...] = ()
    """Files of it that the source does not hold, each with the reason."""
    links: tuple[str, ...] = ()
    """Other paths in the source, which lead to it by a symbolic link."""
    is_inner: bool = False
    """Whether it is inside another skill, and not in a directory `skills`."""

    @property
    def installed_as(self) -> str:
        """What it is called once it is installed, where it says another name; else empty."""
        name = install_name(self.name, self.folder)
        return name if self.name not in ("", name) else ""

    @property
    def label(self) -> str:
        return self.path or self.folder


class SourceListing(Struct, frozen=True, kw_only=True):
    """What a source holds."""

    candidates: tuple[Candidate, ...]
    """Sorted by path."""
    unheld: tuple[str, ...] = ()
    """Directories that the source names and does not hold, each with the reason."""

    @property
    def package(self) -> Candidate:
        """The skill that a package is, whatever is inside it; SourceError without just one."""
        paths = {one.path for one in self.candidates}
        outer = [one for one in self.candidates if paths.isdisjoint(places_above(one.path))]
        if len(outer) != 1:
            raise SourceError(f"expected one skill in the archive, got {len(outer)}")
        return outer[0]


def find_candidates(files: Iterable[SourceFile], *, below: str = "", folder: str) -> SourceListing:
    """Return the skills of a source.

    One inside another is a file of that one, but for what `is_own_skill` says.

    Args:
        below: The directory that is looked at; empty for all.
        folder: The name of the source, for a skill at its top.

    Raises:
        SourceError: `below` is no directory of it, or there are too many.
    """
    every = follow_links(files)
    if below:
        every = _below(every, below)
    top = _only_directory(every)
    links = _second_paths(every)
    outer = _outer(_tops(every), links, top)
    grouped: dict[str, list[SourceFile]] = {place: [] for place in outer}
    unheld: list[str] = []
    for one in every:
        is_outside = True
        # A file of a skill inside another is one of both.
        for place in places_above(one.path):
            if place in grouped:
                is_outside = is_outside and place in ("", top)
                path = one.path.removeprefix(f"{place}/" * bool(place))
                grouped[place].append(replace(one, path=path))
        if one.missing and one.is_directory and is_outside:
            unheld.append(f"{shown_path(join(below, one.path))}: {one.missing}")
    found = [
        replace(
            candidate(join(below, place), folder, grouped[place]),
            links=tuple(join(below, link) for link, end in links.items() if end == place),
            is_inner=is_inner,
        )
        for place, is_inner in outer.items()
    ]
    found += _misnamed(every, set(outer), below, folder, top)
    found.sort(key=lambda one: one.path)
    return SourceListing(candidates=tuple(found), unheld=tuple(sorted(set(unheld))))


def _outer(tops: Iterable[str], links: Mapping[str, str], top: str) -> dict[str, bool]:
    """Return which directories are skills of their own, and whether each is inside another."""
    outer: dict[str, bool] = {}
    # Sorted, so that a directory comes before those inside it; what links lead to comes after.
    for place in sorted(tops, key=lambda one: (one in links, one)):
        around = [one for one in places_above(place) if one in outer]
        is_own = all(is_own_skill(place, inside=one, top=top) for one in around)
        if is_own and links.get(place) not in outer:
            outer[place] = bool(around) and not in_container(place)
    if len(outer) > CANDIDATES_MAX:
        raise SourceError(f"expected at most {CANDIDATES_MAX} skills in one source")
    return outer


def _below(files: Iterable[SourceFile], below: str) -> list[SourceFile]:
    start = f"{below}/"
    found = []
    for one in files:
        if one.path == below or (one.missing and below.startswith(f"{one.path}/")):
            what = one.missing or "a file"
            raise SourceError(f"`{one.path}` in the source is {what}, and no directory")
        if one.path.startswith(start):
            # A place outside has no path from there.
            is_in = one.real.startswith(start)
            real = one.real.removeprefix(start) if is_in else f"/{one.real}" * bool(one.real)
            found.append(replace(one, path=one.path.removeprefix(start), real=real))
    if not found:
        raise MissingPathError(f"no directory `{below}` in the source")
    return found


def _only_directory(files: Sequence[SourceFile]) -> str:
    """Return the directory that holds all of a source, as in an archive of a forge; else empty."""
    tops = {one.path.partition("/")[0] for one in files}
    is_one = len(tops) == 1 and all("/" in one.path for one in files)
    return tops.pop() if is_one else ""


def _second_paths(files: Sequence[SourceFile]) -> dict[str, str]:
    """Return the directories with a SKILL.md behind links: where each really is."""
    found = {}
    for one in files:
        place, _, name = one.path.rpartition("/")
        real, _, real_name = one.real.rpartition("/")
        if name == SKILL_FILE and one.real and real_name == name and place != real:
            found[place] = real
    return found


def is_own_skill(path: str, *, inside: str, top: str = "") -> bool:
    """Whether a skill inside another is one of its own as well.

    A SKILL.md at the top of a source is one of the skills of the source, and what a directory
    `skills` holds are skills. Below the directories that the standard gives a skill for
    its files, a SKILL.md is one of those files.

    >>> is_own_skill("skills/a", inside=""), is_own_skill("a/examples/b", inside="a")
    (True, False)
    >>> is_own_skill("plugin/skills/a", inside="plugin"), is_own_skill("assets/a", inside="")
    (True, False)
    """
    parts = path.removeprefix(f"{inside}/" * bool(inside)).split("/")
    is_file = parts[0] in ASSET_DIRECTORIES or _PACKAGES in parts
    return not is_file and (inside in ("", top) or in_container(path))


def in_container(path: str) -> bool:
    return path.split("/")[-2:-1] == [_CONTAINER]


def _misnamed(
    files: Sequence[SourceFile], known: set[str], below: str, folder: str, base: str
) -> Iterator[Candidate]:
    """Yield what would be a skill if its file were called SKILL.md, apart from skills."""
    for one in files:
        top, _, name = one.path.rpartition("/")
        if name == SKILL_FILE or name.casefold() != SKILL_FILE.casefold() or one.member is None:
            continue
        around = [place for place in places_above(top) if place in known]
        is_own = all(is_own_skill(top, inside=place, top=base) for place in around)
        is_inside = top in known or not is_own
        is_near = one.path.count("/") <= SEARCHED_DEPTH
        if not is_near or is_inside or not next(iter(one.member.read()), b"").startswith(b"---"):
            continue
        path = join(below, top)
        fault = f"wrong-case: expected a file named `{SKILL_FILE}`, got `{name}`"
        yield Candidate(path=path, folder=path.rpartition("/")[2] or folder, fault=fault)


def _tops(files: Sequence[SourceFile]) -> list[str]:
    """Return the directories that hold a skill, sorted.

    One that has a manifest and no SKILL.md counts unless a SKILL.md is below it: repositories of
    skills have a package.json of their own.
    """
    near = [one for one in files if one.path.count("/") <= SEARCHED_DEPTH]
    texts = {_above(one.path) for one in near if one.path.rpartition("/")[2] == SKILL_FILE}
    places = {place for top in texts for place in (*places_above(top), top)}
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


def candidate(path: str, folder: str, files: Iterable[SourceFile]) -> Candidate:
    """Return one skill of many, judged as far as its files say; never raises for one of them.

    Args:
        path: Its directory inside the source; empty for the top.
        folder: The name of the source.
        files: Its files, with paths relative to it.
    """
    with isolated() as failed:
        return _candidate(path, folder, files)
    name = path.rpartition("/")[2] or folder
    return Candidate(path=path, folder=name, fault=str(failed[0]))


def _candidate(path: str, folder: str, files: Iterable[SourceFile]) -> Candidate:
    name = path.rpartition("/")[2] or folder
    refused = partial(Candidate, path=path, folder=name)
    members: list[ArchiveMember] = []
    lacking: list[str] = []
    for one in files:
        try:
            safe = package_path(one.path)
        except PathError:
            # As a link out of the source: the other files are no worse for it.
            lacking.append(f"{shown_path(one.path[:PATH_MAX])}: {UNSAFE}")
            continue
        if one.member is None:
            if one.path == SKILL_FILE:
                return refused(fault=f"no-content: `{SKILL_FILE}` is {one.missing}")
            lacking.append(f"{safe}: {one.missing}")
            continue
        members.append(replace(one.member, path=safe))
    size = sum(member.size for member in members)
    # Each that is left out is named, so these are no more.
    count = max(len(members), len(lacking))
    if count > FILES_MAX or size > BYTES_MAX:
        most = f"expected at most {FILES_MAX} files and {BYTES_MAX} bytes"
        return refused(fault=f"too-large: {most}, got {count} and {size}")
    if clash(member.path for member in members):
        return refused(fault="path-twice: two files have names that are one on other systems")
    for member in members:
        if is_pointer(member):
            if member.path == SKILL_FILE:
                return refused(fault=f"no-content: `{SKILL_FILE}` is {POINTER}")
            lacking.append(f"{member.path}: {POINTER}")
    found = refused(members=tuple(members), lacking=tuple(sorted(lacking)))
    return _named(found, name)


def _named(found: Candidate, folder: str) -> Candidate:
    """Return a candidate with its name, or with the fault for which its SKILL.md is refused."""
    text = next((one for one in found.members if one.path == SKILL_FILE), None)
    if text is None:
        # A skill of code alone; its manifest says the rest.
        return found
    if text.size > SKILL_FILE_MAX:
        return found
    result = parse(b"".join(text.read()), directory=folder)
    errors = [one for one in result.diagnostics if one.severity is Severity.ERROR]
    skill = result.skill
    name, description = ("", "") if skill is None else (skill.name, skill.description)
    found = replace(found, name=name, description=description)
    if not errors:
        return found
    said = f"; {errors[0].hint}" if errors[0].hint else ""
    fault = f"{errors[0].code}: {errors[0].message}{said}"
    return replace(found, members=(), lacking=(), fault=fault)

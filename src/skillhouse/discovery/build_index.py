"""All roots of a place to one index: duplicates resolved, and what was found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

from skillhouse.discovery.roots import (
    PROJECT,
    Following,
    LinkPlaces,
    Root,
    following_of,
    real_places,
)
from skillhouse.discovery.scan import NOT_TRUSTED, ScanEntry, ScannedRoot, ScanSnapshots, scan
from skillhouse.floor import Diagnostic, Severity, is_utf8, target_problem
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.skill import (
    HINTS,
    Duplicates,
    Finding,
    Identity,
    IndexContent,
    ParsePolicy,
    Profile,
    Skill,
    SkillIndex,
    UnvisitedDirectories,
    load_profile,
)

USUAL_PARENTS = frozenset({".claude", ".agents", ".skillhouse", ".config"})
"""Directories with a dot that hold a `skills` which agents read."""
ASIDE = frozenset(
    """doc docs documentation example examples sample samples demo demos test tests __tests__
    testing fixture fixtures testdata archive archives archived deprecated old i18n locales
    translations vendor third_party""".split()
)
"""Directories that hold copies: what is used is elsewhere (a published collection keeps 228
translations of its own skills below `docs`)."""
_COPY = regex(r"(?:^|[-_. ~])(?:backups?|bak|orig|copy|old)(?:$|[-_. ~0-9])|~$")
"""The name of a directory that is a copy of another one, such as `skills.bak` or `backup-2025`."""

Rank = tuple[bool, bool, int, bool, str]


def usual_first(entries: Iterable[ScanEntry], root: str) -> Iterator[ScanEntry]:
    """Yield entries, which are sorted by name, those of one name with the one to use first."""
    base = root.rstrip("/") + "/"

    def rank(entry: ScanEntry) -> Rank:
        return place_rank(entry.path.removeprefix(base), entry.name)

    for _, group in groupby(entries, key=attrgetter("name")):
        alike = list(group)
        yield from sorted(alike, key=rank) if len(alike) > 1 else alike


def place_rank(relative: str, name: str) -> Rank:
    """Return how unusual the place of a SKILL.md below its root is; the lowest is used.

    A place aside, then one that is not in a `skills` directory, then the deeper one come last.

    >>> paths = ["docs/ja/skills/pdf/SKILL.md", "pdf/SKILL.md", "skills/pdf/SKILL.md"]
    >>> sorted(paths, key=lambda path: place_rank(path, "pdf"))
    ['skills/pdf/SKILL.md', 'pdf/SKILL.md', 'docs/ja/skills/pdf/SKILL.md']
    """
    *above, own = relative.split("/")[:-1] or [""]
    is_aside = is_usual = False
    for at, part in enumerate(above):
        if part == "skills":
            is_usual = is_usual or not is_aside
        elif part in USUAL_PARENTS and above[at + 1 : at + 2] == ["skills"]:
            continue
        else:
            is_aside = is_aside or is_place_aside(part)
    is_aside = is_aside or (own != name and bool(_COPY.search(own.lower())))
    return is_aside, not is_usual, len(above), own != name, relative


def is_place_aside(directory: str) -> bool:
    """Whether a directory of this name holds copies or is hidden."""
    folded = directory.lower()
    return folded[:1] == "." or folded in ASIDE or bool(_COPY.search(folded))


def variant_of(loser: Skill, winner: Skill, taken: Container[str]) -> str:
    """Return what makes the id of a shadowed skill its own; no id in `taken` has it.

    It is the path below the root; of a skill in another root than the winner's it begins with the
    end of that root's path, and with more of it where that is needed.
    """
    directory, above = os.path.dirname(loser.file), loser.root.rstrip("/")
    variant = os.path.relpath(directory, loser.root)
    parts = 0 if loser.root == winner.root else 2
    while above:
        if parts <= 0 and f"{loser.scope}:{loser.name}@{variant}" not in taken:
            return variant
        above, _, part = above.rpartition("/")
        variant = part if variant == "." else f"{part}/{variant}"
        parts -= 1
    return loser.file


EXPLICIT = "explicit"
"""The scope of directories that were named by hand: one of them can be a skill itself."""


class Precedence:
    """The skills of several roots, added in the order of the roots."""

    def __init__(self, identity: Identity, duplicates: Duplicates) -> None:
        self.skills: dict[Hashable, Skill] = {}
        """Winners by their identity, in catalog order."""
        self._clashes: list[_Clash] = []
        self._key = _KEYS[identity]
        self._duplicates = duplicates
        self._files: set[str] = set()
        self._refused: dict[Hashable, Skill] = {}

    def add(self, skill: Skill) -> None:
        """Add a skill; a file below two roots counts once, as the stronger root has it."""
        key = self._key(skill)
        # A SKILL.md that is a link counts by where it is.
        place = os.path.realpath(skill.file) if skill.link else skill.file
        if place in self._files:
            other = self.skills.get(key)
            if other is None or other.file != skill.file:
                return
            if self._duplicates == "last":
                self.skills[key] = skill
            elif other.link and not skill.link and other.scope == skill.scope:
                # Listed where it is, rather than where a link to it was met first.
                del self.skills[key]
                self.skills[key] = skill
            return
        self._files.add(place)
        other = self.skills.setdefault(key, skill)
        if other is not skill:
            self._clash(key, skill, other)
        elif self._refused and key in self._refused:
            del self.skills[key]
            self._clashes.append(_Clash("refused", skill, self._refused[key]))

    def _clash(self, key: Hashable, skill: Skill, other: Skill) -> None:
        if self._duplicates == "first":
            self._clashes.append(_Clash("shadowed", skill, other))
        elif self._duplicates == "last":
            # In the position of the earlier one, like a JavaScript map.
            self.skills[key] = skill
            self._clashes.append(_Clash("shadowed", other, skill))
        elif self._duplicates == "keep_all":
            self.skills[key, skill.file] = skill
            self._clashes.append(_Clash("kept", skill, other))
        else:
            del self.skills[key]
            self._refused[key] = other
            self._clashes += [_Clash("refused", other, skill), _Clash("refused", skill, other)]

    def losers(self) -> tuple[list[Skill], list[Diagnostic]]:
        """Return the skills that are not in force, each with an id of its own, and the findings."""
        losers: list[Skill] = []
        findings: list[Diagnostic] = []
        taken = {skill.id for skill in self.skills.values()} if self._clashes else set()
        for kind, skill, other in self._clashes:
            loser = skill
            if kind == "shadowed" and os.path.realpath(skill.file) == os.path.realpath(other.file):
                # A SKILL.md that is a link to another one is that skill.
                findings.append(_repeated(other.file, skill.file))
                continue
            if kind == "shadowed" and skill.id in taken:
                loser = replace(skill, variant=variant_of(skill, other, taken))
            taken.add(loser.id)
            if kind != "kept":
                losers.append(loser)
            findings.append(_clash_finding(kind, loser, other))
        return losers, findings


def _repeated(place: str, link: str) -> Diagnostic:
    return Diagnostic(
        code="same-directory",
        severity=Severity.INFO,
        message=f"a link to `{place}`, which is listed itself",
        path=Path(link),
        hint=HINTS["same-directory"],
    )


class _Clash(NamedTuple):
    kind: Literal["shadowed", "refused", "kept"]
    skill: Skill
    other: Skill


def _clash_finding(kind: str, skill: Skill, other: Skill) -> Diagnostic:
    code = "shadowed" if kind == "shadowed" else "duplicate"
    message = f"`{skill.id}` is shadowed by `{other.id}` at `{other.file}`"
    if kind == "kept":
        message = f"`{skill.id}` is also `{other.id}` at `{other.file}`"
    elif kind == "refused":
        message = f"neither is in force: `{skill.id}`, and `{other.id}` at `{other.file}`"
    return Diagnostic(
        code=code,
        severity=Severity.ERROR if kind == "refused" else Severity.WARNING,
        message=message,
        path=skill.location,
        line=1,
        field="name",
        hint=HINTS[code],
    )


_KEYS: dict[Identity, Callable[[Skill], Hashable]] = {
    "name": lambda skill: skill.name,
    "directory": lambda skill: os.path.basename(os.path.dirname(skill.file)),
    "source_name": lambda skill: (skill.scope, skill.name),
    "path": lambda skill: skill.file,
}


def discover(
    roots: Sequence[Root | str | Path],
    *,
    profile: str | Profile = "default",
    trusted: bool = True,
    cache: Path | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> SkillIndex:
    """Find the skills below `roots` by the heads of their files; bodies are not read.

    The index is decoded when first looked at. Whatever is wrong with a root or file is a diagnostic
    of it; an unknown profile or scope is a ConfigError.

    Args:
        roots: In the order in which they shadow each other, within a scope or, if the profile
            takes roots as they are written, at all; a bare path is explicit.
        trusted: The caller's word for the project's skills; without it they are not read at all.
        cache: Directory of the persistent index, which `search` uses too; None reads every file.
        clock: Nanoseconds since the epoch.
    """
    return discover_since(None, roots, profile=profile, trusted=trusted, cache=cache, clock=clock)


def discover_since(
    before: SkillIndex | None,
    roots: Sequence[Root | str | Path],
    *,
    profile: str | Profile,
    trusted: bool,
    cache: Path | None,
    clock: Callable[[], int] = time.time_ns,
) -> SkillIndex:
    """Do what `discover` does; where nothing has changed since `before`, its skills are taken."""
    chosen = load_profile(profile)
    ranks = {rule.name: rank for rank, rule in enumerate(chosen.scopes)}
    given = [root if isinstance(root, Root) else Root(Path(root)) for root in roots]
    for root in given:
        chosen.scope(root.scope)
    if chosen.root_order == "scope":
        given.sort(key=lambda root: ranks[root.scope])
    # What a person links in a project is the project's.
    of_project = real_places(
        root.path for root in given if root.scope == PROJECT and "\0" not in str(root.path)
    )
    general: list[Diagnostic] = []
    scans: dict[tuple[str, str], _Scan] = {}
    snapshots = ScanSnapshots(cache) if cache is not None else None
    try:
        for root in given:
            if root.note:
                general.append(_general("root-limit", Severity.WARNING, root.note, root.path))
            real = _real(root, general, trusted=trusted)
            if real is not None and (root.scope, real) not in scans:
                rule = chosen.scope(root.scope)
                if root.max_depth is not None:
                    rule = replace(rule, max_depth=root.max_depth)
                following = following_of(root.symlinks or chosen.symlinks, root.scope)
                written = (*root.places.written, *of_project)
                places = replace(root.places, written=written, is_trusted=trusted)
                scanned = scan(
                    real,
                    rule,
                    chosen,
                    snapshots,
                    clock,
                    takes_root=root.scope == EXPLICIT and _goes_by_place(chosen),
                    following=following,
                    places=places,
                )
                scans[root.scope, real] = _Scan(scanned, root.namespace, following, places)
    finally:
        if snapshots is not None:
            snapshots.close()
    if snapshots is not None and snapshots.fault is not None:
        message, path = str(snapshots.fault), snapshots.fault.path
        general.append(_general("cache-unusable", Severity.WARNING, message, path))
    made_of = _made_of(scans, general, chosen)
    return SkillIndex(
        source=lambda: _merged(scans, general, chosen),
        name_match=chosen.name_match,
        cache=cache,
        made_of=made_of,
        before=before,
    )


def _made_of(
    scans: dict[tuple[str, str], _Scan], general: list[Diagnostic], profile: Profile
) -> object:
    """Return a value that is equal for equal indexes; None where a look at files is needed.

    What is behind a link is looked at while roots are merged, and no scan has seen it.
    """
    parts = []
    for place, (scanned, namespace, following, places) in scans.items():
        walk = scanned.walk
        if scanned.snapshot is None or walk.links() or walk.leads_out:
            return None
        found = tuple(walk.findings), tuple(walk.left_out)
        parts.append((place, namespace, following, places, scanned.snapshot, found))
    return parts, general, profile


class _Scan(NamedTuple):
    scanned: ScannedRoot
    namespace: str
    following: Following
    places: LinkPlaces

    def is_first(self, path: str, judged: set[str] | None) -> bool:
        """Whether what is at a path is reported here: once, whatever links lead to it."""
        if judged is None or self.following == "follow":
            return True
        real = os.path.realpath(path)
        if real in judged:
            return False
        judged.add(real)
        return True

    def skill(
        self, entry: ScanEntry, scope: str, root: str, policy: ParsePolicy
    ) -> Skill | Finding:
        """Return the skill of an entry that is one, or why what a link leads to is none."""
        skill = self._found(
            Skill(
                name=f"{self.namespace}:{entry.name}" if self.namespace else entry.name,
                description=entry.description,
                scope=scope,
                file=entry.path,
                root=root,
                packed_fields=entry.packed_fields or b"",
                policy=policy,
                signature=None if entry.signature == NOT_TRUSTED else entry.signature,
            )
        )
        problem = target_problem(Path(os.path.realpath(skill.file))) if skill.link else ""
        if not problem:
            return skill
        message = f"a symbolic link leads to `{skill.file}`: {problem}"
        return Finding("link-owner", message, fatal=True)

    @property
    def _bound(self) -> str:
        """Where links in a skill of a project stay: before a person trusts it, anywhere."""
        if self.following == "own":
            return "/"
        return self.places.project or self.scanned.walk.root

    def _found(self, skill: Skill) -> Skill:
        """Return a skill below the root as it is found, by a link out of the root as well."""
        follows = self.following in ("own", "within_project")
        if follows and skill.scope == PROJECT:
            skill = replace(skill, link_bound=self._bound, link_targets=self.places.link_ends)
        if not self.scanned.walk.leaves(skill.file):
            return replace(skill, follows=True) if follows else skill
        if self.following == "follow":
            # The target of a link that leaves the root is below no root.
            return replace(skill, root=Path(skill.root).anchor)
        directory, name = os.path.split(skill.file)
        # One real place is one skill: a directory is named by where it is, a file by its link.
        real = os.path.realpath(directory)
        end = os.path.realpath(skill.file)
        is_of_work = self.places.is_of_work(end)
        return replace(
            skill,
            file=os.path.join(real, name),
            link=skill.file,
            scope=PROJECT if is_of_work else skill.scope,
            # A person's own that is in the project leads nowhere else.
            follows=follows and (skill.scope == PROJECT or not is_of_work),
        )


def _real(root: Root, general: list[Diagnostic], *, trusted: bool) -> str | None:
    """Return the real path of a root to scan, or None when it is not to be scanned."""
    if "\0" in str(root.path):
        message = f"a NUL in the root {str(root.path)!r}"
        general.append(_general("path-nul", Severity.ERROR, message, None))
        return None
    path = Path(os.path.abspath(root.path))
    if root.scope == "project" and not trusted:
        if os.path.lexists(path):
            message = "not read: trust the project's skills with `skillhouse trust`"
            general.append(_general("project-untrusted", Severity.INFO, message, path))
        return None
    real = os.path.realpath(path)
    if not is_utf8(real):
        message = "the root's path is not UTF-8"
        general.append(_general("path-encoding", Severity.ERROR, message, path))
        return None
    return real


def _goes_by_place(profile: Profile) -> bool:
    return profile.root_duplicates == "place" and profile.duplicates == "first"


def _general(code: str, severity: Severity, message: str, path: Path | None) -> Diagnostic:
    hint = HINTS.get(code, "")
    return Diagnostic(code=code, severity=severity, message=message, path=path, hint=hint)


def _merged(
    scans: dict[tuple[str, str], _Scan], general: list[Diagnostic], profile: Profile
) -> IndexContent:
    """Merge the roots; of duplicates the first wins by scope, then root, then place or path."""
    precedence = Precedence(profile.identity, profile.duplicates)
    diagnostics = list(general)
    judged: set[str] | None = None
    if any(one.scanned.walk.leads_out for one in scans.values()):
        judged = set()
    left_out: list[UnvisitedDirectories] = []
    goes_by_place = _goes_by_place(profile)
    for (scope, real), one in scans.items():
        walk = one.scanned.walk
        left_out += walk.left_out
        diagnostics += [finding.diagnostic(Path(path)) for path, finding in walk.findings]
        entries = one.scanned.entries()
        for entry in entries:
            if entry.findings and one.is_first(entry.path, judged):
                path = Path(entry.path)
                diagnostics += [finding.diagnostic(path) for finding in entry.findings]
        usable = [entry for entry in entries if entry.packed_fields is not None]
        listed = _once(usable, walk.links(), diagnostics)
        is_ordered = goes_by_place and len({entry.name for entry in usable}) < len(usable)
        for entry in usual_first(listed, real) if is_ordered else listed:
            found = one.skill(entry, scope, real, profile.parse_policy)
            if isinstance(found, Skill):
                precedence.add(found)
            else:
                diagnostics.append(found.diagnostic(Path(entry.path)))
    losers, clashes = precedence.losers()
    skills = list(precedence.skills.values())
    if profile.root_order == "scope" and any(skill.link for skill in skills):
        # What a person linked in the project is among its skills.
        ranks = {rule.name: rank for rank, rule in enumerate(profile.scopes)}
        skills.sort(key=lambda skill: ranks[skill.scope])
    return IndexContent(
        skills=tuple(skills),
        shadowed=tuple(losers),
        # A file below two roots is reported once.
        diagnostics=tuple(dict.fromkeys(diagnostics + clashes)),
        left_out=tuple(left_out),
    )


def _once(
    entries: list[ScanEntry], links: tuple[str, ...], diagnostics: list[Diagnostic]
) -> Iterator[ScanEntry]:
    """Yield each entry except those that a link repeats; real directories precede links."""
    if not links:
        yield from entries
        return
    below_links = tuple(f"{link}/" for link in links)
    listed = {
        os.path.dirname(entry.path) for entry in entries if not entry.path.startswith(below_links)
    }
    for entry in entries:
        if entry.path.startswith(below_links):
            place = os.path.realpath(os.path.dirname(entry.path))
            if place in listed:
                diagnostics.append(_repeated(place, entry.path))
                continue
            listed.add(place)
        yield entry

"""All roots of a place to one index: duplicates resolved, and what was found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from skillhouse.discovery.duplicates import usual_first, variant_of
from skillhouse.discovery.roots import Root
from skillhouse.discovery.scan import ScannedRoot, scan
from skillhouse.discovery.scan_snapshots import NOT_TRUSTED, ScanEntry, ScanSnapshots
from skillhouse.floor import Diagnostic, Severity, is_utf8
from skillhouse.skill import (
    MENDS,
    Duplicates,
    Identity,
    IndexContent,
    LeftOut,
    Profile,
    ScopeRule,
    Skill,
    SkillIndex,
    load_profile,
)

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
        if skill.file in self._files:
            other = self.skills.get(key)
            if self._duplicates == "last" and other is not None and other.file == skill.file:
                self.skills[key] = skill
            return
        self._files.add(skill.file)
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
            if kind == "shadowed" and skill.id in taken:
                loser = replace(skill, variant=variant_of(skill, other, taken))
            taken.add(loser.id)
            if kind != "kept":
                losers.append(loser)
            findings.append(_clash_finding(kind, loser, other))
        return losers, findings


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
        mend=MENDS[code],
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
    chosen = load_profile(profile)
    ranks = {rule.name: rank for rank, rule in enumerate(chosen.scopes)}
    given = [root if isinstance(root, Root) else Root(Path(root)) for root in roots]
    for root in given:
        chosen.scope(root.scope)
    if chosen.root_order == "scope":
        given.sort(key=lambda root: ranks[root.scope])
    general: list[Diagnostic] = []
    scans: dict[tuple[str, str], _Scan] = {}
    snapshots = ScanSnapshots(cache) if cache is not None else None
    try:
        for root in given:
            if root.note:
                general.append(_general("root-limit", Severity.WARNING, root.note, root.path))
            real = _real(root, general, trusted=trusted)
            if real is not None and (root.scope, real) not in scans:
                rule, how = _of_root(root, chosen)
                takes_root = root.scope == EXPLICIT and _goes_by_place(chosen)
                scanned = scan(real, rule, how, snapshots, clock, takes_root=takes_root)
                scans[root.scope, real] = _Scan(scanned, root.namespace, how.symlinks == "follow")
    finally:
        if snapshots is not None:
            snapshots.close()
    if snapshots is not None and snapshots.fault is not None:
        message, path = str(snapshots.fault), snapshots.fault.path
        general.append(_general("cache-unusable", Severity.WARNING, message, path))
    return SkillIndex(
        source=lambda: _merged(scans, general, chosen), name_match=chosen.name_match, cache=cache
    )


class _Scan(NamedTuple):
    scanned: ScannedRoot
    namespace: str
    follows: bool
    """Whether links were followed out of the root."""


def _of_root(root: Root, profile: Profile) -> tuple[ScopeRule, Profile]:
    """Return the bounds and the profile of a root, which can have its own of some values."""
    rule = profile.scope(root.scope)
    if root.max_depth is not None:
        rule = replace(rule, max_depth=root.max_depth)
    if root.symlinks is not None:
        profile = replace(profile, symlinks=root.symlinks)
    return rule, profile


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
    mend = MENDS.get(code, "")
    return Diagnostic(code=code, severity=severity, message=message, path=path, mend=mend)


def _merged(
    scans: dict[tuple[str, str], _Scan], general: list[Diagnostic], profile: Profile
) -> IndexContent:
    """Merge the roots; of duplicates the first wins by scope, then root, then place or path."""
    precedence = Precedence(profile.identity, profile.duplicates)
    policy = profile.parse_policy
    diagnostics = list(general)
    left_out: list[LeftOut] = []
    goes_by_place = _goes_by_place(profile)
    for (scope, real), (scanned, namespace, follows) in scans.items():
        walk = scanned.walk
        left_out += walk.left_out
        diagnostics += [finding.diagnostic(Path(path)) for path, finding in walk.findings]
        entries = scanned.entries()
        for entry in entries:
            if entry.findings:
                path = Path(entry.path)
                diagnostics += [finding.diagnostic(path) for finding in entry.findings]
        usable = [entry for entry in entries if entry.packed_fields is not None]
        listed = _once(usable, walk.links(), diagnostics)
        is_ordered = goes_by_place and len({entry.name for entry in usable}) < len(usable)
        for entry in usual_first(listed, real) if is_ordered else listed:
            precedence.add(
                Skill(
                    name=f"{namespace}:{entry.name}" if namespace else entry.name,
                    description=entry.description,
                    scope=scope,
                    file=entry.path,
                    # The target of a link that leaves the root is below no root.
                    root=Path(real).anchor if follows and walk.leaves(entry.path) else real,
                    packed_fields=entry.packed_fields or b"",
                    policy=policy,
                    signature=None if entry.signature == NOT_TRUSTED else entry.signature,
                )
            )
    losers, clashes = precedence.losers()
    return IndexContent(
        skills=tuple(precedence.skills.values()),
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
                diagnostics.append(
                    Diagnostic(
                        code="same-directory",
                        severity=Severity.INFO,
                        message=f"a link to `{place}`, which is listed itself",
                        path=Path(entry.path),
                        mend=MENDS["same-directory"],
                    )
                )
                continue
            listed.add(place)
        yield entry

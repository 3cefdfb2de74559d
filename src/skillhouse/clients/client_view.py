"""One client's view: its verdict on each SKILL.md, and what fits into its list."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from skillhouse.clients.verdicts import BudgetUse, ClientColumn, Cut, LensState, Verdict
from skillhouse.discovery import Root
from skillhouse.floor import Diagnostic, Severity
from skillhouse.skill import SKILL_FILE, CatalogRule, Profile, Skill, SkillIndex


class UnboundedEntry(NamedTuple):
    """A skill as an unbounded list would show it."""

    key: str
    name: str
    description: str
    path: str


def fit(
    rule: CatalogRule, listed: Sequence[UnboundedEntry]
) -> tuple[BudgetUse | None, dict[str, Cut]]:
    """Return the use of the list's budget, and the cut of each skill by its key."""
    cuts: dict[str, Cut] = {}
    most = rule.description_chars
    if most is not None:
        cuts = {skill.key: Cut.SHORTENED for skill in listed if len(skill.description) > most}
    if rule.budget_chars is None or not rule.entry:
        return None, cuts
    bare = [
        _size(rule, rule.entry_bare.format(name=skill.name, path=skill.path)) for skill in listed
    ]
    whole = [
        _size(
            rule,
            rule.entry.format(
                name=skill.name, path=skill.path, description=skill.description[:most]
            ),
        )
        for skill in listed
    ]
    space = rule.budget_chars - rule.reserved_chars
    needed = sum(whole)
    over: dict[str, Cut] = {}
    if needed > space:
        extra = [full - short for full, short in zip(whole, bare, strict=True)]
        place = _shortened if rule.overflow in ("shorten", "name_all") else _without
        marks = _omitted(bare, space) if rule.overflow == "omit" else place(bare, extra, space)
        over = {
            skill.key: mark
            for skill, mark in zip(listed, marks, strict=True)
            if mark is not Cut.NOTHING
        }
    budget = BudgetUse(
        limit=rule.budget_chars,
        reserved=rule.reserved_chars,
        needed=needed,
        shortened=sum(cut is Cut.SHORTENED for cut in over.values()),
        without_description=sum(cut is Cut.NO_DESCRIPTION for cut in over.values()),
        omitted=sum(cut is Cut.OMITTED for cut in over.values()),
    )
    return budget, cuts | over


def _size(rule: CatalogRule, entry: str) -> int:
    if rule.entry_unit == 1:
        return len(entry) + 1
    length = len(entry.encode("utf-8", "replace")) + 1
    return -(-length // rule.entry_unit) * rule.entry_unit


def _without(bare: list[int], extra: list[int], space: int) -> list[Cut]:
    """Keep every name, and in list order each description that fits."""
    left = space - sum(bare)
    marks = []
    for size in extra:
        fits = size <= left
        left -= size if fits else 0
        marks.append(Cut.NOTHING if fits else Cut.NO_DESCRIPTION)
    return marks


def _shortened(bare: list[int], extra: list[int], space: int) -> list[Cut]:
    """Shorten all descriptions to one length; if not even names fit, omit skills."""
    left = space - sum(bare)
    if left <= 0:
        marks = _omitted(bare, space)
        return [Cut.NO_DESCRIPTION if mark is Cut.NOTHING else mark for mark in marks]
    share = left
    for place, size in enumerate(sorted(extra)):
        share = left // (len(extra) - place)
        if size > share:
            break
        left -= size
    return [Cut.NOTHING if size <= share else Cut.SHORTENED for size in extra]


def _omitted(bare: list[int], space: int) -> list[Cut]:
    marks = []
    for size in bare:
        fits = size <= space
        space -= size if fits else 0
        marks.append(Cut.NOTHING if fits else Cut.OMITTED)
    return marks


_OWN_SCOPES = frozenset({"builtin", "managed", "plugin"})
"""Their skills came with a client, so other clients are not expected to see them."""

_LINKS = {
    "link-escape": "a link out of the root is not followed",
    "link-ignored": "links are not followed",
    "link-broken": "the link is broken",
    "link-cycle": "the link leads in a circle",
}


_MISREAD = frozenset(
    {
        "description-ignored",
        "encoding",
        "frontmatter-cut",
        "frontmatter-ignored",
        "frontmatter-missing",
        "frontmatter-unclosed",
        "read-by-lines",
    }
)
"""Findings about a listed skill of which a client shows something else than its author wrote."""


_NO_ROOT = Verdict(state=LensState.UNSEEN, code="no-root")


def _links(root: str) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.path for entry in entries if entry.is_symlink())
    except (OSError, ValueError):
        return []


class RealPathCache(dict[str, str]):
    """Real paths by paths: of a directory of thousands of skills each part is looked at once."""

    def __missing__(self, path: str) -> str:
        above, name = os.path.split(path)
        if name in ("", ".", "..") or not os.path.isabs(above) or os.path.islink(path):
            real = os.path.realpath(path)
        else:
            real = os.path.join(self[above], name)
        self[path] = real
        return real


class ClientView(Struct):
    profile: Profile
    roots: tuple[Root, ...]
    index: SkillIndex
    reals: RealPathCache
    may_read: bool
    listed: dict[str, Skill] = field(default_factory=dict)
    losers: dict[str, Skill] = field(default_factory=dict)
    faults: dict[str, Diagnostic] = field(default_factory=dict)
    warnings: dict[str, dict[str, Diagnostic]] = field(default_factory=lambda: defaultdict(dict))
    links: list[tuple[str, str]] = field(default_factory=list)
    cuts: dict[str, Cut] = field(default_factory=dict)
    winners: dict[str, Skill] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    """Each SKILL.md that a link in a root leads to, by its real path, where no more is known."""

    def __post_init__(self) -> None:
        for root in self.roots if self.profile.folders_only else ():
            for link in _links(str(root.path)):
                file = f"{link}/{SKILL_FILE}"
                if os.path.isfile(file):
                    self.held.setdefault(self.reals[file], file)
        for skill in self.index.skills:
            self.listed.setdefault(self.reals[skill.file], skill)
        for skill in self.index.shadowed:
            self.losers.setdefault(self.reals[skill.file], skill)
        for diagnostic in self.index.diagnostics:
            if diagnostic.path is None:
                continue
            path, code = str(diagnostic.path), diagnostic.code
            if code in _LINKS:
                self.links.append((path, code))
            elif diagnostic.severity is Severity.ERROR and code != "duplicate":
                self.faults.setdefault(self.reals[path], diagnostic)
            else:
                self.warnings[self.reals[path]].setdefault(code, diagnostic)

    def judge(self) -> ClientColumn:
        """Apply the bounds of the client's list; call once, before `verdict`."""
        profile = self.profile
        self.winners = {self._key(skill): skill for skill in self.listed.values()}
        entries = [
            UnboundedEntry(real, skill.name, self._description(skill), _below_root(skill))
            for real, skill in self.listed.items()
            if not self._is_manual(skill)
        ]
        budget, self.cuts = fit(profile.catalog, entries)
        return ClientColumn(
            profile=profile,
            roots=tuple(dict.fromkeys(str(root.path) for root in self.roots)),
            own=frozenset(str(root.path) for root in self.roots if root.scope in _OWN_SCOPES),
            budget=budget,
        )

    def verdict(self, real: str, places: Sequence[str]) -> Verdict:
        if self.profile.folders_only:
            roots = tuple(self.reals[str(root.path)].rstrip("/") + "/" for root in self.roots)
            has = real in self.held or any(place.startswith(roots) for place in places)
            return Verdict(state=LensState.FOLDER) if has else _NO_ROOT
        if skill := self.listed.get(real):
            state = LensState.MANUAL if self._is_manual(skill) else LensState.SEEN
            found = self.warnings.get(real, {})
            misread = found.get(min(found.keys() & _MISREAD, default=""))
            return Verdict(
                state=state,
                name=skill.name,
                code=misread.code if misread else "",
                reason=misread.message if misread else "",
                line=misread.line if misread else None,
                cut=self.cuts.get(real, Cut.NOTHING),
            )
        if skill := self.losers.get(real):
            other = self.winners.get(self._key(skill))
            taken = other.file if other else ""
            return Verdict(state=LensState.SHADOWED, name=skill.name, code="shadowed", other=taken)
        if fault := self.faults.get(real):
            return Verdict(
                state=LensState.DROPPED, code=fault.code, reason=fault.message, line=fault.line
            )
        return self._unseen(places)

    def _unseen(self, places: Sequence[str]) -> Verdict:
        """Say why this client's walk did not find a file."""
        for path, code in self.links:
            if any(place == path or place.startswith(path + "/") for place in places):
                return Verdict(state=LensState.UNSEEN, code=code, reason=_LINKS[code])
        for root in self.roots:
            real_root = self.reals[str(root.path)]
            for place in places:
                if not place.startswith(real_root.rstrip("/") + "/"):
                    continue
                if root.scope == "project" and not self.may_read:
                    return Verdict(state=LensState.UNTRUSTED, code="project-untrusted")
                parts = place[len(real_root.rstrip("/")) + 1 :].split("/")[:-1]
                return self._skipped(root, real_root, parts)
        return _NO_ROOT

    def _skipped(self, root: Root, real_root: str, parts: list[str]) -> Verdict:
        """Say why a walk of `root` does not reach the directory named by `parts`."""
        depth = root.max_depth or self.profile.scope(root.scope).max_depth
        code = "not-listed"
        if not parts:
            code = "root-file"
        elif any(part in self.profile.skipped_directories for part in parts):
            code = "skipped-directory"
        elif not self.profile.dotfiles and any(part.startswith(".") for part in parts):
            code = "hidden-directory"
        elif len(parts) > depth:
            code = "too-deep"
        elif not self.profile.nested_skills and self._is_nested(real_root, parts):
            code = "inside-a-skill"
        return Verdict(state=LensState.UNSEEN, code=code)

    def _is_nested(self, real_root: str, parts: list[str]) -> bool:
        above = (os.path.join(real_root, *parts[:count]) for count in range(1, len(parts)))
        return any(os.path.isfile(os.path.join(place, SKILL_FILE)) for place in above)

    def _key(self, skill: Skill) -> str:
        identity = self.profile.identity
        if identity == "name":
            return skill.name
        if identity == "directory":
            return os.path.basename(os.path.dirname(skill.file))
        return skill.id if identity == "source_name" else skill.file

    def _is_manual(self, skill: Skill) -> bool:
        # Searched as bytes first, because few skills have the field.
        field = "disable-model-invocation"
        if not self.profile.extensions.invocation or field.encode() not in skill.packed_fields:
            return False
        return str(skill.frontmatter.fields.get(field, "")).lower() == "true"

    def _description(self, skill: Skill) -> str:
        if self.profile.extensions.when_to_use and b"when_to_use" in skill.packed_fields:
            return f"{skill.description} - {skill.frontmatter.fields.get('when_to_use', '')}"
        return skill.description


def _below_root(skill: Skill) -> str:
    """Return the path as a list with short names for roots shows it."""
    inside = skill.file.removeprefix(skill.root.rstrip("/") + "/")
    return f"r0/{inside}"

"""Lists of skills for people: every skill here with its state, filters, and what is left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import manage
from skillhouse.discovery import default_roots
from skillhouse.floor import digest
from skillhouse.frontends.answers.skills import LibrarySkillAnswer, catalog_tokens
from skillhouse.frontends.presentation.short_paths import clients_of
from skillhouse.frontends.presentation.text import counted, moment, shown
from skillhouse.house.agent_view import LISTED

if TYPE_CHECKING:
    from skillhouse.floor import Locations
    from skillhouse.frontends.answers.catalogs import CatalogBoundsAnswer
    from skillhouse.house import AbsentSkill, AgentView, Skillhouse
    from skillhouse.retrieval import Hit
    from skillhouse.skill import Skill


class SkillFilter(Struct, frozen=True, kw_only=True):
    """Which skills a list has, of the command line and of both lists of the HTTP API."""

    words: tuple[str, ...] = ()
    """Those that name, text or path must have, in whatever case."""
    scope: str | None = None
    roots: tuple[str, ...] | None = None
    """Beginnings of the paths, each with a slash at its end."""
    since: str = ""
    """The UTC time, or its beginning, since which SKILL.md changed."""

    @property
    def is_whole(self) -> bool:
        return not (self.words or self.scope or self.roots is not None or self.since)

    def takes(self, *texts: str, scope: str, path: str) -> bool:
        """Whether a list has what is at a path.

        >>> SkillFilter(words=("PDF",)).takes("pdf", "Merges.", scope="user", path="/a/SKILL.md")
        True
        """
        if self.scope is not None and scope != self.scope:
            return False
        if self.roots is not None and not path.startswith(self.roots):
            return False
        changed = changed_at(path) if self.since else 0.0
        # What cannot be looked at has no time, and is not left out for it.
        if changed and moment(changed) < self.since:
            return False
        if not self.words:
            return True
        everything = "\n".join((*texts, path)).casefold()
        return all(word.casefold() in everything for word in self.words)

    def skills(self, skills: Iterable[Skill]) -> list[Skill]:
        return [
            one
            for one in skills
            if self.takes(one.name, one.description, scope=one.scope, path=one.file)
        ]

    def absent(self, found: Iterable[AbsentSkill]) -> list[AbsentSkill]:
        return [
            one for one in found if self.takes(one.name, one.reason, scope=one.scope, path=one.path)
        ]

    def lines(self, lines: Iterable[LibraryLine]) -> list[LibraryLine]:
        return [one for one in lines if self.takes(*one.texts, scope=one.scope, path=one.path)]


def changed_at(path: str) -> float:
    """Return when a file was changed last, in seconds since 1970; 0 where it cannot be seen."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


class LibraryLine(Struct, frozen=True, kw_only=True):
    """A skill of the index, or what is known of a file or place that is none."""

    path: str
    skill: Skill | None
    absent: AbsentSkill | None
    """Why agents do not see it; None for one that they do."""
    mark: str = ""
    """How a model hears of it, as `AgentView.mark`."""

    @property
    def state(self) -> str:
        return "in-use" if self.absent is None else self.absent.state

    @property
    def texts(self) -> list[str]:
        """What a filter looks at besides the path."""
        skill, absent = self.skill, self.absent
        parts = [skill.name, skill.description] if skill else []
        return [*parts, absent.name, absent.reason] if absent else parts

    @property
    def scope(self) -> str:
        if self.skill is not None:
            return self.skill.scope
        return self.absent.scope if self.absent else ""


def library_lines(house: Skillhouse) -> Iterator[LibraryLine]:
    """Yield what agents see in catalog order, and then the rest by state; each file once."""
    index = house.index
    absent: dict[str, AbsentSkill] = {}
    for one in manage.absent_skills(house):
        absent.setdefault(one.path, one)
    view = house.view()
    for skill in view.visible.skills:
        why = absent.pop(skill.file, None)
        yield LibraryLine(path=skill.file, skill=skill, absent=why, mark=view.mark(skill))
    known = {skill.file: skill for skill in (*index.shadowed, *index.skills)}
    for path, rest in absent.items():
        yield LibraryLine(path=path, skill=known.get(path), absent=rest)


def client_roots(places: Locations, client: str) -> tuple[str, ...]:
    """Return the real paths of a client's roots, each ending in a slash; ConfigError for none."""
    from skillhouse.clients import profile_to_compare  # noqa: PLC0415 - a list as it is asks no client.

    profile = profile_to_compare(client, places)
    roots = default_roots(
        start=places.start, home=places.home, environment=places.environment, profile=profile
    )
    return tuple(f"{root.path.resolve()}/" for root in roots if "\0" not in str(root.path))


def library_skill(line: LibraryLine, ranks: Mapping[str, int], home: Path) -> LibrarySkillAnswer:
    """Return a line of the library; `ranks` says how recently files were loaded, 0 the last one."""
    skill, absent = line.skill, line.absent
    hint = (absent.hint or None) if absent else None
    name = skill.name if skill else (absent.name if absent else "")
    return LibrarySkillAnswer(
        key=digest(line.path.encode(errors="surrogateescape")).removeprefix("sha256:")[:16],
        # What has no id by its text has the name of its folder.
        id=skill.id if skill else (absent and absent.id) or name or line.path,
        name=name,
        description=skill.description if skill else "",
        scope=line.scope,
        path=line.path,
        clients=clients_of(Path(skill.root), home) if skill else (),
        state=line.state,
        listing=line.mark,
        reason=absent.reason if absent else "",
        hint=hint,
        mend=hint,
        code=(absent.code or None) if absent else None,
        line=(absent.line or None) if absent else None,
        catalog_tokens=catalog_tokens(skill) if skill else 0,
        file_tokens=_file_tokens(line.path),
        recent=ranks.get(line.path),
    )


def _file_tokens(path: str) -> int:
    """Return what loading the file costs, by its size; 0 for what cannot be read."""
    try:
        return -(-os.stat(path).st_size // 4) if path.endswith(".md") else 0
    except (OSError, ValueError):
        return 0


FIT_TEXTS: Mapping[str, str] = {
    "good": "",
    "weak": "weak matches, none of which is sure to fit; the nearest:",
    "none": "nothing fits well; try other words, or English; the nearest:",
}
"""What a person reads before the hits, by how well the best one fits (`Fit`)."""


def why(hit: Hit) -> str:
    """Return for a person why a skill is a hit, and the ids of its copies."""
    return "; ".join(why_parts(hit))


def why_parts(hit: Hit) -> list[str]:
    from skillhouse.retrieval import reason  # noqa: PLC0415 - a list has no hits.

    also = [f"also: {', '.join(map(shown, hit.alike))}"] if hit.alike else []
    return [shown(reason(hit)), *also]


def unlisted(mark: str) -> list[str]:
    """Return the mark of a skill for a line about it; nothing of one that every list names."""
    return [mark] if mark not in ("", LISTED) else []


def list_notes(view: AgentView) -> list[str]:
    """Return `catalog_notes` of the lists that a view makes; of their costs nothing is measured."""
    exposure = view.profile.catalog.exposure
    if exposure == "search":
        return []
    in_tool = view.over_mcp() if exposure == "tool" else None
    return catalog_notes(view, len(view.catalog().omitted), len(in_tool.omitted) if in_tool else 0)


def catalog_notes(view: AgentView, omitted: int, omitted_in_tool: int) -> list[str]:
    """Return a line for people about each catalog that leaves out skills."""
    rule = view.profile.catalog
    if rule.exposure == "search":
        # Skills are found by search alone there, and nothing is left out of a list.
        return []
    search = next((rule.name for rule in view.profile.tools if rule.kind == "search"), "")
    found = f"; `{search}` finds them" if search else ""
    notes = []
    if omitted:
        budget = view.budget_tokens
        of = f"of {budget:,} tokens" if budget is not None else "of the profile"
        notes.append(f"left out of the catalog {of}: {counted(omitted, 'skill')}{found}")
    if omitted_in_tool:
        chars = rule.tool_chars
        of = "of the profile" if chars == "none" else f"of {chars:,} characters"
        words = f"left out of the skill tool's description {of}"
        notes.append(f"{words}: {counted(omitted_in_tool, 'skill')}{found}")
    return notes


def catalog_cost(bounds: CatalogBoundsAnswer, view: AgentView) -> str:
    """Return for people what the lists cost each request, and how many skills they name."""
    marks = Counter(view.marks.values())
    named = ", ".join(f"{count:,} {mark}" for mark, count in marks.items())
    return (
        f"the list of skills costs each request about {bounds.tokens:,} tokens, over MCP about "
        f"{bounds.mcp_tokens:,}: {named or 'no skills'}"
    )

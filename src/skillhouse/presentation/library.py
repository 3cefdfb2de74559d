"""Lists of skills for people: every skill here with its state, filters, and what is left out."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import skillhouse.house
from skillhouse import manage
from skillhouse.answers.skills import LibrarySkillAnswer, catalog_tokens
from skillhouse.discovery import default_roots
from skillhouse.discovery.catalog import LISTED, NOT_LISTED, OVER_MCP, SEARCH_ONLY
from skillhouse.floor import digest
from skillhouse.house.skill_lines import AS_TOOLS
from skillhouse.presentation.short_paths import clients_of
from skillhouse.presentation.text import counted, moment, shown

if TYPE_CHECKING:
    from skillhouse.answers.catalogs import CatalogBoundsAnswer
    from skillhouse.floor import Locations
    from skillhouse.house import AbsentSkill, AgentView, Skillhouse
    from skillhouse.manage import CodeFacts
    from skillhouse.retrieval import Hit
    from skillhouse.skill import Skill


class SkillFilter(Struct, frozen=True, kw_only=True):
    """Which skills a list has, of the command line and of both lists of the HTTP API."""

    words: tuple[str, ...] = ()
    """Those that name, text or path must have, as `plain_letters` compares them."""
    scope: str | None = None
    roots: tuple[str, ...] | None = None
    """Beginnings of the paths, each with a slash at its end."""
    since: str = ""
    """The UTC time, or its beginning, since which SKILL.md changed."""
    used: frozenset[str] | None = None
    """Names that are left out, as of what was used; None where that was not asked."""

    @property
    def is_whole(self) -> bool:
        is_open = self.roots is None and self.used is None
        return is_open and not (self.words or self.scope or self.since)

    def takes(self, name: str, *texts: str, scope: str, path: str) -> bool:
        """Whether a list has what is at a path.

        >>> SkillFilter(words=("PDF",)).takes("pdf", "Merges.", scope="user", path="/a/SKILL.md")
        True
        """
        if self.scope is not None and scope != self.scope:
            return False
        if self.roots is not None and not path.startswith(self.roots):
            return False
        if self.used is not None and name in self.used:
            return False
        changed = changed_at(path) if self.since else 0.0
        # What cannot be looked at has no time, and is not left out for it.
        if changed and moment(changed) < self.since:
            return False
        if not self.words:
            return True
        everything = plain_letters("\n".join((name, *texts, path)))
        return all(plain_letters(word) in everything for word in self.words)

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

    def code(
        self, found: Iterable[CodeFacts], unused: Mapping[Path, AbsentSkill]
    ) -> list[CodeFacts]:
        """Return the skills with code of which agents have tools, or would if code were on."""
        return [
            one
            for one in found
            if (one.directory not in unused or unused[one.directory].state == "code-off")
            and self.takes(one.name, scope=one.scope, path=str(one.directory / "SKILL.md"))
        ]

    def lines(self, lines: Iterable[LibraryLine]) -> list[LibraryLine]:
        return [one for one in lines if self.takes(*one.texts, scope=one.scope, path=one.path)]


_ACCENTS = re.compile("[\u0300-\u036f]")


def plain_letters(text: str) -> str:
    """Return a text as filters compare it, without case and accents.

    INVARIANT: the script of the page of all skills does the same: compatibility decomposition
    (NFKD), no combining marks of U+0300 to U+036F, capitals.

    >>> plain_letters("Résumé, Straße, ΟΔΟΣ οδος, ﬁle, ｐｄｆ")
    'RESUME, STRASSE, ΟΔΟΣ ΟΔΟΣ, FILE, PDF'
    """
    if text.isascii():
        return text.upper()
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).upper()


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
    code: CodeFacts | None = None
    """Its own tools, where its code is on or no SKILL.md is beside it."""

    @property
    def id(self) -> str:
        if self.skill is not None:
            return self.skill.id
        if self.code is not None:
            return self.code.id
        return self.absent.id if self.absent else ""

    @property
    def name(self) -> str:
        found = self.skill or self.code or self.absent
        return found.name if found else ""

    @property
    def description(self) -> str:
        if self.skill is not None:
            return self.skill.description
        manifest = self.code.manifest if self.code else None
        return manifest.description if manifest else ""

    @property
    def root(self) -> Path | None:
        """The directory of skills that it is in; None where that is not known."""
        if self.skill is not None:
            return Path(self.skill.root)
        return self.code.directory.parent if self.code else None

    @property
    def listed_tokens(self) -> int:
        """Estimated tokens that each request has of it: name and description, or its tools."""
        if self.skill is not None:
            return catalog_tokens(self.skill)
        return self.code.tool_tokens() if self.code else 0

    @property
    def listing(self) -> str:
        """The word for `mark`, by which lists are filtered; empty for one that is not in use."""
        return LISTINGS.get(self.mark, "") if self.absent is None else ""

    @property
    def state(self) -> str:
        return "in-use" if self.absent is None else self.absent.state

    @property
    def texts(self) -> list[str]:
        """What a filter looks at besides the path."""
        absent = self.absent
        parts = [self.name, self.description]
        if self.code is not None and self.code.manifest is not None:
            for tool in self.code.manifest.tools:
                parts += [tool.name, tool.description]
        return [*parts, absent.name, absent.reason] if absent else parts

    @property
    def scope(self) -> str:
        if self.skill is not None:
            return self.skill.scope
        if self.code is not None:
            return self.code.scope
        return self.absent.scope if self.absent else ""


LISTINGS: Mapping[str, str] = {
    LISTED: "listed",
    SEARCH_ONLY: "search-only",
    NOT_LISTED: "not-listed",
    SEARCH_ONLY + OVER_MCP: "search-only-mcp",
    NOT_LISTED + OVER_MCP: "not-listed-mcp",
    AS_TOOLS: "tools",
}
"""A word for each way in which a model hears of a skill in use, in the order of lists."""


class LibraryCounts(Struct, frozen=True, kw_only=True):
    """How many skills here are in use, by how a model hears of them, and how many are not."""

    listings: Mapping[str, int]
    """Those in use by a word of `LISTINGS`."""
    states: Mapping[str, int]
    """All of them by state."""

    @property
    def in_use(self) -> int:
        return self.states.get("in-use", 0)

    @property
    def not_in_use(self) -> int:
        return sum(self.states.values()) - self.in_use


def library_counts(lines: Iterable[LibraryLine]) -> LibraryCounts:
    """Count what `list`, the page and the API show, of one agent.

    INVARIANT: each line has one state, and each in use one listing, so that the listings together
    are `in_use`, and the states together are all lines.
    """
    lines = list(lines)
    used = Counter(one.listing for one in lines if one.state == "in-use")
    return LibraryCounts(
        listings={word: used[word] for word in LISTINGS.values() if used[word]},
        states=Counter(one.state for one in lines),
    )


def counts_line(counts: LibraryCounts) -> str:
    """Return for people how many skills are in use, and how a model hears of them.

    >>> counts_line(LibraryCounts(listings={"listed": 2, "search-only": 1}, states={"in-use": 3}))
    'in use: 3 (2 listed, 1 found by search only); not in use: 0'
    """
    texts = {word: mark for mark, word in LISTINGS.items()}
    parts = ", ".join(f"{count:,} {texts[word]}" for word, count in counts.listings.items())
    used = f"{counts.in_use:,}" + (f" ({parts})" if parts else "")
    return f"in use: {used}; not in use: {counts.not_in_use:,}"


def library_lines(house: Skillhouse, *, agent: str = "default") -> Iterator[LibraryLine]:
    """Yield what an agent sees in catalog order, and then the rest by state; each file once.

    Skills of code alone follow those with a SKILL.md. ConfigError: no agent has that name.
    """
    index = house.index
    absent: dict[str, AbsentSkill] = {}
    for one in manage.absent_skills(house, agent=agent):
        absent.setdefault(one.path, one)
    view = house.view(agent)
    # What reads manifests is loaded only where there may be some.
    has_code = house.runs_code or manage.may_hold_code(house)
    alone = list(_code_alone(house, agent)) if has_code else []
    every = manage.offered_code(house) if has_code else ()
    code = {str(facts.directory): facts for facts in every}
    for skill in view.visible.skills:
        why = absent.pop(skill.file, None)
        own = code.get(os.path.dirname(skill.file))
        yield LibraryLine(path=skill.file, skill=skill, absent=why, mark=view.mark(skill), code=own)
    for facts, gone in alone:
        if gone is None:
            path = str(facts.directory)
            mark = view.code_mark(facts.directory)
            yield LibraryLine(path=path, skill=None, absent=None, mark=mark, code=facts)
    known = {skill.file: skill for skill in (*index.shadowed, *index.skills)}
    for path, rest in absent.items():
        own = code.get(os.path.dirname(path))
        yield LibraryLine(path=path, skill=known.get(path), absent=rest, code=own)
    for facts, gone in alone:
        if gone is not None:
            yield LibraryLine(path=gone.path, skill=None, absent=gone, code=facts)


def _code_alone(house: Skillhouse, agent: str) -> Iterator[tuple[CodeFacts, AbsentSkill | None]]:
    from skillhouse.manage.code_facts import code_alone  # noqa: PLC0415 - most homes have none.

    return code_alone(house, agent=agent)


def unused_code(house: Skillhouse) -> Mapping[Path, AbsentSkill]:
    """Return why agents have no tools of skills of code alone, by their directories."""
    alone = _code_alone(house, "default")
    return {facts.directory: why for facts, why in alone if why is not None}


def whole_counts(house: Skillhouse) -> LibraryCounts:
    return library_counts(library_lines(house))


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
    absent, own = line.absent, line.code
    hint = (absent.hint or None) if absent else None
    return LibrarySkillAnswer(
        key=digest(line.path.encode(errors="surrogateescape")).removeprefix("sha256:")[:16],
        # What has no id by its text has the name of its folder.
        id=line.id or line.name or line.path,
        name=line.name,
        description=line.description,
        scope=line.scope,
        path=line.path,
        clients=clients_of(line.root, home) if line.root else (),
        state=line.state,
        listing=line.mark,
        reason=absent.reason if absent else "",
        hint=hint,
        mend=hint,
        code=(absent.code or None) if absent else None,
        line=(absent.line or None) if absent else None,
        catalog_tokens=line.listed_tokens,
        file_tokens=_file_tokens(line.path),
        recent=ranks.get(line.path),
        language=own.manifest.language if own and own.manifest else "",
        tools=own.tool_names if own else (),
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


def list_notes(house: Skillhouse) -> list[str]:
    """Return how many skills a list of the default agent leaves out, and which list; or nothing."""
    view = house.view()
    if all(mark == LISTED for mark in view.marks.values()):
        return view_notes(view)
    return [counts_line(whole_counts(house)), *view_notes(view)]


def view_notes(view: AgentView) -> list[str]:
    """Return `catalog_notes` of the lists that a view makes; of their costs nothing is measured."""
    exposure = view.profile.catalog.exposure
    if exposure == "search":
        return []
    in_tool = view.marked_over_mcp if exposure == "tool" else None
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


def list_summary(house: Skillhouse, count: int, choice: SkillFilter) -> str:
    """Return the last line of a list of so many skills: what is here, and what is not used."""
    index, view = house.snapshot.shown.index, house.view()
    parts = [counted(count, "skill")]
    if not choice.is_whole:
        parts[0] += f" of {len(view.visible)}"
    if view.hidden:
        parts.append(f"{len(view.hidden)} denied by rules")
    if view.for_people:
        parts.append(f"{len(view.for_people)} for people alone")
    disabled = len(index.skills) - len(view.visible) - len(view.hidden) - len(view.for_people)
    if disabled:
        parts.append(f"{disabled} disabled")
    exported = sum(found.code == skillhouse.house.EXPORTED_COPY for found in index.diagnostics)
    if len(index.shadowed) > exported:
        parts.append(f"{len(index.shadowed) - exported} shadowed")
    if exported:
        parts.append(f"{exported} exported")
    if waiting := house.snapshot.shown.waiting:
        parts.append(f"{len(waiting)} to look at with `skillhouse trust`")
    return ", ".join(parts)

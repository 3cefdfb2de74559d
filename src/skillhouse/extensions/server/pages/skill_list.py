"""The list of skills: filtered, sorted, and as the short index by which a browser does both."""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from skillhouse.extensions.server.pages.renderer import LINE_COLUMNS, NAME_MAX, edit_path, start
from skillhouse.extensions.server.pages.skill_rows import SkillRow
from skillhouse.manage import EDITABLE, STATES
from skillhouse.presentation.library import (
    LISTINGS,
    LibraryCounts,
    SkillFilter,
    library_counts,
    plain_letters,
)
from skillhouse.presentation.text import one_line, shown

WORDS = ("in-use", *LISTINGS.values(), "code", "not-in-use", "asks", "findings", *STATES)
"""By which the list is filtered, in the order in which they are offered."""
COLUMNS = (
    "description",
    "state",
    "listing",
    "scope",
    "tools",
    "clients",
    "tokens",
    "loaded",
    "used",
    "findings",
)
"""Besides the name, in their order."""
HIDDEN = ("tools", "clients", "tokens", "loaded")
"""Columns that are shown when a person chose them."""
_STATES = {state: at for at, state in enumerate(("in-use", *STATES))}
_LISTINGS = {word: at for at, word in enumerate(LISTINGS.values())}
_COMPRESSION = 5
"""Of gzip: a higher one takes twice as long for a twentieth less."""


class AddressFilter(Struct, frozen=True, kw_only=True):
    """What a person filters the list by, as the address of the page has it."""

    words: str = ""
    scope: str = ""
    client: str = ""
    state: str = ""

    @property
    def is_on(self) -> bool:
        return bool(self.words.strip() or self.scope or self.client or self.state)

    def takes(self, row: SkillRow) -> bool:
        if (self.scope and row.scope != self.scope) or (
            self.state and self.state not in row.problems
        ):
            return False
        if self.client and self.client not in row.clients:
            return False
        wanted = SkillFilter(words=tuple(self.words.split()))
        return wanted.takes(*matched_texts(row), scope=row.scope, path=row.path)


def matched_texts(row: SkillRow) -> tuple[str, ...]:
    """Return what the words of a filter are looked for in, besides the short path."""
    return (*row.line.texts, row.scope, row.language)


class ListView(Struct, frozen=True, kw_only=True):
    """How a person has the list: by which column it is sorted, and which are shown."""

    sort: str = ""
    """A column, or `name`; with `-` before it from the end. Empty: as agents get them."""
    columns: tuple[str, ...] = tuple(one for one in COLUMNS if one not in HIDDEN)

    @classmethod
    def of(cls, sort: str, columns: str | None) -> ListView:
        """Return the view of an address; what it does not know it leaves out.

        >>> ListView.of("-used", "state,x").columns, ListView.of("x", None).sort
        (('state',), '')
        """
        wanted = sort if sort.removeprefix("-") in SORTS else ""
        if columns is None:
            return cls(sort=wanted)
        chosen = columns.split(",")
        return cls(sort=wanted, columns=tuple(one for one in COLUMNS if one in chosen))

    @property
    def column(self) -> str:
        return self.sort.removeprefix("-")

    @property
    def hidden(self) -> tuple[str, ...]:
        return tuple(one for one in COLUMNS if one not in self.columns)

    @property
    def columns_text(self) -> str:
        """As the address has them; empty for those that everyone gets."""
        return "" if self.columns == ListView().columns else ",".join(self.columns) or "none"

    def next_sort(self, column: str) -> str:
        """Return by what another press on the head of a column sorts."""
        first = f"-{column}" if column in _GREATEST_FIRST else column
        other = column if first.startswith("-") else f"-{column}"
        return {first: other, other: ""}.get(self.sort, first)


SORTS: Mapping[str, Callable[[SkillRow], Any]] = {
    "name": lambda row: plain_letters(row.name),
    "description": lambda row: plain_letters(row.description),
    "state": lambda row: _STATES.get(row.state, len(_STATES)),
    "listing": lambda row: _LISTINGS.get(row.line.listing, len(_LISTINGS)),
    "scope": lambda row: row.scope,
    "tools": lambda row: row.tools,
    "clients": lambda row: len(row.clients),
    "tokens": lambda row: row.line.listed_tokens,
    "loaded": lambda row: row.file_tokens,
    "used": lambda row: row.last_used,
    "findings": lambda row: row.findings,
}
_GREATEST_FIRST = ("tools", "clients", "tokens", "loaded", "used", "findings")
_RANKS = ("state", "listing")
"""Columns whose least value is one."""


class Choices(Struct, frozen=True, kw_only=True):
    """What a list can be filtered by, with the number of rows of each."""

    scopes: Mapping[str, int]
    clients: Mapping[str, int]
    problems: Mapping[str, int]


def choices_of(rows: Iterable[SkillRow]) -> Choices:
    rows = list(rows)
    clients = Counter(client for row in rows for client in row.clients)
    problems = Counter(itertools.chain.from_iterable(row.problems for row in rows))
    return Choices(
        scopes=Counter(row.scope for row in rows if row.scope),
        clients=dict(sorted(clients.items())),
        problems={word: problems[word] for word in WORDS if problems[word]},
    )


class ShownRow(NamedTuple):
    """A row as the page draws it, and as a browser does, by the index; texts are safe to show."""

    key: str
    """Its short path, which no other row has."""
    reference: str
    name: str
    description: str
    is_path: bool
    """Whether the description is the path of one that has none."""
    state: str
    listing: str
    effect: str
    scope: str
    clients: tuple[str, ...]
    language: str
    tools: int
    tokens: int
    loaded: int
    used: str
    findings: int
    reason: str
    edit: str
    """The address at which one is edited that cannot be read; or empty."""
    is_on: bool
    is_switchable: bool
    is_deletable: bool


def shown_row(row: SkillRow) -> ShownRow:
    line = row.line
    is_described = bool(row.description)
    other = shown(row.path) if row.name != row.path else ""
    return ShownRow(
        key=row.path,
        reference=row.reference,
        name=start(row.name, columns=NAME_MAX),
        description=start(row.description, columns=LINE_COLUMNS) if is_described else other,
        is_path=not is_described and bool(other),
        state=row.state,
        listing=line.listing,
        effect=row.effect if row.effect != "allow" else "",
        scope=shown(row.scope),
        clients=row.clients,
        language=shown(row.language),
        tools=row.tools,
        tokens=line.listed_tokens,
        loaded=row.file_tokens,
        used=row.last_used,
        findings=row.findings if line.skill or line.code else 0,
        reason=one_line(row.reason),
        edit=edit_path(line.path) if row.own_scope else "",
        is_on=row.is_on,
        is_switchable=row.is_switchable,
        is_deletable=line.skill is not None
        and row.scope in EDITABLE
        and row.reference == line.skill.id,
    )


class PackedIndex(NamedTuple):
    """What a browser filters and draws by, as JSON: whole, compressed, and the tag of it."""

    data: bytes
    packed: bytes
    tag: str


class SkillList:
    """The rows of one state of the skills, and what is made of them once.

    A list is kept for as long as nothing changes, and each of these may be asked for by each load.
    """

    def __init__(self, rows: Sequence[SkillRow]) -> None:
        self.rows = rows

    @functools.cached_property
    def counts(self) -> LibraryCounts:
        return library_counts(row.line for row in self.rows)

    @functools.cached_property
    def choices(self) -> Choices:
        return choices_of(self.rows)

    @functools.cached_property
    def by_reference(self) -> Mapping[str, SkillRow]:
        return {row.reference: row for row in self.rows}

    @functools.cached_property
    def _indexes(self) -> dict[str, PackedIndex]:
        return {}

    def index(self, sort: str) -> PackedIndex:
        """Return the index, its rows in an order of `SORTS`."""
        if sort not in self._indexes:
            # Of the orders one has chosen the last one is kept, beside that of agents.
            for other in [one for one in self._indexes if one]:
                del self._indexes[other]
            self._indexes[sort] = _packed(index_of(in_order(self.rows, sort)))
        return self._indexes[sort]


def in_order(rows: Sequence[SkillRow], sort: str) -> Sequence[SkillRow]:
    """Return rows by a column; those that have nothing there are last, whichever way."""
    if not sort:
        return rows
    column = sort.removeprefix("-")
    value = SORTS[column]
    empty = [] if column in _RANKS else [row for row in rows if not value(row)]
    full = [row for row in rows if column in _RANKS or value(row)]
    return [*sorted(full, key=value, reverse=sort.startswith("-")), *empty]


def index_of(rows: Iterable[SkillRow]) -> dict[str, Any]:
    """Return what a browser needs to filter and draw rows: short, since there may be 10,000.

    A row has the fields of `ShownRow` in their order, for its clients their place in the list
    beside the rows; before them the place of its words, and after them what else a filter looks at,
    and whether its name and description are what a filter looks at as they are shown.
    """
    kinds: dict[tuple[str, ...], int] = {}
    clients: dict[tuple[str, ...], int] = {}
    every = []
    for row in rows:
        one = shown_row(row)
        is_whole = row.line.name == one.name and row.description in ("", one.description)
        known = {row.line.name, row.description, row.path} if is_whole else {row.path}
        more = dict.fromkeys(text for text in row.line.texts if text and text not in known)
        values = one._asdict()
        values |= {name: int(value) for name, value in values.items() if isinstance(value, bool)}
        values["clients"] = clients.setdefault(one.clients, len(clients))
        kind = kinds.setdefault(row.problems, len(kinds))
        every.append([kind, *values.values(), "\n".join(more), int(is_whole)])
    return {"kinds": list(kinds), "clients": list(clients), "rows": every}


def _packed(index: Mapping[str, Any]) -> PackedIndex:
    # A path may have bytes that are no text, which only escapes can carry.
    data = json.dumps(index, separators=(",", ":")).encode()
    packed = gzip.compress(data, _COMPRESSION, mtime=0)
    return PackedIndex(data, packed, f'W/"{hashlib.sha256(data).hexdigest()[:32]}"')


BLANK = ShownRow(
    key="-",
    reference="-",
    name="{name}",
    description="",
    is_path=False,
    state="",
    listing="",
    effect="ask",
    scope="",
    clients=(),
    language="",
    tools=0,
    tokens=0,
    loaded=0,
    used="",
    findings=0,
    reason="-",
    edit="-",
    is_on=True,
    is_switchable=True,
    is_deletable=True,
)
"""Has each part that a row may have: of it a browser makes those that are not in the page."""

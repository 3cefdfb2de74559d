"""The rows of the list of skills: what is known of every skill here."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from skillhouse.audit import AuditError, AuditLog, Query, entries_of
from skillhouse.extensions.server.status import SkillScan
from skillhouse.house import Skillhouse, loading_effects
from skillhouse.manage import STATES, OwnRoots
from skillhouse.permission import Effect
from skillhouse.presentation.findings import READ_ALL_THE_SAME
from skillhouse.presentation.library import LibraryLine, library_lines
from skillhouse.presentation.short_paths import clients_of, short_path
from skillhouse.skill import Skill

DIGESTS_MAX = 40
"""Project skills of one list whose files are read to know whether loading one asks a person."""
RECORDS_MAX = 2_000
"""Newest records of the audit log that are read to know when a skill was used last."""
_NOT_USED = ("shadowed", "exported")
"""States in which another skill of the name is used."""


class SkillRow(Struct, frozen=True, kw_only=True):
    """One skill, or a file or place that is none."""

    line: LibraryLine
    reference: str
    """By which its page is found; empty where it has none."""
    own_scope: str
    """Of a broken one that is a person's own, whose SKILL.md can be edited; empty for others."""
    path: str
    """With `~` or `.` where that is shorter."""
    clients: tuple[str, ...]
    """Clients that read the directory it is in, where that is known."""
    effect: str
    """What loading it does: allow, ask, deny; empty where that is not known or cannot happen."""
    file_tokens: int
    """Estimated tokens of its SKILL.md, which a conversation has that loads it; 0: not known."""
    last_used: str
    """UTC time of the newest record about it; empty where there is none."""
    findings: int

    @property
    def name(self) -> str:
        return self.line.name or self.path

    @property
    def description(self) -> str:
        return self.line.description

    @property
    def language(self) -> str:
        """Of its own code; empty for a skill without any."""
        return self.line.code.language if self.line.code else ""

    @property
    def tools(self) -> int:
        """How many tools its code has."""
        return len(self.line.code.tool_names) if self.line.code else 0

    @property
    def state(self) -> str:
        return self.line.state

    @property
    def mark(self) -> str:
        """How a model hears of it."""
        return self.line.mark

    @property
    def reason(self) -> str:
        """Why agents do not see it, and what to do; empty for one in use."""
        return self.line.absent.text if self.line.absent else ""

    @property
    def scope(self) -> str:
        return self.line.scope or self.own_scope

    @property
    def is_on(self) -> bool:
        return self.state != "disabled"

    @property
    def is_switchable(self) -> bool:
        if self.line.skill is None and self.line.code is not None:
            return self.state not in (*_NOT_USED, "broken", "code-off")
        skill = self.line.skill
        return skill is not None and self.state not in _NOT_USED and self.reference == skill.id

    @property
    def problems(self) -> tuple[str, ...]:
        """The words by which the list is filtered."""
        found = [self.line.listing] if self.line.listing else []
        found += ["code"] if self.line.code else []
        found += [] if self.state == "in-use" else ["not-in-use"]
        found += ["asks"] if self.effect == Effect.ASK else []
        found += ["findings"] if self.findings else []
        return (self.state, *found)


class LastUse:
    """When each skill and each tool of skills' own code was used last, by its name.

    Only records that are new are read again.
    """

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._newest = ""
        self._seen: dict[str, str] = {}
        self._lock = threading.Lock()

    def times(self) -> Mapping[str, str]:
        """Return the UTC times by names of skills; those that were known if the log is damaged."""
        with self._lock:
            fresh: dict[str, str] = {}
            newest = ""
            try:
                entries = entries_of(self._log.path, Query(), key=self._log.key)
                for entry in itertools.islice(entries, RECORDS_MAX):
                    record = entry.record
                    newest = newest or record.id
                    if record.id <= self._newest:
                        break
                    if record.skill or "__" in record.tool:
                        fresh.setdefault(record.skill or record.tool, record.ts)
            except AuditError:
                # The page says what is wrong with the log, and the times are of little weight.
                return dict(self._seen)
            self._newest = newest or self._newest
            self._seen = {**self._seen, **fresh}
            return dict(self._seen)


def skill_rows(
    house: Skillhouse, scan: SkillScan, used: Mapping[str, str], agent: str = "default"
) -> list[SkillRow]:
    """Return a row for everything here: in use first, in catalog order, then by state.

    The caller holds the lock of `house`; `used` are the times of `LastUse`.
    """
    start, home = house.config.places.start, house.config.places.home
    findings = Counter(
        str(one.path)
        for one in scan.index.diagnostics
        if one.path is not None and one.code not in READ_ALL_THE_SAME
    )
    visible = house.view(agent).visible.skills
    effects = loading_effects(house, visible, digests=DIGESTS_MAX, agent=agent)
    roots: dict[str, tuple[str, ...]] = {}
    own_roots = OwnRoots(house)
    rows = []
    for line in library_lines(house, agent=agent):
        skill = line.skill
        reference = ""
        clients: tuple[str, ...] = ()
        if skill is None and line.code is not None:
            # Of two of one id the weaker is found by its directory.
            is_weaker = line.state == "shadowed"
            reference = str(line.code.directory) if is_weaker else line.code.id
            clients = clients_of(line.code.directory.parent, home)
        elif skill is not None:
            reference = skill.id if scan.by_id.get(skill.id) is skill else skill.file
            if skill.root not in roots:
                roots[skill.root] = clients_of(Path(skill.root), home)
            clients = roots[skill.root]
        is_broken = skill is None and line.code is None and line.state == "broken"
        is_used = (skill or line.code) and line.state not in _NOT_USED
        rows.append(
            SkillRow(
                line=line,
                reference=reference,
                own_scope=own_roots.scope_of(Path(line.path)) if is_broken else "",
                path=short_path(line.path, start, home),
                clients=clients,
                effect=effects.get(line.path, "") if line.state == "in-use" else "",
                file_tokens=_tokens(skill),
                last_used=_last_used(line, used) if is_used else "",
                findings=findings.get(line.path, 0) + len(line.code.problems if line.code else ()),
            )
        )
    order = {"in-use": 0} | {state: at for at, state in enumerate(STATES, 1)}
    return sorted(rows, key=lambda row: order.get(row.state, len(order)))


def _last_used(line: LibraryLine, used: Mapping[str, str]) -> str:
    names = [line.name] if line.skill else []
    names += line.code.wire_names if line.code else ()
    return max((used.get(name, "") for name in names), default="")


def _tokens(skill: Skill | None) -> int:
    """Return the tokens of a SKILL.md by the size that it had when it was found; 0: not known."""
    return -(-skill.signature[2] // 4) if skill and skill.signature else 0

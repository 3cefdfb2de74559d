"""What a client's bounds leave of its list; the rules are the profile's `catalog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skillhouse.clients.simulation.verdicts import Budget, Cut
from skillhouse.skill import CatalogRule


class ListedSkill(NamedTuple):
    """A skill as it would stand in a list without bounds."""

    key: str
    name: str
    description: str
    path: str


def fit(rule: CatalogRule, listed: Sequence[ListedSkill]) -> tuple[Budget | None, dict[str, Cut]]:
    """Return how the list stands to its bound, and what is cut of which skill."""
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
    room = rule.budget_chars - rule.reserved_chars
    needed = sum(whole)
    over: dict[str, Cut] = {}
    if needed > room:
        extra = [full - short for full, short in zip(whole, bare, strict=True)]
        place = _shortened if rule.overflow == "shorten" else _without
        marks = _omitted(bare, room) if rule.overflow == "omit" else place(bare, extra, room)
        over = {
            skill.key: mark
            for skill, mark in zip(listed, marks, strict=True)
            if mark is not Cut.NOTHING
        }
    budget = Budget(
        limit=rule.budget_chars,
        reserved=rule.reserved_chars,
        needed=needed,
        shortened=sum(cut is Cut.SHORTENED for cut in over.values()),
        without_description=sum(cut is Cut.NO_DESCRIPTION for cut in over.values()),
        omitted=sum(cut is Cut.OMITTED for cut in over.values()),
    )
    return budget, cuts | over


def _size(rule: CatalogRule, entry: str) -> int:
    """Return what an entry and its newline count."""
    if rule.entry_unit == 1:
        return len(entry) + 1
    length = len(entry.encode("utf-8", "replace")) + 1
    return -(-length // rule.entry_unit) * rule.entry_unit


def _without(bare: list[int], extra: list[int], room: int) -> list[Cut]:
    """Keep every name, and each description, in the order of the list, that there is room for."""
    left = room - sum(bare)
    marks = []
    for size in extra:
        fits = size <= left
        left -= size if fits else 0
        marks.append(Cut.NOTHING if fits else Cut.NO_DESCRIPTION)
    return marks


def _shortened(bare: list[int], extra: list[int], room: int) -> list[Cut]:
    """Give all descriptions the same room; without any, omit what does not fit."""
    left = room - sum(bare)
    if left <= 0:
        marks = _omitted(bare, room)
        return [Cut.NO_DESCRIPTION if mark is Cut.NOTHING else mark for mark in marks]
    share = left
    for place, size in enumerate(sorted(extra)):
        share = left // (len(extra) - place)
        if size > share:
            break
        left -= size
    return [Cut.NOTHING if size <= share else Cut.SHORTENED for size in extra]


def _omitted(bare: list[int], room: int) -> list[Cut]:
    marks = []
    for size in bare:
        fits = size <= room
        room -= size if fits else 0
        marks.append(Cut.NOTHING if fits else Cut.OMITTED)
    return marks

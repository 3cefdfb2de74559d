"""Judges what repositories list for a text as the search on this machine judges its skills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from skillhouse.retrieval import SearchIndex, SearchResult

if TYPE_CHECKING:
    from skillhouse.house.config import RepositorySettings
    from skillhouse.registry import ListedSkill
    from skillhouse.retrieval import Hit


class ListedHit(NamedTuple):
    """A skill that a repository lists for a text."""

    settings: RepositorySettings
    skill: ListedSkill
    hit: Hit | None
    """None where only the repository knows why it fits."""


def judged_listing(
    found: Sequence[tuple[RepositorySettings, ListedSkill]], text: str
) -> tuple[list[ListedHit], bool]:
    """Return what repositories found for a text, and whether nothing of it fits well.

    Repositories keep their order, since a name is taken from the first that has it; in each the
    skills are best first, as names and descriptions are judged here, then those whose words are not
    those of the text.

    Raises:
        SearchError: this Python's SQLite has no full-text module.
    """
    if not text:
        return [ListedHit(*one, None) for one in found], False
    documents = [
        (str(at), one.typed.rpartition("/")[2], one.description, "")
        for at, (_, one) in enumerate(found)
    ]
    result = SearchResult(hits=tuple(SearchIndex(documents).search(text, limit=len(documents))))
    of_place = {int(hit.id): hit for hit in result.hits}
    ranks = {place: rank for rank, place in enumerate(of_place)}
    turns = {name: at for at, name in enumerate(dict.fromkeys(one.name for one, _ in found))}
    order = sorted(
        range(len(found)), key=lambda at: (turns[found[at][0].name], ranks.get(at, len(found)), at)
    )
    return [ListedHit(*found[at], of_place.get(at)) for at in order], result.is_weak

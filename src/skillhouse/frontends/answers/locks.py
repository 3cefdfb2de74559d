"""The locks of installed skills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillhouse.frontends.answers.json_form import Count, JsonAnswer

if TYPE_CHECKING:
    from skillhouse.registry import InstallPlace, LockMerge


class DecidedEntryAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Which side's entry was taken, and why."""

    name: str
    why: str
    tree_digest: str | None


class LockAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A lock, and what came of its merge."""

    scope: str
    path: str
    merged: bool = False
    skills: Count = 0
    decided: tuple[DecidedEntryAnswer, ...] = ()
    unclear: tuple[str, ...] = ()
    problem: str = ""


def merged_lock(place: InstallPlace, found: LockMerge, *, is_dry: bool) -> LockAnswer:
    decided = (
        DecidedEntryAnswer(
            name=one.name,
            why=one.why,
            tree_digest=None if one.entry is None else one.entry.tree_digest,
        )
        for one in found.decided
    )
    return LockAnswer(
        scope=place.scope,
        path=str(place.lock),
        merged=not found.unclear and not is_dry,
        skills=len(found.lock.skills),
        decided=tuple(decided),
        unclear=tuple(found.unclear),
        problem="both sides changed them: use --ours or --theirs" if found.unclear else "",
    )

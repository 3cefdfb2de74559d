"""Whether a name may be taken for that of a skill that a person knows, or that is older."""

from __future__ import annotations

from collections.abc import Iterable

from skillhouse.floor import isolated
from skillhouse.install.repositories import FoundSkill
from skillhouse.registry import LockEntry, SkillReleases, split_name
from skillhouse.registry.near_names import is_near
from skillhouse.registry.releases import locked_place

LISTED_MAX = 200
"""Skills of a repository whose names are compared."""


def near_installed(name: str, entry: LockEntry, installed: Iterable[tuple[str, LockEntry]]) -> str:
    """Return what to say where a name is near that of an installed skill of someone else."""
    for other, known in installed:
        if is_near(name, other) and not _is_of_one_owner(entry, known):
            return (
                f"`{name}` may be taken for `{other}`, which is installed from {known.repository}"
            )
    return ""


def _is_of_one_owner(one: LockEntry, other: LockEntry) -> bool:
    mine, theirs = one.signature, other.signature
    if mine is not None and theirs is not None and mine.who == theirs.who:
        return True
    # Of a repository of packages many publish; a git repository is of those who write to it.
    return one.repository == other.repository and locked_place(one.repository) is None


def near_listed(found: FoundSkill) -> str:
    """Return what to say where a name is near an older one of the same repository and namespace."""
    skill, repository = found.skill, found.repository
    with isolated():
        # A repository without a list has no names to compare; it still has the skill.
        listed = {split_name(one.name) for one in repository.listed("", limit=LISTED_MAX)}
        for namespace, other in sorted(listed):
            if namespace != skill.namespace or not is_near(skill.skill, other):
                continue
            known = repository.skill(namespace, other)
            if known is not None and _is_older(known, skill):
                return (
                    f"`{skill.skill}` may be taken for `{other}`, which "
                    f"`{found.settings.name}` had before"
                )
    return ""


def _is_older(one: SkillReleases, other: SkillReleases) -> bool:
    signers = [
        {who.signature.who for who in found.versions if who.signature} for found in (one, other)
    ]
    dates = [min((x.published_at for x in found.versions), default="") for found in (one, other)]
    return bool(dates[0]) and dates[0] < dates[1] and not signers[0] & signers[1]

"""Tries how a client would load a skill, before it is written anywhere."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from skillhouse.clients.comparison import compare
from skillhouse.clients.verdicts import LISTED, Lens, LensSkill, LensState, Verdict
from skillhouse.discovery import default_roots
from skillhouse.floor import Locations, PathError, read_beneath
from skillhouse.skill import (
    CAUSES,
    SKILL_FILE,
    SKILL_FILE_MAX,
    Profile,
    Skill,
    hidden_text,
    list_resources,
)

LEAF_MAX_BYTES = 255
"""Bytes of a file's name (Linux, macOS)."""

_UNFIT = frozenset('/\\:*?"<>|')
"""Characters that are special in paths on some system."""


def leaf_of(skill: Skill) -> str:
    """Return the name of a skill's directory in other clients; empty when none is valid.

    It is the skill's name, because clients disagree whether name or directory counts.
    """
    name = skill.name.rpartition(":")[2] if skill.scope == "plugin" else skill.name
    fits = (
        0 < len(name.encode("utf-8", "replace")) <= LEAF_MAX_BYTES
        and name.isprintable()
        and name == name.strip()
        and name[0] != "."
        and name[-1] != "."
        and not _UNFIT & set(name)
    )
    return name if fits else ""


def try_skills(skills: Mapping[str, Skill], profile: Profile) -> dict[str, Verdict]:
    """Return a client's verdict on each skill, by directory name, in an otherwise empty home."""
    with tempfile.TemporaryDirectory(prefix="skillhouse-") as base:
        home = Path(os.path.realpath(base))
        start = home / "start"
        roots = default_roots(start=start, home=home, environment={}, profile=profile)
        fitting = (r.path for r in roots if r.scope == "user" and r.path.is_relative_to(home))
        root = next(fitting, None)
        if root is None:
            return {}
        start.mkdir()
        for leaf, skill in skills.items():
            try:
                data = read_beneath(skill.directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
            except PathError:
                # A link, which copying refuses with a reason.
                continue
            (root / leaf).mkdir(parents=True)
            (root / leaf / SKILL_FILE).write_bytes(data)
        lens = compare(start=start, home=home, environment={}, profiles=[profile])
        by_place = {place: skill for skill in lens.skills for place in skill.places}
        places = {leaf: str(root / leaf / SKILL_FILE) for leaf in skills}
        return {
            leaf: by_place[place].verdicts[0] for leaf, place in places.items() if place in by_place
        }


def objection(verdict: Verdict | None) -> str:
    """Return why a client would not load a skill, and the fix; empty when it would."""
    if verdict is None or verdict.state in LISTED:
        return ""
    cause = CAUSES.get(verdict.code)
    if cause is None or not cause.title:
        return verdict.reason or verdict.code
    return f"{cause.title}; {cause.mend}"


def remarks(verdict: Verdict | None, skill: Skill, client: str) -> list[str]:
    if verdict is None:
        return []
    notes = []
    if verdict.state is LensState.MANUAL:
        notes.append(f"in {client} only people can start it (disable-model-invocation)")
    if verdict.name and verdict.name != skill.name:
        notes.append(f"{client} calls it `{verdict.name}`")
    if verdict.code in CAUSES and CAUSES[verdict.code].title and verdict.state is LensState.SEEN:
        notes.append(f"{client} reads it otherwise: {CAUSES[verdict.code].title}")
    return notes


def hidden_notes(skill: Skill) -> list[str]:
    """Return a note for each text file with hidden characters, which a copy keeps."""
    notes = []
    for relative in (SKILL_FILE, *list_resources(skill.directory)[0]):
        try:
            data = read_beneath(skill.directory, relative, max_bytes=SKILL_FILE_MAX)
            hidden = hidden_text(data.decode())
        except (PathError, UnicodeDecodeError):
            continue
        if hidden is not None:
            notes.append(f"`{relative}` holds hidden characters: {hidden.summary}")
    return notes


class Seen:
    def __init__(self, places: Locations, project: Path, profiles: Sequence[Profile]) -> None:
        self._lens: Lens = compare(
            start=project,
            home=places.home,
            environment=places.environment,
            profiles=profiles,
        )
        self._names = [profile.name for profile in profiles]

    def at(self, skill: Skill, client: str, roots: Sequence[str]) -> str:
        """Return the path at which a client sees a skill below `roots`; empty when it does not."""
        below = tuple(f"{root}/" for root in roots)
        for known in self._known(client):
            if known.file == os.path.realpath(skill.file):
                return next((place for place in known.places if place.startswith(below)), "")
        return ""

    def others(self, name: str, client: str, but: Sequence[str]) -> list[str]:
        """Return the short paths of other skills with a name in a client."""
        number = self._names.index(client)
        return [
            self._lens.short(known.places[0])
            for known in self._known(client)
            if known.verdicts[number].name.casefold() == name.casefold() and known.file not in but
        ]

    def _known(self, client: str) -> Iterator[LensSkill]:
        number = self._names.index(client)
        for skill in self._lens.skills:
            if skill.verdicts[number].state in LISTED:
                yield skill

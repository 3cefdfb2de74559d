"""Public collections of skills, for who has configured no repository.

`public_collections.toml` beside this file lists repositories of GitHub. What is in them is read
when a person asks for it, and kept for a day.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from skillhouse.floor import (
    SkillhouseError,
    digest,
    isolated,
    make_private,
    nearest,
    read_regular,
    write_atomically,
)
from skillhouse.house.config import RepositorySettings
from skillhouse.registry import ListedSkill, SourceError
from skillhouse.skill import SKILL_FILE, install_name, parse

if TYPE_CHECKING:
    from skillhouse.install.skill_sources import OpenSource
    from skillhouse.registry import Candidate

KEPT_SECONDS = 24 * 60 * 60.0
"""How long the list of a collection is used before it is fetched again."""
_KEPT = "collections"
_KEPT_MAX = 16 * 1024 * 1024
_DESCRIPTION_MAX = 1_024


class CollectedSkill(Struct, frozen=True, kw_only=True):
    """One skill of a collection; all of it is the collection's word."""

    name: str
    description: str
    path: str


class _KeptCollection(Struct, frozen=True, kw_only=True):
    source: str
    fetched_at: float
    skills: tuple[CollectedSkill, ...]


def collections() -> tuple[str, ...]:
    """Return the collections, as `install` takes them.

    >>> collections()[0]
    'anthropics/skills'
    """
    text = Path(__file__).with_name("public_collections.toml").read_text(encoding="utf-8")
    return tuple(one["source"] for one in tomllib.loads(text)["collections"])


class PublicCollections:
    """What the collections have, each of which is fetched at most once a day."""

    def __init__(
        self,
        opened: Callable[[str], OpenSource],
        cache_directory: Path | None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Take what opens a source, and the directory where lists are kept; None for none."""
        self._opened = opened
        self._directory = None if cache_directory is None else cache_directory / _KEPT
        self._now = now

    def listed(
        self, problem: Callable[[str], None]
    ) -> list[tuple[RepositorySettings, ListedSkill]]:
        """Return all skills, in the order of the collections; the name of each is its collection's.

        Args:
            problem: Gets what is wrong with a collection; the others are still listed.
        """
        return [
            (RepositorySettings(name=source, url=f"https://github.com/{source}"), skill)
            for source, every in self._all(problem)
            for skill in _named(every)
        ]

    def place(self, name: str, *, only: str = "") -> str:
        """Return where a skill of a name is, as `install` takes it.

        Args:
            name: The skill.
            only: The one collection that is asked.

        Raises:
            SourceError: no collection has it, or several have.
        """
        problems: list[str] = []
        found = {
            f"{source}/{one.path}".rstrip("/"): one.name
            for source, every in self._all(problems.append)
            for one in every
            if only in ("", source)
        }
        places = [place for place, its in found.items() if its == name]
        if len(places) == 1:
            return places[0]
        if places:
            listed = " or ".join(f"`{place}`" for place in places)
            raise SourceError(f"several public collections have `{name}`: install {listed}")
        if problems:
            more = f": {problems[0]}"
        else:
            close = nearest(name, sorted(set(found.values())))
            more = f"; did you mean `{close[0]}`" if close else ""
        raise SourceError(f"no public collection has `{name}`{more}")

    def _all(
        self, problem: Callable[[str], None]
    ) -> Iterator[tuple[str, tuple[CollectedSkill, ...]]]:
        for source in collections():
            every: tuple[CollectedSkill, ...] = ()
            with isolated() as failed:
                every = self._of(source)
            for error in failed:
                problem(f"{source}: {error}")
            yield source, every

    def _of(self, source: str) -> tuple[CollectedSkill, ...]:
        file = None
        if self._directory is not None:
            name = digest(source.encode()).removeprefix("sha256:")[:32]
            file = self._directory / f"{name}.json"
            if (kept := self._read(file, source)) is not None:
                return kept.skills
        found = tuple(map(_collected, self._opened(source).candidates))
        skills = tuple(one for one in found if one is not None)
        if file is not None:
            entry = _KeptCollection(source=source, fetched_at=self._now(), skills=skills)
            # A cache that cannot be written costs another fetch, and no answer.
            with suppress(OSError):
                make_private(file.parent)
                with write_atomically(file) as written:
                    written.write(msgspec.json.encode(entry))
        return skills

    def _read(self, file: Path, source: str) -> _KeptCollection | None:
        try:
            kept = msgspec.json.decode(read_regular(file, _KEPT_MAX), type=_KeptCollection)
        except (OSError, SkillhouseError, msgspec.MsgspecError):
            # It is fetched again, and written whole.
            return None
        is_fresh = 0 <= self._now() - kept.fetched_at < KEPT_SECONDS
        return kept if is_fresh and kept.source == source else None


def _named(every: Sequence[CollectedSkill]) -> Iterator[ListedSkill]:
    return (ListedSkill(name=one.name, description=one.description) for one in every)


def _collected(one: Candidate) -> CollectedSkill | None:
    """Return what a candidate says of itself; None for one that cannot be installed."""
    # A path with `@` or `#` would name a ref where it is typed behind the repository.
    if one.fault or one.is_inner or not one.path.isprintable() or {*"@#"} & {*one.path}:
        return None
    name = install_name(one.name, one.folder)
    text = next((member for member in one.members if member.path == SKILL_FILE), None)
    described = ""
    if text is not None:
        skill = parse(b"".join(text.read()), directory=one.folder).skill
        described = "" if skill is None else skill.description[:_DESCRIPTION_MAX]
    return CollectedSkill(name=name, description=described, path=one.path)

"""A place of a test, and what a shipped profile finds there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse.discovery import Root, default_roots, discover
from skillhouse.skill import Profile, SkillIndex, load_profile


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where somebody works: a directory with a home, a core and a workspace in it."""

    base: Path
    profile: Profile
    environment: Mapping[str, str] = field(default_factory=dict)
    explicit: Sequence[Path] = ()

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def core(self) -> Path:
        """The skills that come with the program."""
        return self.base / "core"

    @property
    def work(self) -> Path:
        """The git root of the work."""
        return self.base / "work"

    def roots(self, start: Path | None = None) -> tuple[Root, ...]:
        return default_roots(
            start=start or self.work,
            home=self.home,
            environment=self.environment,
            profile=self.profile,
            explicit=self.explicit,
            builtin=self.core,
        )

    def index(self, start: Path | None = None) -> SkillIndex:
        return discover(self.roots(start), profile=self.profile)

    def relative_roots(self, start: Path | None = None) -> list[tuple[str, str]]:
        """Return (scope, path) of the roots, paths relative to the base."""
        return [(root.scope, os.path.relpath(root.path, self.base)) for root in self.roots(start)]


def place(base: Path, profile: str | Profile, **options: object) -> Place:
    """Make the directories of a place and return it."""
    made = Place(base=base, profile=load_profile(profile), **options)  # type: ignore[arg-type]
    (made.work / ".git").mkdir(parents=True)
    made.home.mkdir()
    return made


def write(file: Path, text: str) -> Path:
    """Write a file with its directories and return it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def codes(index: SkillIndex) -> list[str]:
    """Return the codes of the findings, in their order."""
    return [found.code for found in index.diagnostics]


def descriptions(index: SkillIndex) -> list[str]:
    """Return the descriptions of the skills in force, in their order."""
    return [skill.description for skill in index.skills]

"""What a case of bench/research/conformance.py is, and the ground on which it is played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skillhouse import Skillhouse, discover
from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.clients import ClientReport, LensState, compare
from skillhouse.discovery import default_roots
from skillhouse.house import Locations, configured
from skillhouse.permission import Layer, Rule
from skillhouse.skill import Profile, SkillIndex


class Yes:
    """A person who says yes and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Say yes, once."""
        self.asked.append(request)
        return Answer.ONCE


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where one case is played: the suite's checkout, and an empty directory of its own."""

    checkout: Path
    base: Path
    profile: Profile

    @property
    def home(self) -> Path:
        """The user's directory."""
        return self.base / "home"

    @property
    def project(self) -> Path:
        """Where the client is started."""
        return self.base / "project"

    def put(self, place: str, text: str) -> Path:
        """Write a file below the base."""
        file = self.base / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def index(self, *, trusted: bool = True, builtin: Path | None = None) -> SkillIndex:
        """Return what discovery finds under the profile."""
        roots = default_roots(
            start=self.project,
            home=self.home,
            environment={},
            profile=self.profile,
            builtin=builtin,
        )
        return discover(roots, profile=self.profile, trusted=trusted)

    def lens(self) -> ClientReport:
        """Return what the lens says of this place for the profile."""
        return compare(start=self.project, home=self.home, environment={}, profiles=[self.profile])

    def seen(self) -> list[str]:
        """Return the names that the lens says this client lists, sorted."""
        verdicts = [skill.verdicts[0] for skill in self.lens().skills]
        return sorted(found.name for found in verdicts if found.state is LensState.SEEN)

    def house(self, *rules: Rule, channel: Yes | None = None) -> Skillhouse:
        """Return a house at this place."""
        places = Locations(
            start=self.project, home=self.home, environment={}, managed_file=self.base / "none.toml"
        )
        return Skillhouse(
            configured(places),
            channel=channel or Yes(),
            profile=self.profile,
            layers=(Layer(name="user", rules=rules),),
        )


Judge = Callable[[Ground], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test of another project in our words."""

    what: str
    judge: Judge | None = None
    """Whether we do what the test expects; None where we have nothing to compare."""
    ours: str = ""
    """What we do instead, where that is something else; or why there is nothing to compare."""
    clause: str = ""
    """What decides the difference."""
    instead: Judge | None = None
    """Whether we do what `ours` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A test file of another project."""

    name: str
    file: str
    titles: str
    """Beginning of the SHA-256 of the titles of its tests as they were when the cases were made."""
    profile: str
    cases: tuple[Case, ...]


def agree(what: str, judge: Judge) -> Case:
    """Return a case in which we do what the test expects."""
    return Case(what=what, judge=judge)


def differ(what: str, judge: Judge, ours: str, clause: str, instead: Judge) -> Case:
    """Return a case in which we do something else, on purpose."""
    return Case(what=what, judge=judge, ours=ours, clause=clause, instead=instead)


def apart(what: str, why: str) -> Case:
    """Return a case about something that we do not have."""
    return Case(what=what, ours=why)


def skill_text(name: str, description: str = "Does things.", body: str = "Do it.\n") -> str:
    """Return a plain SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"

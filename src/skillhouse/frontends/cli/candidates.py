"""What a completion script asks for: names of skills, profiles, clients, tools and approvals."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

# Packages and not their names, each of which is loaded when it is first used.
import skillhouse.house
from skillhouse import floor
from skillhouse import skill as skill_package
from skillhouse.clients import known_clients

if TYPE_CHECKING:
    from skillhouse.floor import Locations
    from skillhouse.house import Skillhouse

CANDIDATES_MAX = 1_000
"""A list that is longer helps no person; the next letters make it shorter."""
# INVARIANT: a candidate goes into the command line of a person, and names come from anybody. Only
# letters, digits and signs without a meaning to any shell pass; no first hyphen, which would begin
# an option. What does not pass is not completed.
SAFE = re.compile(r"[\w.:@/+][\w.,:@/+-]*")
_LENGTH_MAX = 200


class Typed(Struct, frozen=True):
    """The words of a command line up to the cursor, the last of which is completed."""

    words: tuple[str, ...]

    @property
    def last(self) -> str:
        return self.words[-1] if self.words else ""

    def has(self, *options: str) -> bool:
        return any(option in self.words[:-1] for option in options)

    def values(self, option: str) -> tuple[str, ...]:
        """Return the values of an option, with `~` as the shell would read it."""
        pairs = itertools.pairwise(self.words[:-1])
        joined = (word.partition("=")[2] for word in self.words if word.startswith(f"{option}="))
        found = (*(value for name, value in pairs if name == option), *joined)
        return tuple(os.path.expanduser(value) for value in found)

    @property
    def places(self) -> Locations:
        start = Path.cwd().joinpath(*self.values("-C"))
        return floor.Locations(start=start, home=Path.home(), environment=os.environ)

    def house(self) -> Skillhouse:
        places = self.places
        roots = tuple(str(Path(places.start, root)) for root in self.values("--root"))
        profile = (*self.values("--profile"), None)[0]
        settings = skillhouse.house.Settings(profile=profile, roots=roots or None)
        return skillhouse.house.Skillhouse(skillhouse.house.configured(places, settings))


def complete(arguments: Sequence[str]) -> int:
    """Print the candidates of a kind, one on a line: `KIND -- WORDS…`; never fail.

    A completion that cannot be made must not disturb the line that a person types.
    """
    kind, _, *words = (*arguments, "", "")[: max(2, len(arguments))]
    typed = Typed(tuple(words))
    try:
        found = list(safe(_KINDS[kind](typed), typed.last)) if kind in _KINDS else []
    except Exception:  # noqa: BLE001 - the edge of a process that has no screen.
        return 1
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.stdout.write("".join(f"{name}\n" for name in found))
    return 0


def safe(names: Iterable[str], begin: str = "") -> Iterable[str]:
    """Return the names that begin so and may be put into a command line, sorted."""
    fitting = {
        name
        for name in names
        if name.startswith(begin) and len(name) <= _LENGTH_MAX and SAFE.fullmatch(name)
    }
    return sorted(fitting)[:CANDIDATES_MAX]


def _skills(typed: Typed) -> Iterable[str]:
    """Yield names, or ids once a colon is typed; those that the verb can be used for."""
    house = typed.house()
    if typed.words[:1] == ("delete",) and typed.has("--undo", "--empty"):
        ids: Iterable[str] = (one.id for one in house.management.trash.deleted())
    elif typed.words[:1] == ("enable",):
        settings = house.management.settings.skills
        ids = (skill for skill, is_enabled in settings.items() if not is_enabled)
    elif typed.words[:1] == ("load",) or typed.words[:1] == ("invoke",):
        ids = (skill.id for skill in house.view().visible.skills)
    else:
        ids = (skill.id for skill in house.snapshot.shown.index.skills)
    if ":" in typed.last:
        return ids
    return (skill.partition(":")[2] for skill in ids)


def _profiles(typed: Typed) -> Iterable[str]:
    return skill_package.profile_names(typed.places.profiles)


def _clients(typed: Typed) -> Iterable[str]:
    """Yield names of clients; behind a comma, further ones of a list."""
    before, comma, _ = typed.last.rpartition(",")
    names = dict.fromkeys((*skill_package.profile_names(typed.places.profiles), *known_clients()))
    return (f"{before}{comma}{name}" for name in names)


def _agents(typed: Typed) -> Iterable[str]:
    return ("default", *typed.house().config.agents)


def _tools(typed: Typed) -> Iterable[str]:
    agent = (*typed.values("--agent"), "default")[0]
    with typed.house() as house:
        return [tool.name for tool in house.tools(agent=agent, every=True)]


def _approvals(typed: Typed) -> Iterable[str]:
    with typed.house() as house:
        return [one.id for one in house.approvals.pending()]


def _remotes(typed: Typed) -> Iterable[str]:
    return (source.url for source in typed.house().config.remotes)


def _servers(typed: Typed) -> Iterable[str]:
    with typed.house() as house:
        return house.all_logs.server_names()


_KINDS: dict[str, Callable[[Typed], Iterable[str]]] = {
    "skills": _skills,
    "profiles": _profiles,
    "clients": _clients,
    "agents": _agents,
    "tools": _tools,
    "approvals": _approvals,
    "remotes": _remotes,
    "servers": _servers,
}
KINDS = tuple(_KINDS)

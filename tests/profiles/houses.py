"""Houses under a profile, and a record of the files that were opened."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from skillhouse.approval import Unattended
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import Profile
from tests.house.places import make_places
from tests.tools.houses import Person


def house_under(
    base: Path,
    profile: str | Profile,
    *rules: Rule,
    roots: Sequence[Path] = (),
    person: Person | None = None,
    **more: Any,
) -> Skillhouse:
    """Return a house in a project below `base` under a profile."""
    return Skillhouse(
        configured(make_places(base)),
        channel=person or Unattended(),
        layers=(Layer(name="user", rules=rules),),
        # A place of the design in the home needs no root of a person's.
        roots=[root for root in roots if not root.is_relative_to(base / "home")],
        profile=profile,
        **more,
    )


def rule(effect: str, pattern: str, action: str = "skill") -> Rule:
    """Return a rule about skills."""
    return Rule(effect=Effect(effect), action=action, pattern=pattern)


_LOOKS = ("open", "os.scandir", "os.listdir")
_OPENED: list[list[str]] = []
_HOOKED: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _OPENED and event in _LOOKS:
        _OPENED[-1].append(str(arguments[0]))


@contextlib.contextmanager
def opened_files() -> Iterator[list[str]]:
    """Collect the files and directories that are opened, by name or descriptor.

    The hook stays: hooks cannot be removed.
    """
    if not _HOOKED:
        sys.addaudithook(_hook)
        _HOOKED.append(True)
    names: list[str] = []
    _OPENED.append(names)
    try:
        yield names
    finally:
        _OPENED.remove(names)

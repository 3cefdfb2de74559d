"""What the user says about additions to the format and about code that skills bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from skillhouse.skill import Extensions


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSettings:
    """Which of the profile's extensions are turned on or off; None is as the profile has it."""

    invocation: bool | None = None
    substitution: bool | None = None
    when_to_use: bool | None = None
    paths: bool | None = None
    commands: bool | None = None

    def over(self, extensions: Extensions) -> Extensions:
        """Return the profile's extensions with these in their place."""
        return replace(extensions, **self._set())

    def before(self, weaker: ExtensionSettings) -> ExtensionSettings:
        """Return both, each value from this one where it is set here."""
        return replace(weaker, **self._set())

    def _set(self) -> dict[str, Any]:
        values = {known.name: getattr(self, known.name) for known in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillCodeSettings:
    """Whether skills' own code runs, and what the operator hands to it."""

    enabled: bool | None = None
    """None is as the profile has it."""
    env: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of this process's variables that a skill gets, by the skill's name: of those that it
    declares. A variable that is not named here is not handed over, whatever a skill declares."""
    unhashed: bool = False
    """Take dependencies without digests."""
    builds: bool = False
    """Build dependencies from source, which runs their code outside of any sandbox."""

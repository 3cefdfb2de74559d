"""The values on which designs and clients differ; code reads them and never a profile's name."""

from __future__ import annotations

from dataclasses import dataclass, field

from skillhouse.floor import ConfigError, nearest
from skillhouse.skill.model import DEFAULT_POLICY, ParsePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRule:
    """How far a scope is scanned, and what happens to its skills when no rule speaks."""

    name: str
    default_effect: str
    """allow, or ask."""
    max_depth: int
    """Directories between a root and a skill, the skill's own included."""
    max_directories: int


DEFAULT_SCOPES = (
    ScopeRule(name="project", default_effect="allow", max_depth=6, max_directories=2_000),
    ScopeRule(name="explicit", default_effect="allow", max_depth=12, max_directories=100_000),
    ScopeRule(name="user", default_effect="allow", max_depth=6, max_directories=2_000),
    ScopeRule(name="plugin", default_effect="ask", max_depth=6, max_directories=2_000),
    ScopeRule(name="remote", default_effect="ask", max_depth=6, max_directories=2_000),
    ScopeRule(name="builtin", default_effect="allow", max_depth=2, max_directories=2_000),
)
"""Strongest first (DESIGN, settled decision 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way of finding and reading skills; the defaults are the profile `default`."""

    name: str = "default"
    scopes: tuple[ScopeRule, ...] = DEFAULT_SCOPES
    """Strongest first: a skill of an earlier scope shadows one of the same name in a later."""
    project_directories: tuple[str, ...] = (
        ".skillhouse/skills",
        ".agents/skills",
        ".claude/skills",
    )
    """Looked for in each directory from the start up to the git root, nearest first."""
    user_directories: tuple[str, ...] = (
        "~/.config/skillhouse/skills",
        "~/.agents/skills",
        "~/.claude/skills",
    )
    environment_variable: str = "SKILLHOUSE_SKILLS_DIR"
    """Holds further explicit roots, separated by `os.pathsep`."""
    skipped_directories: frozenset[str] = frozenset(
        {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"}
    )
    """Never descended into (client guide, "Where to scan")."""
    nested_skills: bool = False
    """Whether a skill is looked for below another skill's directory."""
    parse_policy: ParsePolicy = field(default=DEFAULT_POLICY)

    def scope(self, name: str) -> ScopeRule:
        """Return the rule of a scope.

        Raises:
            ConfigError: this profile has no such scope.
        """
        for rule in self.scopes:
            if rule.name == name:
                return rule
        known = [rule.name for rule in self.scopes]
        raise ConfigError(
            f"unknown scope `{name}`", key=name, suggestion=next(iter(nearest(name, known)), "")
        )


DEFAULT_PROFILE = Profile()


def load_profile(profile: str | Profile) -> Profile:
    """Return the profile of that name; a `Profile` is returned as it is.

    Raises:
        ConfigError: no profile has that name.
    """
    if isinstance(profile, Profile):
        return profile
    if profile == DEFAULT_PROFILE.name:
        return DEFAULT_PROFILE
    raise ConfigError(f"unknown profile `{profile}`", key=profile, suggestion=DEFAULT_PROFILE.name)

"""What one agent sees of the house: its skills, its catalog, its tools, and its door."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from skillhouse.discovery import Catalog, catalog_under
from skillhouse.permission import Effect, Layer, Permission, decide
from skillhouse.runtime.agent_search import AgentSearch
from skillhouse.runtime.config import Config
from skillhouse.runtime.menu import PersonMenu
from skillhouse.runtime.policy import Policy
from skillhouse.runtime.prompts import Prompts
from skillhouse.runtime.settings import SkillSettings
from skillhouse.skill import Profile, Skill, SkillIndex, described, read_invocation


class AgentView:
    """One agent's part of the house, made from one snapshot of the index."""

    def __init__(
        self,
        agent: str,
        index: SkillIndex,
        settings: SkillSettings,
        config: Config,
        policy: Policy,
        roots: Iterable[Path] = (),
        worked: Callable[[], Sequence[str]] = tuple,
        recent: Mapping[str, int] | None = None,
    ) -> None:
        """Sort the index into what the agent may see, what a rule denies and what is off.

        No tool writes below `roots`, which are those of skills, whether they exist or not;
        `worked` gives the files of the project that the agent works on, and `recent` has the ranks
        of the skills that were loaded lately, by file.

        Raises:
            ConfigError: no agent has that name.
        """
        self.agent = agent
        self._config = config
        self._policy = policy
        self._worked = worked
        self._recent = recent or {}
        self.menu = PersonMenu(agent, index, settings, policy)
        extensions = self.profile.extensions
        everything = (*index.skills, *index.shadowed) if extensions.invocation else ()
        self.person_directories = frozenset(
            skill.directory
            for skill in everything
            if not read_invocation(skill, extensions).model_invocable
        )
        layers = policy.layers(agent)
        denied = {skill.file for skill in index.skills if _is_denied(skill.name, layers)}
        present = [
            skill
            for skill in index.skills
            if skill.file not in denied and settings.is_enabled(skill.id)
        ]
        self.for_people = tuple(
            skill
            for skill in present
            if self.person_directories and skill.directory in self.person_directories
        )
        """What the model neither sees nor loads, and a person can start."""
        self.visible = SkillIndex(
            (
                described(skill, extensions)
                for skill in present
                if not self.for_people or skill.directory not in self.person_directories
            ),
            # What is wrong with a file is for those who might load it (S003-32).
            diagnostics=(
                found
                for found in index.diagnostics
                if found.path is not None and not _is_denied(found.path.parent.name, layers)
            ),
            name_match=index.name_match,
        )
        self.search = AgentSearch(
            self.visible, bodies=self.profile.search_bodies, cache=config.cache_directory
        )
        """Finds among what the agent sees."""
        self.hidden = tuple(skill for skill in index.skills if skill.file in denied)
        shadowed = (skill for skill in index.shadowed if _is_denied(skill.name, layers))
        off = (skill for skill in index.skills if not settings.is_enabled(skill.id))
        self.withheld = frozenset(skill.directory for skill in (*self.hidden, *shadowed, *off))
        self.all_skills = (*index.skills, *index.shadowed)
        self.skill_directories = (*roots, *(skill.directory for skill in self.all_skills))
        self._is_on = settings.enable_skills

    def withholds(self, directory: Path) -> bool:
        """Whether a skill's directory is not for this agent: it is denied or switched off."""
        return not self._is_on or directory in self.withheld

    @property
    def profile(self) -> Profile:
        """How skills are listed and loaded here."""
        return self._policy.profile

    @property
    def listed(self) -> SkillIndex:
        """The visible skills without those that are about files which nobody works on."""
        return self._listed_for(self._worked())

    def _listed_for(self, files: Sequence[str]) -> SkillIndex:
        extensions = self.profile.extensions
        if not extensions.paths:
            return self.visible
        return self.visible.where(
            lambda skill: read_invocation(skill, extensions).is_listed_for(files)
        )

    def catalog(
        self,
        budget_tokens: int | None = None,
        *,
        style: str | None = None,
        files: Iterable[str] = (),
        budget_chars: int | None = None,
    ) -> Catalog:
        """Return the agent's skills as a model sees them.

        The style `direct` shows bodies, so it lists only what the agent may load without a
        question; the others are among the omitted. The style `compact` begins each scope with the
        skills that were loaded last.

        Args:
            budget_tokens: Most tokens of the text; when None those of the configuration, else of
                the profile.
            budget_chars: Most characters besides.
            style: Another renderer than the profile's.
            files: Paths below the project that are worked on besides those that the house knows of.

        Raises:
            ConfigError: no renderer has that name.
        """
        if budget_tokens is None:
            budget_tokens = self.budget_tokens
        style = style or self.profile.catalog.style
        listed = self._listed_for((*self._worked(), *files))
        if style == "direct":
            listed = listed.where(self._is_allowed)
        if style == "compact" and self._recent:
            listed = SkillIndex(self._recent_first(listed.skills), name_match=listed.name_match)
        found = catalog_under(
            self.profile,
            listed,
            style=style,
            budget_tokens=budget_tokens,
            budget_chars=budget_chars,
        )
        if len(listed) == len(self.visible):
            return found
        included = {skill.file for skill in found.included}
        omitted = tuple(skill for skill in self.visible.skills if skill.file not in included)
        return dataclasses.replace(found, omitted=omitted)

    def system_prompt(self, offered: Iterable[str] | None = None) -> str:
        """Return what the system prompt says of the skills; see `Prompts.system`."""
        return self.prompts().system(offered)

    def prompts(self, prefix: str = "") -> Prompts:
        """Return what a model is told of the skills outside of the skill tool.

        Args:
            prefix: What a framework puts before the names of tools.
        """
        return Prompts(
            profile=self.profile,
            has_skills=bool(self.visible.skills),
            catalog=self.catalog,
            prefix=prefix,
        )

    @property
    def budget_tokens(self) -> int | None:
        """Most tokens of a catalog: as configured, else as the profile has it; None is no bound."""
        if self._config.catalog_budget_tokens is not None:
            return self._config.catalog_budget_tokens
        bound = self.profile.catalog.budget_tokens
        return None if bound == "none" else bound

    def _recent_first(self, skills: Sequence[Skill]) -> list[Skill]:
        """Return the skills with each scope's recent ones first, otherwise in their order."""
        scopes = {scope: at for at, scope in enumerate(dict.fromkeys(s.scope for s in skills))}
        last = len(self._recent)
        return sorted(
            skills, key=lambda skill: (scopes[skill.scope], self._recent.get(skill.file, last))
        )

    def tool_catalog(self, chars: int | None) -> Catalog:
        """Return the list for the skill tool's description, within so many characters."""
        return self.catalog(style=self.profile.catalog.tool_style, budget_chars=chars)

    def tool_catalog_text(self, chars: int | None) -> str:
        return self.tool_catalog(chars).text if self.profile.catalog.exposure == "tool" else ""

    def _is_allowed(self, skill: Skill) -> bool:
        found = self._policy.explain_skill(skill, agent=self.agent)
        return found.decision.effect is Effect.ALLOW


def _is_denied(name: str, layers: tuple[Layer, ...]) -> bool:
    permission = Permission(action="skill", resource=name)
    return decide(layers, permission).effect is Effect.DENY

"""The house of one place: its skills, who may see them, and how they are found and read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from skillhouse.discovery import Catalog, Root, default_roots, discover, git_root, render_catalog
from skillhouse.floor import ConfigError, nearest
from skillhouse.permission import Decision, Effect, Layer, Permission, Spoke, decide, explain
from skillhouse.retrieval import Hit, SearchIndex
from skillhouse.runtime.config import Config, Places, Settings, load_config
from skillhouse.runtime.trust import TrustReport, TrustStore
from skillhouse.skill import Profile, Skill, SkillContent, SkillIndex, load, load_profile

BUILTIN_DIRECTORY = Path(__file__).resolve().parent.parent / "builtin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision with everything that led to it."""

    permission: Permission
    decision: Decision
    spoke: tuple[Spoke, ...]
    """Every rule that matched, farthest layer first."""
    reason: str
    """The deciding rule, or why the default is what it is."""


class Skillhouse:
    """One house, built from one configuration.

    >>> house = Skillhouse()  # doctest: +SKIP
    >>> house.load("weather").body  # doctest: +SKIP
    """

    def __init__(self, config: Config | None = None, **overrides: Any) -> None:
        """Build the house of this process's place, or of `config`.

        Args:
            config: Where the house stands and what its rules are; read from the files of this
                place when None.
            overrides: Values of `Config` to use instead, such as `roots` or `profile`.

        Raises:
            ConfigError: a configuration file, variable or override cannot be used.
            StateError: the trust store cannot be read.
        """
        if config is None:
            config = configured(Places.here())
        if "roots" in overrides:
            overrides["roots"] = tuple(Path(root) for root in overrides["roots"])
        try:
            self.config = dataclasses.replace(config, **overrides)
        except TypeError as error:
            raise _unknown_override(overrides, error) from None
        self.profile = _profile(self.config)
        self.trust_store = TrustStore(self.config.state_directory)

    @property
    def project(self) -> Path:
        """The git root of the start directory, or the start directory outside git."""
        return project_of(self.config.places.start)

    @cached_property
    def roots(self) -> tuple[Root, ...]:
        """All roots of this place, strongest first, whether they exist or not."""
        places = self.config.places
        return default_roots(
            start=places.start,
            home=places.home,
            environment=places.environment,
            profile=self.profile,
            explicit=self.config.roots,
            builtin=BUILTIN_DIRECTORY,
        )

    @cached_property
    def index(self) -> SkillIndex:
        """The skills of this place; those of a project that is not trusted are not read."""
        return discover(
            self.roots,
            profile=self.profile,
            trusted=self.trust_store.is_trusted(self.project),
            cache=self.config.cache_directory,
        )

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All rules, from far to near."""
        return self.config.layers

    @cached_property
    def visible(self) -> SkillIndex:
        """The index without the skills that a rule denies."""
        return SkillIndex(skill for skill in self.index.skills if not self._denied(skill))

    @cached_property
    def hidden(self) -> tuple[Skill, ...]:
        """The skills that a rule denies: neither listed nor found."""
        return tuple(skill for skill in self.index.skills if self._denied(skill))

    def _denied(self, skill: Skill) -> bool:
        permission = Permission(action="skill", resource=skill.name)
        return decide(self.layers, permission).effect is Effect.DENY

    def catalog(self, *, agent: str = "default", budget_tokens: int | None = None) -> Catalog:
        """Return what an agent sees of the skills it may use."""
        if budget_tokens is None:
            budget_tokens = self.config.catalog_budget_tokens
        return render_catalog(self.visible, budget_tokens=budget_tokens)

    @cached_property
    def _search_index(self) -> SearchIndex:
        return SearchIndex.from_skills(self.visible)

    def search(self, query: str, *, limit: int = 5) -> list[Hit]:
        """Return the visible skills that fit a request best, best first."""
        return self._search_index.search(query, limit=limit)

    def skill(self, reference: str) -> Skill:
        """Return a skill by id, name or directory name.

        Raises:
            UnknownSkillError: nothing fits.
            AmbiguousSkillError: several fit.
        """
        return self.index.get(reference)

    def load(self, reference: str) -> SkillContent:
        """Return the body of a skill for a person; what a model may load is for the gate to say.

        Raises:
            UnknownSkillError: nothing fits.
            AmbiguousSkillError: several fit.
            SkillError: the file cannot be used any more.
        """
        return load(self.skill(reference))

    def explain(
        self, permission: Permission, *, default: Effect = Effect.ASK, why: str = ""
    ) -> Explanation:
        """Return the decision about anything, every rule that spoke, and the reason in words.

        Args:
            permission: What is wanted.
            default: What holds when no rule speaks.
            why: The reason for that default.
        """
        decision, spoke = explain(self.layers, permission, default=default)
        reason = why or f"no rule speaks, and {permission.action} is {default} by default"
        for found in spoke:
            if found.decided:
                rule = f"rule `{found.rule.action} {found.rule.pattern}` of {found.layer} policy"
                reason = f"{rule}: {found.rule.reason}" if found.rule.reason else rule
        return Explanation(permission=permission, decision=decision, spoke=spoke, reason=reason)

    def explain_skill(self, skill: Skill) -> Explanation:
        """Return the decision about loading a skill; reads a project's skill to see its digest."""
        default, why = self._default(skill)
        permission = Permission(action="skill", resource=skill.name)
        return self.explain(permission, default=default, why=why)

    def trust_report(self) -> TrustReport:
        """Return how this project's skills stand to what was trusted; reads them."""
        return self.trust_store.report(self.project, self._project_skills())

    def trust(self) -> TrustReport:
        """Trust this project and its skills as they are now."""
        report = self.trust_store.trust(self.project, self._project_skills(), datetime.now(UTC))
        self.refresh()
        return report

    def revoke_trust(self) -> bool:
        """Take the trust in this project back; whether there was any."""
        revoked = self.trust_store.revoke(self.project)
        self.refresh()
        return revoked

    def refresh(self) -> None:
        """Forget what was found; the next look finds it anew."""
        for name in ("roots", "index", "visible", "hidden", "_search_index"):
            self.__dict__.pop(name, None)

    def _project_skills(self) -> tuple[Skill, ...]:
        roots = [root for root in self.roots if root.scope == "project"]
        index = discover(roots, profile=self.profile)
        return index.skills + index.shadowed

    def _default(self, skill: Skill) -> tuple[Effect, str]:
        """Return what happens when no rule speaks, and why (decision 4)."""
        effect = Effect(self.profile.scope(skill.scope).default_effect)
        if skill.scope != "project":
            return effect, f"no rule speaks, and skills of scope {skill.scope} are {effect.value}"
        state = self.trust_store.report(self.project, [skill]).skills[0].state
        if state == "trusted":
            return effect, "no rule speaks, and the skill is as it was when it was trusted"
        words = {
            "new": "is new since the project was trusted",
            "changed": "has changed since the project was trusted",
            "unbound": "cannot be bound to its content",
        }
        return Effect.ASK, f"no rule speaks, and the skill {words[state]}"


def configured(places: Places, flags: Settings | None = None) -> Config:
    """Return the configuration of a place; the project's file is read when it is trusted."""
    config = load_config(places, flags)
    project = project_of(places.start)
    if TrustStore(config.state_directory).is_trusted(project):
        config = load_config(places, flags, project=project)
    return config


def project_of(start: Path) -> Path:
    """Return the git root of `start`, or `start` itself outside git."""
    return git_root(start.absolute()) or start.absolute()


def _profile(config: Config) -> Profile:
    profile = load_profile(config.profile)
    policy = dataclasses.replace(profile.parse_policy, yaml_fast_path=config.yaml_fast_path)
    return dataclasses.replace(profile, parse_policy=policy)


def _unknown_override(overrides: dict[str, Any], error: TypeError) -> Exception:
    known = [field.name for field in dataclasses.fields(Config)]
    for key in overrides:
        if key not in known:
            suggestion = next(iter(nearest(key, known)), "")
            return ConfigError(f"unknown setting `{key}`", key=key, suggestion=suggestion)
    return error

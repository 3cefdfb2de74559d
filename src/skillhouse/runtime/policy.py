"""All rules of a house together, and the reasons for what they say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from skillhouse.approval import Grant, GrantStore, grant_patterns
from skillhouse.floor import ConfigError, TreeError, nearest, tree_digest
from skillhouse.permission import Decision, Effect, Layer, Permission, Rule, Spoke, explain
from skillhouse.runtime.config import Config
from skillhouse.runtime.trust import TrustStore
from skillhouse.skill import Profile, Skill
from skillhouse.tools import Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision with everything that led to it."""

    permission: Permission
    decision: Decision
    spoke: tuple[Spoke, ...]
    """Every rule that matched, farthest layer first."""
    reason: str
    """The deciding rule, or why the default is what it is."""


class Policy:
    """The configured layers, the agent's, and what a person has granted for good."""

    def __init__(self, config: Config, profile: Profile, trust: TrustStore, project: Path) -> None:
        self._config = config
        self._profile = profile
        self._trust = trust
        self._project = project
        self._place = os.path.realpath(config.places.start)
        self._store = GrantStore(config.state_directory)
        self._grants: tuple[tuple[int, ...], tuple[Grant, ...]] = ((), ())

    def layers(self, agent: str, skill_digest: str = "") -> tuple[Layer, ...]:
        """Return the layers of an agent from far to near; grants about other skills are left out.

        Raises:
            ConfigError: no agent has that name.
        """
        own = self._config.agents.get(agent)
        if own is None:
            close = nearest(agent, self._config.agents)
            raise ConfigError(
                f"unknown agent `{agent}`", key=agent, suggestion=close[0] if close else ""
            )
        rules = tuple(
            Rule(effect=Effect.ALLOW, action=grant.action, pattern=grant.pattern)
            for grant in self._all_grants()
            if grant.place == self._place and grant.skill_digest in ("", skill_digest)
        )
        near = [layer for layer in (own, Layer(name="grants", rules=rules)) if layer.rules]
        return (*self._config.layers, *near)

    def explain(
        self,
        permission: Permission,
        *,
        agent: str = "default",
        default: Effect = Effect.ASK,
        why: str = "",
        skill_digest: str = "",
    ) -> Explanation:
        """Return the decision about anything, every rule that spoke, and the reason in words.

        Args:
            permission: What is wanted.
            agent: Who wants it.
            default: What holds when no rule speaks.
            why: The reason for that default.
            skill_digest: Tree digest of the skill it is about, if any.
        """
        layers = self.layers(agent, skill_digest)
        decision, spoke = explain(layers, permission, default=default)
        reason = why or f"no rule speaks, and {permission.action} is {default} by default"
        for found in spoke:
            if found.decided:
                rule = f"rule `{found.rule.action} {found.rule.pattern}` of {found.layer} policy"
                reason = f"{rule}: {found.rule.reason}" if found.rule.reason else rule
        return Explanation(permission=permission, decision=decision, spoke=spoke, reason=reason)

    def skill_need(self, skill: Skill) -> Need:
        """Return what loading a skill needs; a skill that is asked about is read for its digest."""
        default, why = self._skill_default(skill)
        return Need(
            permission=Permission(action="skill", resource=skill.name),
            default=default,
            why=why,
            skill_digest=_digest(skill) if default is Effect.ASK else "",
        )

    def explain_skill(self, skill: Skill, *, agent: str = "default") -> Explanation:
        """Return the decision about loading a skill."""
        need = self.skill_need(skill)
        return self.explain(
            need.permission,
            agent=agent,
            default=need.default,
            why=need.why,
            skill_digest=need.skill_digest,
        )

    def remember(self, needs: Sequence[Need]) -> None:
        """Keep a lasting yes to what was asked, in this place."""
        grants = [
            Grant(
                action=need.permission.action,
                pattern=pattern,
                place=self._place,
                skill_digest=need.skill_digest,
            )
            for need in needs
            for pattern in grant_patterns(
                need.permission.action, need.permission.resource, need.argv
            )
        ]
        self._store.add(grants, datetime.now(UTC))

    def _all_grants(self) -> tuple[Grant, ...]:
        """Return the grants, read again only when the state file has changed."""
        stamp = self._store.stamp()
        if stamp != self._grants[0]:
            self._grants = (stamp, self._store.all())
        return self._grants[1]

    def _skill_default(self, skill: Skill) -> tuple[Effect, str]:
        """Return what happens when no rule speaks, and why (decision 4)."""
        effect = Effect(self._profile.scope(skill.scope).default_effect)
        if skill.scope != "project":
            return effect, f"no rule speaks, and skills of scope {skill.scope} are {effect.value}"
        state = self._trust.report(self._project, [skill]).skills[0].state
        if state == "trusted":
            return effect, "no rule speaks, and the skill is as it was when it was trusted"
        words = {
            "new": "is new since the project was trusted",
            "changed": "has changed since the project was trusted",
            "unbound": "cannot be bound to its content",
        }
        return Effect.ASK, f"no rule speaks, and the skill {words[state]}"


def _digest(skill: Skill) -> str:
    """Return what a lasting yes to a skill is bound to; none without a digest fits any grant."""
    try:
        return tree_digest(skill.directory)
    except TreeError:
        return "unbound"

"""All rules that apply, and the reasons for their decisions."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from skillhouse import skill as skill_package
from skillhouse import tools as toolbox
from skillhouse.approval import OWNER, GrantStore
from skillhouse.floor import (
    ConfigError,
    StateError,
    SteadyClock,
    TreeError,
    digest,
    encode,
    nearest,
    structs,
)
from skillhouse.floor.lock import once
from skillhouse.house.linked_skills import LINKED_WORDS, LinkedSkills
from skillhouse.permission import (
    Decision,
    Dialect,
    Effect,
    Layer,
    Permission,
    Rule,
    explain,
    matches,
    matches_in,
)
from skillhouse.store import STATE_FILE, commit_stamp, state_clock

if TYPE_CHECKING:
    from skillhouse.approval import Grant
    from skillhouse.house.config import Config
    from skillhouse.house.trust import TrustStore
    from skillhouse.permission import (
        MatchedRule,
    )
    from skillhouse.skill import Profile, Skill, SkillContent, SkillLinks
    from skillhouse.tools import PermissionRequest, RemoteSkillProvider


logger = logging.getLogger(__name__)

GRANTS = "grants"
"""The layer of a person's standing approvals."""
DIGEST_SHOWN = 16
"""Digits of the digest of the rules."""


class Explanation(Struct, frozen=True, kw_only=True):
    """A decision with everything that led to it."""

    permission: Permission
    decision: Decision
    matched: tuple[MatchedRule, ...]
    """Every rule that matched, farthest layer first."""
    reason: str
    """The deciding rule, or why the default is what it is."""


class Policy:
    """The configured layers, the agent's, and what a person has granted for good."""

    def __init__(
        self,
        config: Config,
        profile: Profile,
        trust: TrustStore,
        project: Path,
        session_grants: Callable[[str], tuple[Grant, ...]] = lambda _: (),
        remote_skills: RemoteSkillProvider | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Combine the rules with `session_grants`, the approvals for the rest of a conversation.

        An approval of a skill in `remote_skills` is bound to its server's listing, as its files are
        not on this machine. `clock` returns seconds since 1970.
        """
        self._clock = state_clock(config.state_directory / STATE_FILE, clock or SteadyClock())
        self.remote_skills = remote_skills
        self.config = config
        self.profile = profile
        self._trust = trust
        self._project = project
        self._session_grants = session_grants
        rules = profile.rules
        self._dialect = Dialect(
            case_sensitive=rules.case_sensitive,
            slash_stops=rules.slash_stops,
            optional_tail=rules.optional_tail,
        )
        self.place = os.path.realpath(config.places.start)
        self._grants: tuple[tuple[int, ...], tuple[Grant, ...]] = ((), ())
        self._rules_digest = ""

    @once
    def linked(self) -> LinkedSkills:
        """What linked skills held when they were first seen."""
        return LinkedSkills(self.config.state_directory, self._project)

    @once
    def _store(self) -> GrantStore:
        return GrantStore(self.config.state_directory)

    @property
    def shared_layers(self) -> tuple[Layer, ...]:
        """The layers that apply to all agents and to people: managed, user, project."""
        return self.config.layers

    def rules_digest(self) -> str:
        """Return the beginning of the digest of the configured rules: no grant changes it."""
        if not self._rules_digest:
            rules = (self.config.layers, self.config.agents, self.config.skill_rules)
            self._rules_digest = digest(encode(rules)).removeprefix("sha256:")[:DIGEST_SHOWN]
        return self._rules_digest

    def layers(
        self, agent: str, skill_digest: str = "", *, user: str = OWNER, session: str = ""
    ) -> tuple[Layer, ...]:
        """Return an agent's layers, far to near, without grants about other skills.

        Raises:
            ConfigError: no agent has that name.
        """
        own = self.config.agents.get(agent)
        if own is None:
            close = nearest(agent, self.config.agents)
            raise ConfigError(
                f"unknown agent `{agent}`",
                key=agent,
                suggestion=close[0] if close else "",
                known=sorted(self.config.agents),
            )
        now_ms = self._clock() * 1000
        lasting = self._all_grants()
        if any(grant.granted_ms < grant.expires_ms <= now_ms for grant in lasting):
            self._store.end(int(now_ms))
        current = [
            grant
            for grant in (*lasting, *(self._session_grants(session) if session else ()))
            if grant.is_current(now_ms)
            and grant.is_for(user=user, agent=agent, place=self.place, skill_digest=skill_digest)
        ]
        skills = Layer(
            name="agent",
            rules=self.config.skill_rules.get(agent, ()),
            match=self.profile.rules.match,
            dialect=self._dialect,
        )
        layers = (skills, own, *_layers_of_grants(current))
        # INVARIANT: rules that cannot be read may have denied what an agent's own allow.
        return (
            *(layer for layer in self.config.layers if not layer.is_nearest),
            *(layer for layer in layers if layer.rules),
            *(layer for layer in self.config.layers if layer.is_nearest),
        )

    def explain(
        self,
        permission: Permission,
        *,
        agent: str = "default",
        default: Effect = Effect.ASK,
        why: str = "",
        skill_digest: str = "",
        user: str = OWNER,
        session: str = "",
        caution: str = "",
        caution_layer: str = "",
    ) -> Explanation:
        """Return the decision, every rule that matched, and the reason as a sentence.

        Args:
            permission: What is wanted.
            agent: Who wants it.
            default: What holds when no rule matches.
            why: The reason for that default.
            skill_digest: Tree digest of the skill it is about, if any.
            user: On whose behalf.
            session: The conversation, whose own approvals hold as well.
            caution: Why a person is asked whatever rules allow; an approval of the same bytes
                holds.
            caution_layer: The layer that asks, that of hidden text if empty; of `PERSISTENCE` no
                earlier approval holds.
        """
        layers = self.layers(agent, skill_digest, user=user, session=session)
        decision, matched = explain(layers, permission, default=default)
        reason = why or f"no rule matches; `{permission.action}` defaults to {default}"
        for found in matched:
            if found.decided:
                reason = found.rule.said_in(found.layer)
        if caution:
            if caution_layer == toolbox.PERSISTENCE:
                decision, reason = _asked_each_time(decision, reason, caution)
            else:
                decision, reason = _cautious(decision, reason, caution, skill_digest)
        return Explanation(permission=permission, decision=decision, matched=matched, reason=reason)

    def skill_need(self, skill: Skill, links: SkillLinks | None = None) -> PermissionRequest:
        """Return the request for loading a skill; its digest is read if a rule asks about it.

        `links` are those of the skill, where they are known.
        """
        default, why = self._skill_default(skill, links)
        asks = default is Effect.ASK or self._is_asked_about(skill)
        return toolbox.PermissionRequest(
            permission=Permission(action="skill", resource=skill.name),
            default=default,
            why=why,
            skill_digest=self._binding(skill, links) if asks else "",
        )

    def explain_skill(
        self, skill: Skill, *, agent: str = "default", content: SkillContent | None = None
    ) -> Explanation:
        """Return the decision about loading a skill; with `content` also for its hidden text."""
        return self.explain_need(self.loading_need(skill, content), agent=agent)

    def explain_need(self, need: PermissionRequest, *, agent: str = "default") -> Explanation:
        """Return the decision about a request of `loading_need`."""
        return self.explain(
            need.permission,
            agent=agent,
            default=need.default,
            why=need.why,
            skill_digest=need.skill_digest,
            caution=need.caution,
        )

    def loading_need(self, skill: Skill, content: SkillContent | None) -> PermissionRequest:
        """Return the request for loading a skill; with `content` also for its hidden text."""
        links = None if content is None else content.links
        need = self.skill_need(skill, links)
        found = None if content is None else skill_package.hidden_text(content.text)
        if found is None or not found.asks:
            return need
        binding = need.skill_digest or self._binding(skill, links)
        return structs.replace(
            need, skill_digest=binding, caution=toolbox.caution_of(skill.file, found)
        )

    def _binding(self, skill: Skill, links: SkillLinks | None) -> str:
        remote = None if self.remote_skills is None else self.remote_skills.binding(skill)
        return remote or _digest(skill, links)

    def _is_asked_about(self, skill: Skill) -> bool:
        """Whether any agent's rule asks about the skill: an approval is then bound to its bytes."""
        layers = (*self.config.layers, *self.config.agents.values())
        return any(
            rule.effect is Effect.ASK
            and matches(rule.action, "skill")
            and matches(rule.pattern, skill.name)
            for layer in layers
            for rule in layer.rules
        ) or any(
            rule.effect is Effect.ASK and matches_in(self._dialect, rule.pattern, skill.name)
            for rules in self.config.skill_rules.values()
            for rule in rules
        )

    def _all_grants(self) -> tuple[Grant, ...]:
        """Return the grants, read again only when the state has changed.

        None where it cannot be reached: a grant only ever allows, so what is left is stricter.
        """
        try:
            stamp = commit_stamp(self.config.state_directory / STATE_FILE)
            if stamp != self._grants[0]:
                self._grants = (stamp, self._store.all())
        except StateError as error:
            logger.warning("no approval that was given for good is used: %s", error)
            return ()
        return self._grants[1]

    def _skill_default(self, skill: Skill, links: SkillLinks | None) -> tuple[Effect, str]:
        """Return what happens when no rule matches, and why (decision 4)."""
        configured = self.profile.rules.default_effect
        effect = Effect(configured or self.profile.scope(skill.scope).default_effect)
        if configured and skill.scope != "project":
            return effect, f"no rule matches; skills default to {effect.value}"
        if skill.scope != "project":
            linked = self.linked.state(skill, links)
            if linked in ("", "seen"):
                return effect, (
                    f"no rule matches; skills of scope {skill.scope} default to {effect.value}"
                )
            return Effect.ASK, f"no rule matches; the linked skill {LINKED_WORDS[linked]}"
        report = self._trust.report(self._project, [skill])
        state = report.skills[0].state
        if state == "trusted" and report.through:
            where = ", ".join(f"`{place}`" for place in report.through)
            return effect, f"no rule matches; the skill is as it was trusted in {where}"
        if state == "trusted":
            return effect, "no rule matches; the skill is unchanged since it was trusted"
        return Effect.ASK, f"no rule matches; the skill {_UNTRUSTED[state]}"

    @property
    def reads_by_trust(self) -> bool:
        """Whether tools of the project that read run directly once their code is trusted."""
        return self.profile.runs_code and self.profile.rules.default_effect == "allow"

    def trusts_code(self, directory: Path, digest: str) -> bool:
        """Whether reads of these very bytes of the project's code run directly (S002-94)."""
        return self.reads_by_trust and self._trust.has_code(self._project, directory, digest)

    def why_unseen(self, skill: Skill) -> str:
        """Return why no person has looked at a skill as it is; empty for one outside a project."""
        if skill.scope != "project":
            return ""
        state = self._trust.report(self._project, [skill]).skills[0].state
        return "" if state == "trusted" else f"it {_UNTRUSTED[state]}"


class RulesInUse(Protocol):
    """What gives the rules that hold now, with the configuration that they follow from."""

    @property
    def policy(self) -> Policy: ...


_UNTRUSTED = {
    "new": "is new since the project was trusted",
    "changed": "has changed since the project was trusted",
    "unbound": "cannot be bound to its content",
}


def _layers_of_grants(grants: Sequence[Grant]) -> tuple[Layer, Layer]:
    """Return the layers of standing approvals: of whole directories, and of anything else."""
    rules = {
        is_directory: tuple(
            Rule(
                effect=Effect.ALLOW,
                action=grant.action,
                pattern=f"{grant.pattern}*" if is_directory else grant.pattern,
            )
            for grant in grants
            if grant.is_directory is is_directory
        )
        for is_directory in (True, False)
    }
    # INVARIANT: `*` matches no `/` there, so that the parent of a path is what is compared.
    directories = Layer(name=GRANTS, rules=rules[True], dialect=Dialect(slash_stops=True))
    return directories, Layer(name=GRANTS, rules=rules[False])


def _cautious(
    decision: Decision, reason: str, caution: str, skill_digest: str
) -> tuple[Decision, str]:
    """Return a decision of at least ask, except for a standing approval of the same bytes."""
    if decision.effect is Effect.DENY or (decision.layer == GRANTS and skill_digest):
        return decision, reason
    if decision.effect is Effect.ASK:
        return decision, f"{caution}; {reason}"
    return Decision(effect=Effect.ASK, layer=toolbox.HIDDEN_TEXT), caution


def _asked_each_time(decision: Decision, reason: str, caution: str) -> tuple[Decision, str]:
    """Return a decision that is ask at least, whatever was approved before."""
    if decision.effect is Effect.DENY:
        return decision, reason
    return Decision(effect=Effect.ASK, layer=toolbox.PERSISTENCE), caution


def _digest(skill: Skill, links: SkillLinks | None) -> str:
    """Return what an approval of a skill is bound to; `unbound` allows no standing approval."""
    try:
        return skill_package.followed_digest(skill, links)
    except TreeError:
        return toolbox.UNBOUND

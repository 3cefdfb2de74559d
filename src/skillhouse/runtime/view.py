"""What one agent sees of the house: its skills, its catalog, its tools, and its door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property

from skillhouse import tools as toolbox
from skillhouse.approval import Channel
from skillhouse.audit import AuditLog
from skillhouse.discovery import Catalog, render_catalog
from skillhouse.permission import Decision, Effect, Layer, Permission, decide
from skillhouse.retrieval import SearchIndex
from skillhouse.runtime.config import Config
from skillhouse.runtime.policy import Policy
from skillhouse.sandbox import Launcher
from skillhouse.skill import Skill, SkillIndex


class View:
    """One agent's part of the house, made from one snapshot of the index."""

    def __init__(self, agent: str, index: SkillIndex, config: Config, policy: Policy) -> None:
        """Sort the index into what the agent may see and what a rule denies.

        Raises:
            ConfigError: no agent has that name.
        """
        self._config = config
        self._policy = policy
        layers = policy.layers(agent)
        denied = {skill.file for skill in index.skills if _is_denied(skill, layers)}
        self.visible = SkillIndex(skill for skill in index.skills if skill.file not in denied)
        self.hidden = tuple(skill for skill in index.skills if skill.file in denied)

    def catalog(self, budget_tokens: int | None = None) -> Catalog:
        """Return the agent's skills as a model sees them."""
        if budget_tokens is None:
            budget_tokens = self._config.catalog_budget_tokens
        return render_catalog(self.visible, budget_tokens=budget_tokens)

    @cached_property
    def search_index(self) -> SearchIndex:
        """The agent's skills, ready to be searched."""
        return SearchIndex.from_skills(self.visible)

    def tools(self, launcher: Callable[[], Awaitable[Launcher]]) -> list[toolbox.Tool]:
        """Return the agent's tools; without skills there is no tool for them."""
        workspace = toolbox.Workspace(self._config.places.start)
        environment = self._config.places.environment
        of_skills: list[toolbox.Tool] = []
        if self.visible.skills:
            of_skills += [
                toolbox.SkillTool(self.visible, self.catalog().text),
                toolbox.SearchTool(lambda _: self.search_index),
            ]
        return [
            *of_skills,
            toolbox.ReadTool(workspace),
            toolbox.ListTool(workspace),
            toolbox.WriteTool(workspace),
            toolbox.EditTool(workspace),
            toolbox.ExecTool(
                workspace,
                launcher,
                layers=self._policy.layers,
                network=self._network,
                environment={
                    name: environment[name]
                    for name in self._config.exec_environment
                    if name in environment
                },
            ),
        ]

    def gate(
        self, launcher: Callable[[], Awaitable[Launcher]], channel: Channel, audit: AuditLog
    ) -> toolbox.Gate:
        """Return the door to the agent's tools."""
        return toolbox.Gate(
            self.tools(launcher),
            decide=self._decide,
            remember=self._policy.remember,
            channel=channel,
            audit=audit,
        )

    def _decide(
        self, wanted: Permission, default: Effect, why: str, agent: str, skill_digest: str
    ) -> tuple[Decision, str]:
        found = self._policy.explain(
            wanted, agent=agent, default=default, why=why, skill_digest=skill_digest
        )
        return found.decision, found.reason

    def _network(self, agent: str, resource: str) -> bool:
        """Whether a rule grants a command the network; nobody is asked about it."""
        wanted = Permission(action="network", resource=resource)
        found = self._policy.explain(wanted, agent=agent, default=Effect.DENY)
        return found.decision.effect is Effect.ALLOW


def _is_denied(skill: Skill, layers: tuple[Layer, ...]) -> bool:
    permission = Permission(action="skill", resource=skill.name)
    return decide(layers, permission).effect is Effect.DENY

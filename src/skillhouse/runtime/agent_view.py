"""What one agent sees of the house: its skills, its catalog, its tools, and its door."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import approval
from skillhouse import tools as toolbox
from skillhouse.discovery import catalog_under
from skillhouse.floor import PersistentPaths
from skillhouse.permission import Decision, Effect, Layer, Permission, decide
from skillhouse.runtime.agent_search import AgentSearch
from skillhouse.runtime.egress import EgressReport
from skillhouse.runtime.menu import PersonMenu
from skillhouse.runtime.own_files import ConfiguredFiles
from skillhouse.runtime.prompts import Prompts
from skillhouse.skill import SkillIndex, described, read_invocation

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog
    from skillhouse.discovery import Catalog
    from skillhouse.runtime.config import Config
    from skillhouse.runtime.enforcement import EnforcementServices
    from skillhouse.runtime.network import Network
    from skillhouse.runtime.policy import Policy
    from skillhouse.runtime.settings import SkillSettings
    from skillhouse.sandbox import Launcher
    from skillhouse.skill import Profile, Skill


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
        self._for_people = frozenset(
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
            skill for skill in present if self._for_people and skill.directory in self._for_people
        )
        """What the model neither sees nor loads, and a person can start."""
        self.visible = SkillIndex(
            (
                described(skill, extensions)
                for skill in present
                if not self.for_people or skill.directory not in self._for_people
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
        self._withheld = frozenset(skill.directory for skill in (*self.hidden, *shadowed, *off))
        self._skills = (*index.skills, *index.shadowed)
        self._protected = (*roots, *(skill.directory for skill in self._skills))
        self._is_on = settings.enable_skills

    def withholds(self, directory: Path) -> bool:
        """Whether a skill's directory is not for this agent: it is denied or switched off."""
        return not self._is_on or directory in self._withheld

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

    def _text_in_tool(self, chars: int | None) -> str:
        return self.tool_catalog(chars).text if self.profile.catalog.exposure == "tool" else ""

    def tools(
        self, launcher: Callable[[], Awaitable[Launcher]], network: Network, audit: AuditLog
    ) -> list[toolbox.Tool]:
        """Return the agent's tools; without skills there is mostly no tool for them."""

        def way_out(session: toolbox.Session, command: str) -> AbstractAsyncContextManager[Path]:
            return network.way_out(EgressReport(command, session, self._decide, audit))

        places = self._config.places
        caches = self._config.cache_directory or places.cache()
        workspace = toolbox.Workspace(
            places.start,
            withheld=self._withheld,
            for_people=self._for_people,
            protected=(*self._protected, places.user_file.parent, caches),
            private=(self._config.state_directory,),
            own=ConfiguredFiles(self._config, self._skills),
            paths=PersistentPaths(self._config.protection.asked),
        )
        environment = places.environment
        return [
            *self._tools_of_skills(),
            toolbox.ReadTool(workspace),
            toolbox.ListTool(workspace),
            toolbox.WriteTool(workspace),
            toolbox.EditTool(workspace),
            toolbox.ExecTool(
                workspace,
                launcher,
                layers=self._policy.layers,
                network=self._network,
                way_out=way_out,
                environment={
                    name: environment[name]
                    for name in self._config.exec_environment
                    if name in environment
                },
                decide=self._decide,
            ),
            toolbox.FetchTool(network),
            toolbox.WebSearchTool(network),
            *self._tools_of_memory(workspace),
        ]

    def _tools_of_memory(self, workspace: toolbox.Workspace) -> list[toolbox.Tool]:
        """Return the tools for the workspace's memory, where a setting or the profile has them."""
        told = self._config.memory.enabled
        if not (self.profile.memory if told is None else told):
            return []
        return [
            toolbox.MemorySearchTool(workspace, self._effect),
            toolbox.MemoryWriteTool(workspace),
        ]

    def _tools_of_skills(self) -> list[toolbox.Tool]:
        """Return what the profile has of tools about skills, under its names."""
        if not self.visible.skills and not self.profile.tools_without_skills:
            return []
        shown = toolbox.VisibleSkills(
            visible=self.visible,
            hidden=SkillIndex(self.hidden, name_match=self.visible.name_match),
            catalog=self._text_in_tool,
            profile=self.profile,
            decide=self._effect,
            listed=frozenset(skill.file for skill in self.listed.skills),
        )
        away = self._policy.remote_skills
        is_any_away = away is not None and any(
            away.files(skill) is not None for skill in self.visible.skills
        )
        return [
            *(
                toolbox.tool_about_skills(rule, shown, lambda _: self.search.at_hand())
                for rule in self.profile.tools
            ),
            *([toolbox.SkillResourceTool()] if is_any_away else []),
        ]

    def gate(
        self,
        launcher: Callable[[], Awaitable[Launcher]],
        safeguards: EnforcementServices,
        network: Network,
        code: Iterable[toolbox.Tool] = (),
    ) -> toolbox.Gate:
        """Return the door to the agent's tools, and to those of `code` that skills bring."""
        audit = safeguards.audit_log
        return toolbox.SkillGate(
            [*self.tools(launcher, network, audit), *safeguards.tools(), *code],
            conceal=network.conceal,
            decide=self._decide,
            approvals=safeguards.approvals,
            audit=audit,
            workspace_root=self._policy.place,
            write_gate=self._config.write_gate,
            tiers=safeguards.tier_gate,
            workspace=toolbox.WorkspaceLock(
                self._config.state_directory / "workspaces", self._config.places.start
            ),
            agreed=safeguards.agreed,
            telling=self._telling(safeguards.audit_log),
        )

    def person_gate(
        self, run_command: toolbox.RunCommand, safeguards: EnforcementServices
    ) -> toolbox.Gate:
        """Return the door by which a person starts skills; no call of a model comes to it."""
        return self._inner_gate(toolbox.InvokeTool(self._menu(), run_command), safeguards)

    def attaching_gate(self, safeguards: EnforcementServices) -> toolbox.Gate:
        """Return the door by which skills come into a context that nobody's call asked for."""
        names = [rule.name for rule in self.profile.tools if rule.kind == "skill"]
        name = names[0] if names else "skill"
        return self._inner_gate(toolbox.AttachTool(name, self._menu(), self._effect), safeguards)

    def _menu(self) -> toolbox.Menu:
        return toolbox.Menu(
            skills=self.menu.skills,
            profile=self.profile,
            need=self.menu.need,
            refusal=self.menu.refusal,
        )

    def _inner_gate(self, tool: toolbox.Tool, safeguards: EnforcementServices) -> toolbox.Gate:
        """Return a door to one tool that no model is offered."""
        return toolbox.Gate(
            [tool],
            decide=self._decide,
            approvals=safeguards.approvals,
            audit=safeguards.audit_log,
            workspace_root=self._policy.place,
            write_gate=self._config.write_gate,
            tiers=safeguards.tier_gate,
            agreed=safeguards.agreed,
            telling=self._telling(safeguards.audit_log),
        )

    def file_gate(self, approvals: approval.ApprovalBroker, audit: AuditLog) -> toolbox.Gate:
        """Return the door by which a host reads the files of the agent's skills."""
        return toolbox.Gate(
            [toolbox.SkillFileTool(self.profile.extensions)],
            decide=self._decide,
            approvals=approvals,
            audit=audit,
            workspace_root=self._policy.place,
            write_gate=self._config.write_gate,
        )

    def _telling(self, audit: AuditLog) -> toolbox.CallTelemetry:
        return toolbox.CallTelemetry.by(self._config.places.environment, audit.preview)

    def _decide(
        self, need: toolbox.PermissionRequest, session: toolbox.Session
    ) -> tuple[Decision, str]:
        found = self._policy.explain(
            need.permission,
            agent=session.agent,
            default=need.default,
            why=need.why,
            skill_digest=need.skill_digest,
            user=session.user,
            session=approval.session_key(
                session.agent, session.user, session.channel, session.client, session.connection
            ),
            caution=need.caution,
            caution_layer=need.caution_layer,
        )
        return found.decision, found.reason

    def _effect(self, need: toolbox.PermissionRequest, session: toolbox.Session) -> str:
        return self._decide(need, session)[0].effect.value

    def _is_allowed(self, skill: Skill) -> bool:
        found = self._policy.explain_skill(skill, agent=self.agent)
        return found.decision.effect is Effect.ALLOW

    def _network(self, agent: str, resource: str) -> bool:
        """Whether a rule grants a command the network; nobody is asked about it."""
        wanted = Permission(action="network", resource=resource)
        found = self._policy.explain(wanted, agent=agent, default=Effect.DENY)
        return found.decision.effect is Effect.ALLOW


def _is_denied(name: str, layers: tuple[Layer, ...]) -> bool:
    permission = Permission(action="skill", resource=name)
    return decide(layers, permission).effect is Effect.DENY

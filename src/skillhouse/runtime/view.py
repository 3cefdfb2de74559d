"""What one agent sees of the house: its skills, its catalog, its tools, and its door."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path

from skillhouse import approval
from skillhouse import tools as toolbox
from skillhouse.audit import AuditLog
from skillhouse.discovery import Catalog, catalog_under
from skillhouse.permission import Decision, Effect, Layer, Permission, decide
from skillhouse.retrieval import SearchIndex
from skillhouse.runtime.config import Config
from skillhouse.runtime.egress import EgressReport
from skillhouse.runtime.menu import PersonMenu
from skillhouse.runtime.network import Network
from skillhouse.runtime.policy import Policy
from skillhouse.runtime.safeguards import Safeguards
from skillhouse.runtime.settings import SkillSettings
from skillhouse.sandbox import Launcher
from skillhouse.skill import Profile, Skill, SkillIndex, described, read_invocation

INSTRUCTION = """\
## Skills (mandatory)

Before replying: scan <available_skills> <description> entries.
- If exactly one skill clearly applies: read its SKILL.md at <location> with `read`, then follow it.
- If multiple could apply: choose the most specific one, then read/follow it.
- If none clearly apply: do not read any SKILL.md.

Constraints: never read more than one skill up front; only read after selecting."""
"""What stands before the XML block in a system prompt (S000-42 to S000-46, as published)."""

INSTRUCTION_FOR_TOOL = (
    "Skills hold instructions for certain tasks. Before you begin a task, look whether the "
    "<description> of one of these skills fits it; if so, load that skill with `{tool}` and follow "
    "it. Load one at a time, the most specific first."
)


class View:
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
    ) -> None:
        """Sort the index into what the agent may see, what a rule denies and what is off.

        No tool writes below `roots`, which are those of skills, whether they exist or not;
        `worked` gives the files of the project that the agent works on.

        Raises:
            ConfigError: no agent has that name.
        """
        self.agent = agent
        self._config = config
        self._policy = policy
        self._worked = worked
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
        self.hidden = tuple(skill for skill in index.skills if skill.file in denied)
        shadowed = (skill for skill in index.shadowed if _is_denied(skill.name, layers))
        off = (skill for skill in index.skills if not settings.is_enabled(skill.id))
        self._withheld = frozenset(skill.directory for skill in (*self.hidden, *shadowed, *off))
        of_skills = (skill.directory for skill in (*index.skills, *index.shadowed))
        self._protected = (*roots, *of_skills)
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
    ) -> Catalog:
        """Return the agent's skills as a model sees them.

        The style `direct` shows bodies, so it lists only what the agent may load without a
        question; the others are among the omitted.

        Args:
            budget_tokens: Most tokens of the text; the configured budget when None.
            style: Another renderer than the profile's.
            files: Paths below the project that are worked on besides those that the house knows of.

        Raises:
            ConfigError: no renderer has that name.
        """
        if budget_tokens is None:
            budget_tokens = self._config.catalog_budget_tokens
        style = style or self.profile.catalog.style
        listed = self._listed_for((*self._worked(), *files))
        if style == "direct":
            listed = listed.where(self._is_allowed)
        found = catalog_under(self.profile, listed, style=style, budget_tokens=budget_tokens)
        if len(listed) == len(self.visible):
            return found
        included = {skill.file for skill in found.included}
        omitted = tuple(skill for skill in self.visible.skills if skill.file not in included)
        return dataclasses.replace(found, omitted=omitted)

    def system_prompt(self, offered: Iterable[str] | None = None) -> str:
        """Return what the system prompt says of the skills, or nothing.

        A list stands at one place of a request only: it is here where the profile wants it here,
        or where the model is not offered the tool in whose description it would stand.

        Args:
            offered: Names of the tools that the model is offered; all of the agent's when None.
        """
        kinds = {rule.name: rule.kind for rule in self.profile.tools}
        given = {kinds.get(name, "other") for name in (kinds if offered is None else offered)}
        rule = self.profile.catalog
        if not self.visible.skills:
            return rule.empty if rule.exposure == "system" else ""
        if self._is_searched(given):
            return ""
        if not given and offered is not None:
            style = rule.without_tools
        elif rule.exposure == "system":
            style = rule.style
        elif "skill" in given:
            return ""
        else:
            style = rule.without_skill_tool
        text = self.catalog(style=style).text
        # Both or neither (S000-47); the other styles say themselves what to do.
        return f"{self._instruction(given)}\n\n{text}" if text and style == "xml" else text

    def _is_searched(self, given: set[str]) -> bool:
        """Whether skills stand in no list, and the model can search, as far as anybody can."""
        has_search = any(rule.kind == "search" for rule in self.profile.tools)
        return self.profile.catalog.exposure == "search" and ("search" in given or not has_search)

    def _instruction(self, given: set[str]) -> str:
        """Return what to do with the list, naming a tool that is there."""
        published = self.profile.messages.get("instruction")
        loading = [rule.name for rule in self.profile.tools if rule.kind == "skill"]
        if published or "skill" not in given or not loading:
            return published or INSTRUCTION
        return INSTRUCTION_FOR_TOOL.format(tool=loading[0])

    @cached_property
    def search_index(self) -> SearchIndex:
        """The agent's skills, ready to be searched."""
        if self.profile.search_bodies:
            return SearchIndex.from_skills(self.visible)
        return SearchIndex.from_documents(
            (skill.id, skill.name, skill.description, "") for skill in self.visible.skills
        )

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
        is_in_tool = self.profile.catalog.exposure == "tool"
        shown = toolbox.Shown(
            visible=self.visible,
            hidden=SkillIndex(self.hidden, name_match=self.visible.name_match),
            catalog=self.catalog().text if is_in_tool else "",
            profile=self.profile,
            decide=self._effect,
            listed=frozenset(skill.file for skill in self.listed.skills),
        )
        away = self._policy.elsewhere
        is_any_away = away is not None and any(
            away.files(skill) is not None for skill in self.visible.skills
        )
        return [
            *(
                toolbox.tool_about_skills(rule, shown, lambda _: self.search_index)
                for rule in self.profile.tools
            ),
            *([toolbox.SkillResourceTool()] if is_any_away else []),
        ]

    def gate(
        self,
        launcher: Callable[[], Awaitable[Launcher]],
        safeguards: Safeguards,
        network: Network,
        code: Iterable[toolbox.Tool] = (),
    ) -> toolbox.Gate:
        """Return the door to the agent's tools, and to those of `code` that skills bring."""
        audit = safeguards.audit_log
        return toolbox.SkillGate(
            [*self.tools(launcher, network, audit), *safeguards.tools(), *code],
            decide=self._decide,
            approvals=safeguards.approvals,
            audit=audit,
            place=self._policy.place,
            write_gate=self._config.write_gate,
            tiers=safeguards.tier_gate,
            agreed=safeguards.agreed,
            telling=self._telling(safeguards.audit_log),
        )

    def person_gate(self, run_command: toolbox.RunCommand, safeguards: Safeguards) -> toolbox.Gate:
        """Return the door by which a person starts skills; no call of a model comes to it."""
        return self._inner_gate(toolbox.InvokeTool(self._menu(), run_command), safeguards)

    def attaching_gate(self, safeguards: Safeguards) -> toolbox.Gate:
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

    def _inner_gate(self, tool: toolbox.Tool, safeguards: Safeguards) -> toolbox.Gate:
        """Return a door to one tool that no model is offered."""
        return toolbox.Gate(
            [tool],
            decide=self._decide,
            approvals=safeguards.approvals,
            audit=safeguards.audit_log,
            place=self._policy.place,
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
            place=self._policy.place,
            write_gate=self._config.write_gate,
        )

    def _telling(self, audit: AuditLog) -> toolbox.Telling:
        return toolbox.Telling.by(self._config.places.environment, audit.preview)

    def _decide(self, need: toolbox.Need, session: toolbox.Session) -> tuple[Decision, str]:
        found = self._policy.explain(
            need.permission,
            agent=session.agent,
            default=need.default,
            why=need.why,
            skill_digest=need.skill_digest,
            user=session.user,
            session=approval.session_key(session.agent, session.user, session.channel),
        )
        return found.decision, found.reason

    def _effect(self, need: toolbox.Need, session: toolbox.Session) -> str:
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

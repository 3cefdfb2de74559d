"""Makes an agent's gates, with the tools behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from skillhouse import approval
from skillhouse import tools as toolbox
from skillhouse.extension import is_installed
from skillhouse.floor import ConfigError, PersistentPaths
from skillhouse.floor.rules import strictest
from skillhouse.house.agent_view import AgentView
from skillhouse.house.enforcement import EnforcementServices
from skillhouse.house.network import EgressReport, Network
from skillhouse.house.own_files import ConfiguredFiles
from skillhouse.house.person_tools import tool_finder
from skillhouse.house.policy import Policy
from skillhouse.house.sandbox_provider import SandboxProvider
from skillhouse.house.skill_lines import names_of
from skillhouse.house.trust import TrustStore
from skillhouse.permission import Decision, Effect, Layer, Permission
from skillhouse.sandbox import Limits
from skillhouse.skill import SkillIndex, ToolRule

if TYPE_CHECKING:
    from skillhouse import net
    from skillhouse.house.config import Config


class LastingServices(Protocol):
    """What outlives a reload, for what follows from one configuration; each made at first use."""

    @property
    def policy(self) -> Policy:
        """The rules in use, which may be later ones than those of a call that runs."""

    @property
    def network(self) -> Network:
        """The network in use."""

    @property
    def trust_store(self) -> TrustStore: ...

    @property
    def enforcement(self) -> EnforcementServices: ...

    @property
    def sandbox(self) -> SandboxProvider: ...

    @property
    def results(self) -> toolbox.ResultFiles: ...

    @property
    def background(self) -> toolbox.BackgroundRuns: ...

    def install_tool(self, decide: Callable[..., str]) -> toolbox.ToolMaker:
        """Return what makes the tool that installs a skill for a model."""

    def own_tools(self, config: Config) -> Sequence[toolbox.Tool]:
        """Return the tools of the program and of extensions, which every agent has."""

    def extension_channels(self, config: Config) -> tuple[approval.Channel, ...]:
        """Return what asks a person by the extensions that are loaded."""

    def session_grants(self, key: str) -> tuple[approval.Grant, ...]:
        """Return the approvals for the rest of a conversation."""


class GateFactory:
    """Makes gates that share one policy, one audit log and one set of approvals."""

    def __init__(
        self,
        policy: Policy,
        network: Network,
        services: LastingServices,
        own_tools: Sequence[toolbox.Tool] = (),
    ) -> None:
        """`own_tools` are those of the program and of extensions, which every agent has."""
        self._own_tools = own_tools
        self._policy = policy
        self._config = policy.config
        self._network = network
        self._services = services
        enforcement = services.enforcement
        self._audit = enforcement.audit_log
        self._sandbox = services.sandbox
        self._results = services.results
        self._judge = toolbox.PermissionJudge(self._decide, policy.place, policy.config.write_gate)
        self._recorder = toolbox.Recorder(
            self._audit, policy.place, policy.rules_digest, profile=policy.profile.name
        )
        self._asker = toolbox.Asker(
            lambda: enforcement.approvals, self._recorder, policy.place, enforcement.redeemed
        )

    def for_agent(
        self,
        view: AgentView,
        code: Sequence[toolbox.Tool] = (),
        why_absent: Callable[[str], str] = lambda _: "",
    ) -> toolbox.Gate:
        """Return the gate to the agent's tools, and to those that skills bring (`code`).

        `why_absent` says why a tool of a skill is not there.

        INVARIANT: no two have one name: see `check_own_tools` and `SkillCode.tools`.
        """
        enforcement = self._services.enforcement

        def missing(name: str) -> str:
            return enforcement.why_absent(name) or why_absent(name)

        tools = toolbox.ToolSet(
            [*self._own_tools, *code, *_caller(code)],
            {**self._tools(view), **enforcement.tools()},
            view.offer,
            toolbox.ToolNames(published=view.profile.tool_names, bare=view.profile.bare_tool_names),
            missing,
        )
        return toolbox.Gate(
            tools,
            judge=self._judge,
            asker=self._asker,
            recorder=self._recorder,
            tiers=enforcement.tier_gate,
            workspace=toolbox.WorkspaceLock(
                self._config.state_directory / "workspaces", self._config.places.start
            ),
            telemetry=self._telemetry(),
            delivery=toolbox.Delivery(
                self._network.conceal, self._results, has_read=tools.shows_read
            ),
            deferred=view.deferred,
        )

    def for_person(self, view: AgentView, run_command: toolbox.RunCommand) -> toolbox.Gate:
        """Return the gate by which a person starts skills; no call of a model reaches it."""
        return self._hidden_gate(toolbox.InvokeTool(_menu(view), run_command))

    def for_attachments(self, view: AgentView) -> toolbox.Gate:
        """Return the gate by which skills enter a context without a call of the model."""
        names = [rule.name for rule in view.profile.tools if rule.kind == "skill"]
        name = names[0] if names else "skill"
        return self._hidden_gate(toolbox.AttachTool(name, _menu(view), self._effect))

    def for_host(self, view: AgentView) -> toolbox.Gate:
        """Return the gate by which a host program reads the files of the agent's skills."""
        return toolbox.Gate(
            toolbox.ToolSet([toolbox.SkillFileTool(view.profile.extensions)]),
            judge=self._judge,
            asker=self._asker,
            recorder=self._recorder,
        )

    def native_plans(self, view: AgentView) -> toolbox.NativePlans:
        """Return what plans the calls of a coding agent's own tools as ours are planned."""
        made = self._tools(view)
        skills = [rule.name for rule in view.profile.tools if rule.kind == "skill"]
        return toolbox.NativePlans(
            self._workspace(view),
            layers=self._layers,
            decide=self._decide,
            tool=cache(lambda name: made[name]()),
            skill_tool=skills[0] if skills and skills[0] in made else "",
            known_skills=frozenset(
                name for skill in view.all_skills for name in (skill.name, skill.id)
            ),
        )

    def for_client(self, tool: toolbox.NativeTool) -> toolbox.Gate:
        """Return the gate to one tool that a coding agent runs itself."""
        return self._hidden_gate(tool)

    def _hidden_gate(self, tool: toolbox.Tool) -> toolbox.Gate:
        """Return a gate to one tool that no model is offered."""
        return toolbox.Gate(
            toolbox.ToolSet([tool]),
            judge=self._judge,
            asker=self._asker,
            recorder=self._recorder,
            tiers=self._services.enforcement.tier_gate,
            telemetry=self._telemetry(),
        )

    def _tools(self, view: AgentView) -> dict[str, toolbox.ToolMaker]:
        """Return what makes each built-in tool, by name, in the order of lists."""
        places = self._config.places
        environment = places.environment

        workspace = cache(lambda: self._workspace(view))

        def command_tool() -> toolbox.Tool:
            return toolbox.ExecTool(
                workspace(),
                self._sandbox.launcher,
                layers=self._layers,
                network_effect=self._network_effect,
                net_policy=self._net_policy,
                way_out=self._way_out,
                environment={
                    name: environment[name]
                    for name in self._config.exec_environment
                    if name in environment
                },
                decide=self._decide,
                scripts=self._services.enforcement.approvals.scripts,
                has_namespaces=self._sandbox.expects_namespaces,
                limits=Limits(**self._config.sandbox_limits.values()),
                background=self._services.background,
                tools=tool_finder(self._config),
                listed=view.profile.listed_commands,
            )

        conceal, services = self._network.conceal, self._services
        makers: dict[str, toolbox.ToolMaker] = {
            **self._skill_tools(view),
            "read": lambda: toolbox.ReadTool(workspace(), self._results, conceal),
            "list": lambda: toolbox.ListTool(workspace()),
            "write": lambda: toolbox.WriteTool(workspace()),
            "edit": lambda: toolbox.EditTool(workspace()),
            "exec": command_tool,
            "exec_output": lambda: toolbox.ExecOutputTool(services.background, conceal),
            "exec_stop": lambda: toolbox.ExecStopTool(services.background, conceal),
            "fetch": lambda: toolbox.FetchTool(self._network),
            "web_search": lambda: toolbox.WebSearchTool(self._network),
        }
        configured = self._config.memory.enabled
        if view.profile.memory if configured is None else configured:
            makers["memory_search"] = lambda: toolbox.MemorySearchTool(workspace(), self._effect)
            makers["memory_write"] = lambda: toolbox.MemoryWriteTool(workspace())
        # A tree from which that extension was deleted has no such tool.
        if self._config.find_and_install.enabled and is_installed("installs"):
            makers[toolbox.FIND_AND_INSTALL] = services.install_tool(self._effect)
        return makers

    def _workspace(self, view: AgentView) -> toolbox.Workspace:
        places = self._config.places
        caches = self._config.cache_directory or places.cache()
        return toolbox.Workspace(
            places.start,
            withheld=view.withheld,
            for_people=view.person_directories,
            protected=(*view.skill_directories, places.user_file.parent, caches),
            private=(self._config.state_directory,),
            own=ConfiguredFiles(self._config, view.all_skills),
            paths=PersistentPaths(self._config.protection.asked),
        )

    def _skill_tools(self, view: AgentView) -> dict[str, toolbox.ToolMaker]:
        """Return those of the profile's tools about skills, under the profile's names.

        Where all skills are denied no model sees them, and a call gets the denial.
        """
        if not (view.listable.skills or view.hidden or view.profile.tools_without_skills):
            return {}

        @cache
        def visible_skills() -> toolbox.VisibleSkills:
            return toolbox.VisibleSkills(
                visible=view.visible,
                hidden=SkillIndex(view.hidden, name_match=view.visible.name_match),
                catalog=view.tool_catalog_text,
                profile=view.profile,
                decide=self._effect,
                listed=frozenset(skill.file for skill in view.listed.skills),
                replaced=view.replaced,
                deferred=view.deferred,
                code=names_of(view.code_skills),
            )

        def maker(rule: ToolRule) -> toolbox.ToolMaker:
            return lambda: toolbox.tool_about_skills(
                rule,
                visible_skills(),
                lambda session, query, *, limit, collapse: view.search.find(
                    query, limit=limit, collapse=collapse, waits=False, user=session.user
                ),
            )

        makers = {rule.name: maker(rule) for rule in view.profile.tools}
        remote_skills = self._policy.remote_skills
        if remote_skills is not None and any(
            remote_skills.files(skill) is not None for skill in view.visible.skills
        ):
            makers[toolbox.SKILL_RESOURCE] = toolbox.SkillResourceTool
        return makers

    def _net_policy(self) -> net.NetPolicy:
        return self._network.policy

    def _way_out(
        self,
        session: toolbox.Session,
        command: str,
        named: tuple[toolbox.NamedRequest, ...],
        seconds: float,
    ) -> AbstractAsyncContextManager[Path]:
        report = EgressReport(command, session, self._decide, self._audit, named)
        return self._network.way_out(report, named, idle_seconds=seconds)

    def code_way_out(
        self,
        session: toolbox.Session,
        hosts: Sequence[net.HostRule],
        *,
        call: str,
        tool: str,
    ) -> toolbox.CodeNetwork:
        """Return the way out of one call of a skill's code, by its id and its tool's name."""
        from skillhouse.house.code_network import CodeWayOut  # noqa: PLC0415 - few calls have one

        return CodeWayOut(
            self._network, hosts, session, self._decide, self._audit, call=call, tool=tool
        )

    def _telemetry(self) -> toolbox.CallTelemetry:
        environment = self._config.places.environment
        server = self._config.server_name
        return toolbox.CallTelemetry.by(environment, self._audit.preview, server=server)

    def _decide(
        self, request: toolbox.PermissionRequest, session: toolbox.Session
    ) -> tuple[Decision, str]:
        found = _explained(self._policy, request, session)
        newest = self._services.policy
        if newest is self._policy:
            return found
        # INVARIANT: a call ends under the rules that it began with, and under newer ones where
        # those are stricter: a question that waits is decided again at the moment of use.
        fault = "the configuration has changed meanwhile"
        try:
            newer = _explained(newest, request, session)
        except ConfigError as error:
            return Decision(effect=Effect.DENY, layer="reload"), f"{error}; {fault}"
        judged = newest.config.write_gate.apply(
            toolbox.EvaluatedPermission(request=request, decision=newer[0], reason=newer[1]),
            session.user,
            self._policy.place,
        )
        if strictest((judged.decision.effect, found[0].effect)) is not found[0].effect:
            return judged.decision, judged.reason
        return found

    def _layers(self, agent: str) -> tuple[Layer, ...]:
        """Return the layers of the gate, and those of newer rules, whose denials count."""
        own, newest = self._policy.layers(agent), self._services.policy
        if newest is self._policy:
            return own
        try:
            return (*own, *newest.layers(agent))
        except ConfigError:
            # Each of its permissions is denied by `_decide`.
            return own

    def _effect(self, request: toolbox.PermissionRequest, session: toolbox.Session) -> str:
        return self._decide(request, session)[0].effect.value

    def _network_effect(self, agent: str, resource: str) -> Effect:
        """What the rules say of a command's network; `ASK` where none is about it."""
        wanted = Permission(action="network", resource=resource)
        return self._policy.explain(wanted, agent=agent, default=Effect.ASK).decision.effect


def _explained(
    policy: Policy, request: toolbox.PermissionRequest, session: toolbox.Session
) -> tuple[Decision, str]:
    explanation = policy.explain(
        request.permission,
        agent=session.agent,
        default=request.default,
        why=request.why,
        skill_digest=request.skill_digest,
        user=session.user,
        session=approval.session_key(
            session.agent, session.user, session.channel, session.client, session.connection
        ),
        caution=request.caution,
        caution_layer=request.caution_layer,
    )
    return explanation.decision, explanation.reason


def _caller(code: Sequence[toolbox.Tool]) -> tuple[toolbox.Tool, ...]:
    """Return what calls tools of skills for which a list has no room; an agent without has none."""
    return (toolbox.CallSkillTool(),) if code else ()


def _menu(view: AgentView) -> toolbox.Menu:
    return toolbox.Menu(
        skills=view.menu.skills,
        profile=view.profile,
        need=view.menu.need,
        refusal=view.menu.refusal,
    )

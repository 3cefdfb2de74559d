"""The entry of the library: the skills of one directory, and tool calls through its gates."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from skillhouse import extension
from skillhouse import tools as toolbox
from skillhouse.floor import StateError, structs
from skillhouse.floor.lock import once
from skillhouse.house.config import Locations
from skillhouse.house.config.config_files import configured
from skillhouse.house.config.config_keys import overridden
from skillhouse.house.config_reload import ConfigReload
from skillhouse.house.find_skills import find_in
from skillhouse.house.house_snapshot import watch
from skillhouse.house.remote_skills import load_for_person
from skillhouse.house.services import Services
from skillhouse.house.trust import ProjectTrust
from skillhouse.skill import SKILL_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from skillhouse import approval
    from skillhouse.audit import AuditLog
    from skillhouse.discovery import Catalog
    from skillhouse.house.agent_view import AgentView, Invocable
    from skillhouse.house.all_logs import AllLogs
    from skillhouse.house.config import Config
    from skillhouse.house.config.config_keywords import ConfigFields
    from skillhouse.house.conversation import Conversation
    from skillhouse.house.house_snapshot import Difference, HouseSnapshot
    from skillhouse.house.management import Management
    from skillhouse.house.model_tools import ModelTools
    from skillhouse.house.policy import Policy
    from skillhouse.house.remotes import Remotes
    from skillhouse.retrieval import Hit
    from skillhouse.skill import SkillContent, SkillIndex
    from skillhouse.tools import Caller, CallerFields, FunctionTool
    from skillhouse.tools.call import T


class Skillhouse:
    """The skills of one directory and the gates to their effects.

    >>> house = Skillhouse()  # doctest: +SKIP
    >>> house.call_sync("skill", {"name": "weather"}).content  # doctest: +SKIP
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        channel: approval.Channel | None = None,
        checks: Sequence[toolbox.SkillCheck] = (),
        tools: Sequence[toolbox.Tool] = (),
        **overrides: Unpack[ConfigFields],
    ) -> None:
        """Compose it from the files of this process's directory, or from `config`.

        Args:
            config: Where it works and which rules apply; when None, the configuration files say.
            channel: Asks a person; without one, a call that needs an approval stays pending.
            checks: What loading a skill needs besides a decision of the policy.
            tools: Your own tools, behind the same gate; `skillhouse.tool` makes one of a function.
            overrides: Values of `Config` to use instead, such as `roots` or `profile`.

        Raises:
            ConfigError: a configuration file, variable or override cannot be used, a list names
                an unknown tool, or the name of one of `tools` is taken.
            StateError: the trust store cannot be read, or other users can use the state directory.
        """
        if config is None:
            config = configured(Locations.here())
        config = overridden(config, overrides)
        self.services = Services(
            config,
            channel=channel,
            checks=checks,
            call=self.call,
            install_tool=partial(_install_tool, self),
            tools=tools,
        )
        """The parts that it is composed of, for frontends and tests."""
        self._trust_stamp = self.services.trust_store.stamp()
        self.config_reload = ConfigReload(config, overrides, self.services.reload)
        """Follows the configuration files: each call sees them as they are then."""
        self.config_reload.subscribe(self.services.note_reload)

    @classmethod
    def open(
        cls,
        config: Config | None = None,
        *,
        channel: approval.Channel | None = None,
        checks: Sequence[toolbox.SkillCheck] = (),
        tools: Sequence[toolbox.Tool] = (),
        **overrides: Unpack[ConfigFields],
    ) -> AbstractAsyncContextManager[Self]:
        """Open it for `async with`, without keeping the event loop from other work meanwhile.

        Arguments and errors are those of `Skillhouse(…)`; the block's end closes it.
        """
        from skillhouse.house.wait_for_call import opened

        return opened(
            partial(cls, config, channel=channel, checks=checks, tools=tools, **overrides)
        )

    @property
    def config(self) -> Config:
        """The configuration in use; a changed file replaces it as a whole."""
        return self.services.config

    @property
    def config_files(self) -> tuple[Path, ...]:
        """The files that the configuration in use is read from, whether they exist or not."""
        return self.config_reload.files

    @property
    def project(self) -> Path:
        """The git root of the start directory, or the start directory outside git."""
        return self.services.project

    @property
    def is_project_trusted(self) -> bool:
        """Whether a person trusts the project; otherwise its skills are not read."""
        return self.services.trust_store.is_trusted(self.project)

    @property
    def runs_code(self) -> bool:
        """Whether skills' own code is on."""
        return self.services.runs_code

    @property
    def policy(self) -> Policy:
        """The rules, the profile and the standing approvals."""
        return self.services.policy

    @once
    def all_logs(self) -> AllLogs:
        """The logs of all servers of this state; ImportError without the extra `server`."""
        from skillhouse.house.all_logs import AllLogs

        servers = self.services.enforcement.connections.servers
        return AllLogs(self.config, self.audit_log, servers)

    @property
    def audit_log(self) -> AuditLog:
        """The record of every decision and its outcome."""
        return self.services.enforcement.audit_log

    @property
    def approvals(self) -> approval.ApprovalBroker:
        """The approval requests; each process has a broker of its own on the same state."""
        return self.services.enforcement.approvals

    @property
    def snapshot(self) -> HouseSnapshot:
        """The result of the last scan: roots, skills, settings and each agent's view."""
        return self.services.snapshot

    @property
    def index(self) -> SkillIndex:
        """The skills of this directory; an untrusted project's skills are not read."""
        return self.snapshot.index

    def view(self, agent: str = "default") -> AgentView:
        """Return what an agent sees. Raises ConfigError: no agent has that name."""
        return self._current().view(agent)

    def catalog(
        self,
        *,
        agent: str = "default",
        budget_tokens: int | None = None,
        style: str | None = None,
        files: Iterable[str] = (),
        budget_chars: int | None = None,
        request: str = "",
    ) -> Catalog:
        """Return what an agent sees, in a style; ConfigError for an unknown agent or style.

        With a request, the skills that fit it come first.
        """
        return self.view(agent).catalog(
            budget_tokens, style=style, files=files, budget_chars=budget_chars, request=request
        )

    def system_prompt(
        self,
        *,
        agent: str = "default",
        offered: Iterable[str] | None = None,
        tool_chars: int | None = None,
    ) -> str:
        """Return the part of the system prompt about skills; see `Prompts.system`.

        `offered` names the tools that the model is offered, all of the agent's when None;
        `tool_chars` are the most characters that its API takes of a tool's description, which has
        then no room for a long list. Raises ConfigError for an unknown agent.
        """
        return self.view(agent).system_prompt(offered, tool_chars=tool_chars)

    def search(self, query: str, *, limit: int = 5, agent: str = "default") -> list[Hit]:
        """Return the visible skills that fit a request best, best first."""
        return list(self.view(agent).search.find(query, limit=limit).hits)

    def tools(
        self,
        *,
        agent: str = "default",
        also: Sequence[str] = (),
        caller: Caller | None = None,
        every: bool = False,
    ) -> ModelTools:
        """Return an agent's tools, for showing them to a model; only `call` runs them.

        `.openai()` and `.anthropic()` are what the APIs of these take. Beyond `tool_count` or
        `tool_list_chars` the tools of skills are left out: the catalog has lines for their skills,
        searching gives their schemas, and `call_skill_tool` calls them.

        Args:
            agent: Whose tools.
            also: Names of unlisted ones.
            caller: Whose conversation: the tools of skills that it loaded are there too.
            every: All that may be called, whatever there is room for.
        """
        from skillhouse.house.model_tools import ModelTools

        self.use_extensions()
        snapshot = self._current()
        gate = snapshot.gate(agent)
        if every:
            shown = gate.tools_with(also)
        else:
            sessions = self.services.sessions
            who = None if caller is None else self.services.caller(caller)
            shown = gate.listed(also, () if who is None else sessions.tools_in_use(who))
        return ModelTools(shown.values(), snapshot.view(agent))

    async def call(
        self,
        name: str | FunctionTool[..., object, T],
        arguments: Mapping[str, object],
        *,
        caller: Caller | None = None,
        approval_id: str | None = None,
        listener: toolbox.ProgressHandler | None = None,
        origin_digest: str = "",
        wait: float = 0,
        **fields: Unpack[CallerFields],
    ) -> toolbox.ToolResult[T]:
        """Make one tool call through the gate.

        Args:
            name: The tool; or one that `tool` made, whose result then has a typed `value`.
            arguments: Checked against the tool's schema.
            caller: Who calls; or its fields as keywords, such as `agent` and `user`.
            approval_id: Of an answered approval of this very call; found without it, too.
            listener: Receives the progress of the call.
            origin_digest: Digest of the skill whose code calls, where it is not the agent itself.
            wait: Seconds to wait for an answer where the call would be pending; without one by
                then it is, and its question stays open.
            fields: The fields of `Caller`.

        Raises:
            UnknownToolError: no tool has that name; it names the nearest.
            ConfigError: no agent has that name.
        """
        who = self.services.caller(caller, fields)
        tool_name = name if isinstance(name, str) else name.name

        async def attempt(approval_id: str | None) -> toolbox.ToolResult[T]:
            return await self._call_once(
                tool_name, arguments, who, approval_id, listener, origin_digest
            )

        result = await attempt(approval_id)
        if not wait:
            return result
        from skillhouse.house.wait_for_call import answered_call

        return await answered_call(self.approvals, result, partial(attempt, None), wait)

    async def _call_once(
        self,
        name: str,
        arguments: Mapping[str, object],
        who: Caller,
        approval_id: str | None,
        listener: toolbox.ProgressHandler | None,
        origin_digest: str,
    ) -> toolbox.ToolResult:
        await self.config_reload.check_in_thread()
        if self.runs_code:
            await self.services.skill_code.reload_if_signalled(self.refresh)
        snapshot = self._snapshot_with(name, who.agent, self._current(is_checked=True))
        call = who.tool_call(name, arguments, approval_id=approval_id)
        visible = snapshot.view(call.agent).visible
        session = self.services.sessions.of(call, visible, origin_digest=origin_digest)
        result = await snapshot.gate(who.agent).call(call, session, listener=listener)
        snapshot.note(call, result)
        if result.status in ("pending", "denied") and (notice := self.config_reload.notice):
            # Whoever is asked may have changed the very rule that was to decide this.
            return structs.replace(result, content=f"{result.content}\n{notice}")
        return result

    def _snapshot_with(self, tool: str, agent: str, snapshot: HouseSnapshot) -> HouseSnapshot:
        """Return the snapshot, a new one where an extension may have brought an unknown tool."""
        if snapshot.gate(agent).knows(tool) or not self.use_extensions():
            return snapshot
        return self.services.snapshot

    def _current(self, *, is_checked: bool = False) -> HouseSnapshot:
        """Return the snapshot in use, a new one for a profile without a cache."""
        if not is_checked:
            self.config_reload.check()
        if self.policy.profile.cache == "none":
            self.refresh()
        elif self._trust_may_have_changed():
            # A state that cannot be read trusts nothing more, and the gate refuses every effect.
            with suppress(StateError):
                self.refresh()
        return self.snapshot

    def _trust_may_have_changed(self) -> bool:
        """Whether another process may have trusted what waits for it here."""
        if not (self.snapshot.was_used and self.snapshot.shown.waiting):
            return False
        before, self._trust_stamp = self._trust_stamp, self.services.trust_store.stamp()
        return before != self._trust_stamp

    def call_sync(
        self,
        name: str | FunctionTool[..., object, T],
        arguments: Mapping[str, object],
        *,
        caller: Caller | None = None,
        approval_id: str | None = None,
        listener: toolbox.ProgressHandler | None = None,
        origin_digest: str = "",
        wait: float = 0,
        **fields: Unpack[CallerFields],
    ) -> toolbox.ToolResult[T]:
        """Make a call as `call` does; all such calls run on one thread until `close`."""
        return self.services.portal().call(
            lambda: self.call(
                name,
                arguments,
                caller=caller,
                approval_id=approval_id,
                listener=listener,
                origin_digest=origin_digest,
                wait=wait,
                **fields,
            )
        )

    def forecast(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        need: toolbox.PermissionRequest | None = None,
        caller: Caller | None = None,
        origin_digest: str = "",
        cache: toolbox.ForecastCache | None = None,
        loaded: Path | None = None,
        **fields: Unpack[CallerFields],
    ) -> toolbox.Forecast:
        """Return what the gate would answer now; nothing is run, recorded, asked or reserved.

        Args:
            need: The request to decide where the arguments are not known; they are then ignored.
            cache: Shared by forecasts about one moment.
            loaded: Directory of a skill that is supposed loaded. All others are as of `call`.

        Raises:
            UnknownToolError: no tool has that name.
            ConfigError: no agent has that name.
        """
        call = self.services.caller(caller, fields).tool_call(name, arguments)
        snapshot = self._snapshot_with(name, call.agent, self._current())
        visible = snapshot.view(call.agent).visible
        forecasts = toolbox.ForecastCache() if cache is None else cache
        session = self.services.sessions.of(
            call, visible, origin_digest=origin_digest, forecasts=forecasts
        )
        if loaded is not None:
            supposed = {**session.loaded, str(loaded / SKILL_FILE): loaded}
            session = structs.replace(session, loaded=supposed)
        return snapshot.gate(call.agent).forecast(call, session, need=need)

    async def invoke(
        self,
        name: str,
        arguments: str = "",
        *,
        caller: Caller | None = None,
        approval_id: str | None = None,
        **fields: Unpack[CallerFields],
    ) -> toolbox.ToolResult:
        """Start a skill for a person, as slash commands do; no call of a model gets here.

        The skill's commands are tool calls of the agent.

        Args:
            name: The skill.
            arguments: What the person wrote after it.
            caller, fields: As of `call`.
            approval_id: Of an answered approval of this very start.

        Raises:
            ConfigError: no agent has that name.
        """
        who = self.services.caller(caller, fields)

        def run_command(
            command: Mapping[str, Any], origin_digest: str, parent: str
        ) -> Awaitable[toolbox.ToolResult]:
            # Each command is a call of its own.
            caller = structs.replace(who, call_id="", parent=parent)
            return self.call("exec", command, caller=caller, origin_digest=origin_digest)

        view = self.view(who.agent)
        gate = self.services.gates.for_person(view, run_command)
        call = who.tool_call(
            toolbox.INVOKE, {"name": name, "arguments": arguments}, approval_id=approval_id
        )
        return await gate.call(call, self.services.sessions.of(call, view.visible))

    def invocable(self, agent: str = "default") -> tuple[Invocable, ...]:
        """Return the skills that a person may start beside an agent, for menus."""
        return self.view(agent).menu.entries()

    def conversation(
        self, *, caller: Caller | None = None, **fields: Unpack[CallerFields]
    ) -> Conversation:
        """Return a conversation, for a program that keeps its context; arguments as of `call`.

        Raises:
            ConfigError: no agent has that name.
        """
        from skillhouse.house.conversation import Conversation

        return Conversation(self.services, self.view, self.services.caller(caller, fields))

    async def release_loop(self) -> None:
        """Close what is bound to the running event loop; call it before that loop ends."""
        await self.services.release_loop()

    def close(self) -> None:
        """End the thread of `call_sync` and what it runs; close extensions, the state, the log."""
        self.services.close_portal()
        self.snapshot.close()
        self.services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, reference: str, *, anyway: bool = False) -> SkillContent:
        """Return a skill's body for a person, by id, name or path; the gate is for models.

        Raises:
            UnknownSkillError, AmbiguousSkillError, UnusableSkillError: as of `find_in`.
            SkillError: the file cannot be used any more, or, without `anyway`, it is an installed
                one that was edited or whose signature is refused.
        """
        skill = find_in(self.snapshot.place, reference, by_link=True)
        check = None if anyway else self.services.installed_check.fault
        return load_for_person(self.services.mcp_host, skill, self.config.remote_directory, check)

    @once
    def remotes(self) -> Remotes:
        """The configured servers of skills."""
        from skillhouse.house.remotes import Remotes

        return Remotes(self, self.audit_log)

    @once
    def management(self) -> Management:
        """Adds, removes and switches skills for a person."""
        from skillhouse.house.management import Management

        return Management(self, settings=self.services.settings_store, audit=self.audit_log)

    @once
    def project_trust(self) -> ProjectTrust:
        """The trust in the project of the start directory."""
        services = self.services
        log, linked = services.enforcement, self.policy.linked
        return ProjectTrust(self, services.trust_store, services.project, log, linked)

    def refresh(self) -> bool:
        """Scan again; whether the result differs.

        Agents' views are replaced together if anything changed; the next search reads new bodies.
        """
        self.config_reload.check()
        before, now = self.snapshot, self.services.scan()
        if before.was_used and now.is_like(before):
            before.follow(now)
            return False
        self.services.exchange(now)
        return True

    def watch(
        self, announce: Callable[[Difference], None], *, stop: threading.Event, poll: bool = False
    ) -> None:
        """Refresh whenever a file changes, and announce the differences, until `stop` is set.

        Args:
            announce: Receives each difference, on this thread.
            stop: Ends the watch.
            poll: Poll the files, for file systems without change notifications.

        Raises:
            MissingExtraError: the extra `watch` is not installed.
        """
        watch(self, announce, stop=stop, poll=poll)

    def use_extensions(self) -> bool:
        """Load the extensions of others, once, for servers and lists of tools; whether there are
        any. Otherwise an unknown tool has them loaded."""
        if not self.services.extensions.load():
            return False
        self.services.reload(self.config)
        return True


def _install_tool(house: Skillhouse, decide: Callable[..., str]) -> toolbox.Tool:
    made: toolbox.Tool = extension.own_module("installs").FindAndInstallTool(house, decide)
    return made

"""The house of one place: its skills, who may see them, and the one door to effects."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from skillhouse import approval, audit, discovery, retrieval, sandbox
from skillhouse import tools as toolbox
from skillhouse.floor.once import once
from skillhouse.runtime.calling import caller, forecast
from skillhouse.runtime.code.skill_code import Found, SkillCode
from skillhouse.runtime.config import Config, Locations
from skillhouse.runtime.config.resolve import configured, overridden, profile_of, project_of
from skillhouse.runtime.conversation import Conversation
from skillhouse.runtime.management import Management
from skillhouse.runtime.mcp_skills import load_for_person, mcp_host_of
from skillhouse.runtime.menu import Invocable, invoke
from skillhouse.runtime.network import Network
from skillhouse.runtime.own_files import check_directories
from skillhouse.runtime.policy import Policy
from skillhouse.runtime.recent import RecentSkills
from skillhouse.runtime.remotes import Remotes
from skillhouse.runtime.sandbox_provider import SandboxProvider
from skillhouse.runtime.settings import SettingsStore, SkillSettings
from skillhouse.runtime.snapshot import Difference, HouseSnapshot
from skillhouse.runtime.touched_files import TouchedFiles
from skillhouse.runtime.trust import TrustStore
from skillhouse.runtime.trusting import ProjectTrust
from skillhouse.runtime.watching import watch

if TYPE_CHECKING:
    from skillhouse.runtime.agent_view import AgentView
    from skillhouse.runtime.enforcement import EnforcementServices
    from skillhouse.skill import Skill, SkillContent, SkillIndex


class Skillhouse:
    """One house, built from one configuration.

    >>> house = Skillhouse()  # doctest: +SKIP
    >>> house.call_sync("skill", {"name": "weather"}).content  # doctest: +SKIP
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        channel: approval.Channel | None = None,
        checks: Sequence[toolbox.SkillCheck] = (),
        **overrides: Any,
    ) -> None:
        """Build the house of this process's place, or of `config`.

        Args:
            config: Where the house stands and what its rules are; read from the files of this
                place when None.
            channel: How a person is asked; without one, what needs a yes waits for an answer.
            checks: What loading a skill needs besides what the rules say.
            overrides: Values of `Config` to use instead, such as `roots` or `profile`.

        Raises:
            ConfigError: a configuration file, variable or override cannot be used.
            StateError: the trust store cannot be read, or others can use the state's directory.
        """
        if config is None:
            config = configured(Locations.here())
        self.config = overridden(config, overrides)
        check_directories(self.config)
        self.profile = profile_of(self.config)
        self.trust_store = TrustStore(self.config.state_directory)
        self.settings_store = SettingsStore(self.config.state_directory)
        self.mcp_host = mcp_host_of(self.config, lambda: self.network)
        parts = (self.config, self.profile, self.trust_store, self.project)
        late = lambda session: self.approvals.session_grants(session)  # noqa: E731, PLW0108
        self.policy = Policy(*parts, late, self.mcp_host)
        self.network = Network(self.config)
        self._channel = channel
        self._checks = tuple(checks)
        self._worked = TouchedFiles(self.config.places.start, self.project)
        self._recent = RecentSkills(self.config.cache_directory)
        self.cells = SandboxProvider(self.config.state_directory / "sandbox")
        self.connection = approval.new_connection()
        """This house as a client: whoever calls here and names no connection of its own."""
        self.skill_code = SkillCode(self.config, self.profile, self.policy, self.cells, self.call)
        self._look = self._new_look()
        self._portal: toolbox.Portal | None = None
        self._portal_lock = threading.Lock()

    @once
    def safeguards(self) -> EnforcementServices:
        """The audit log, the approvals and the tiers, made when one of them is first needed."""
        # What lists skills does not need it, and would wait for it at each start.
        from skillhouse.runtime.enforcement import EnforcementServices  # noqa: PLC0415

        return EnforcementServices(
            self.config,
            channels=lambda: self.network.channels(self._channel),
            secrets=lambda: self.network.secret_values,
            background=lambda: self.skill_code.background,
        )

    @property
    def audit_log(self) -> audit.AuditLog:
        """What was decided here and what came of it."""
        return self.safeguards.audit_log

    @property
    def approvals(self) -> approval.ApprovalBroker:
        """The questions of this house; every process has a broker of its own on the same state."""
        return self.safeguards.approvals

    @property
    def project(self) -> Path:
        """The git root of the start directory, or the start directory outside git."""
        return project_of(self.config.places.start)

    @property
    def roots(self) -> tuple[discovery.Root, ...]:
        """All roots of this place, strongest first, whether they exist or not."""
        return self._look.roots

    @property
    def look(self) -> HouseSnapshot:
        """What was found when this house last looked."""
        return self._look

    @property
    def index(self) -> SkillIndex:
        """The skills of this place; those of a project that is not trusted are not read."""
        return self._look.index

    @property
    def settings(self) -> SkillSettings:
        """Which skills a person switched off."""
        return self._look.settings

    def view(self, agent: str = "default") -> AgentView:
        """Return what an agent sees.

        Raises:
            ConfigError: no agent has that name.
        """
        return self._now().view(agent)

    @property
    def visible(self) -> SkillIndex:
        """The skills that the default agent sees."""
        return self.view().visible

    @property
    def hidden(self) -> tuple[Skill, ...]:
        """The skills that a rule denies to the default agent: neither listed nor found."""
        return self.view().hidden

    def catalog(
        self,
        *,
        agent: str = "default",
        budget_tokens: int | None = None,
        style: str | None = None,
        files: Iterable[str] = (),
        budget_chars: int | None = None,
    ) -> discovery.Catalog:
        """Return what an agent sees of the skills it may use, in the profile's style or another.

        Raises:
            ConfigError: no agent or no style has that name.
        """
        return self.view(agent).catalog(
            budget_tokens, style=style, files=files, budget_chars=budget_chars
        )

    def system_prompt(self, *, agent: str = "default", offered: Iterable[str] | None = None) -> str:
        """Return what the system prompt says of the skills; a list stands in one place only.

        Args:
            agent: Whose prompt it is.
            offered: Names of the tools that the model is offered; all of the agent's when None.

        Raises:
            ConfigError: no agent has that name.
        """
        return self.view(agent).system_prompt(offered)

    def search(self, query: str, *, limit: int = 5, agent: str = "default") -> list[retrieval.Hit]:
        """Return the visible skills that fit a request best, best first."""
        return self.view(agent).search.index().search(query, limit=limit)

    def tools(self, *, agent: str = "default") -> list[toolbox.Tool]:
        """Return an agent's tools, for showing them to a model; only `call` runs them."""
        return list(self._now().gate(agent).tools.values())

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        agent: str = "default",
        user: str = "local",
        channel: str = "library",
        approval_id: str = "",
        listener: toolbox.ProgressHandler | None = None,
        origin_digest: str = "",
        **ids: str,
    ) -> toolbox.ToolResult:
        """Let one tool call through the gate, or refuse it.

        Args:
            name: The tool.
            arguments: What its schema asks for.
            agent: Who calls.
            user: On whose behalf.
            channel: Where the call comes from.
            approval_id: Of an answered approval of this very call, which finds it also without.
            listener: Hears how far the call is.
            asker: Digest of the skill that asks, where it is not the agent itself.
            ids: The caller's client and connection (see `runtime.calling`), its session_id (which
                parts conversations), message_id, call_id, trace.

        Raises:
            UnknownToolError: no tool has that name; it names the nearest.
            ConfigError: no agent has that name.
        """
        await self.skill_code.reload_if_signalled(self.refresh)
        look = self._now()
        who = caller(self, agent=agent, user=user, channel=channel, **ids)
        wanted = toolbox.ToolCall(name=name, arguments=arguments, approval_id=approval_id, **who)
        session = self.sessions.of(wanted, look.view(agent).visible, origin_digest=origin_digest)
        result = await look.gate(agent).call(wanted, session, listener=listener)
        look.note(wanted, result)
        return result

    def forecast(self, name: str, arguments: Mapping[str, Any], **options: Any) -> toolbox.Forecast:
        """Return what `call` would answer now, without making it; see `runtime.calling`."""
        return forecast(self, name, arguments, **options)

    async def invoke(
        self, name: str, arguments: str = "", *, approval_id: str = "", **caller: str
    ) -> toolbox.ToolResult:
        """Start a skill for a person, as slash commands do; `caller` is as of `call`."""
        return await invoke(self, name, arguments, approval_id, caller)

    def conversation(self, **who: str) -> Conversation:
        """Return a conversation, for whoever keeps its context; `who` is as of `Conversation`."""
        return Conversation(self, **who)

    def invocable(self, agent: str = "default") -> tuple[Invocable, ...]:
        """Return what a person may start beside an agent, for menus."""
        return self.view(agent).menu.entries()

    @once
    def sessions(self) -> toolbox.Sessions:
        """The conversations of this house."""
        noted = lambda activation: self._recent.note(activation.file)  # noqa: E731
        return toolbox.Sessions(self.policy.skill_need, self._checks, self.mcp_host, noted)

    def call_sync(
        self, name: str, arguments: Mapping[str, Any], **options: Any
    ) -> toolbox.ToolResult:
        """Do as `call` does, from code that is not asynchronous.

        One thread of this house runs all such calls until `close`.
        """
        return self.portal().call(lambda: self.call(name, arguments, **options))

    def close(self) -> None:
        """End the thread of `call_sync`, skills' code and the signer's process; close the log."""
        with self._portal_lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            portal.call(self.release_loop)
            portal.close()
        self._look.close()
        if "safeguards" in self.__dict__:
            self.safeguards.close()

    async def release_loop(self) -> None:
        """End what belongs to the event loop that calls came on, before that ends."""
        await self.skill_code.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def expected_sandbox(self) -> sandbox.SandboxStatus:
        """Return the sandbox that this machine should offer, without trying it."""
        return self.portal().call(sandbox.detect)

    def skill(self, reference: str) -> Skill:
        """Return a skill by id, name or directory name; raises as `SkillIndex.get`."""
        return self.index.get(reference)

    def load(self, reference: str) -> SkillContent:
        """Return the body of a skill for a person; what a model may load is for the gate to say.

        Raises:
            UnknownSkillError, AmbiguousSkillError: nothing fits, or several do.
            SkillError: the file cannot be used any more.
        """
        return load_for_person(self.mcp_host, self.skill(reference))

    def at(self, start: Path) -> Skillhouse:
        """Return the house as it is from another working directory; the caller closes it."""
        replace = dataclasses.replace
        config = replace(self.config, places=replace(self.config.places, start=start))
        return Skillhouse(config, channel=self._channel, checks=self._checks)

    @once
    def remotes(self) -> Remotes:
        """The servers whose skills are synced."""
        roots = lambda: self.roots  # noqa: E731 what they are when they are asked for
        return Remotes(self.config, self.profile, self.network, self.audit_log, roots, self.refresh)

    @once
    def management(self) -> Management:
        """What a person does with skills themselves."""
        return Management(
            index=lambda: self.index,
            refresh=self.refresh,
            roots=lambda: self.roots,
            profile=self.profile,
            project=self.project,
            settings=self.settings_store,
            audit=self.audit_log,
        )

    @once
    def trusting(self) -> ProjectTrust:
        """Whether this project is trusted, and as it was when."""
        return ProjectTrust(
            self.trust_store,
            self.project,
            lambda: self._look.project_skills(),  # noqa: PLW0108 the look of that moment
            self.safeguards,
            self.refresh,
        )

    def refresh(self) -> bool:
        """Look anew; whether there is anything else than before.

        What agents see is swapped all at once, and stays when nothing has changed; a body that
        has is read again by the next search.
        """
        now = self._new_look()
        if self._look.was_used and now.is_like(self._look):
            self._look.follow(now)
            return False
        self._look = now
        return True

    def watch(
        self, announce: Callable[[Difference], None], *, stop: threading.Event, poll: bool = False
    ) -> None:
        """Look anew, as `refresh`, whenever a file changes, and tell what is different.

        Args:
            announce: Is told of each difference, on this thread.
            stop: Ends the watch.
            poll: Look at the files again and again, for file systems that tell of nothing.

        Raises:
            MissingExtraError: the optional part `watch` is not installed.
        """
        watch(self, announce, stop=stop, poll=poll)

    def _now(self) -> HouseSnapshot:
        """Return the look that holds, a new one where the profile keeps none."""
        if self.profile.cache == "none":
            self.refresh()
        return self._look

    def _new_look(self) -> HouseSnapshot:
        return HouseSnapshot(
            self.config,
            self.profile,
            self.policy,
            self.settings_store,
            lambda: self.trust_store.is_trusted(self.project),
            self._open_gate,
            self.skill_code.found,
            self._worked,
            self._recent,
        )

    def _open_gate(self, view: AgentView, code: Found) -> toolbox.Gate:
        tools = self.skill_code.tools(code, view)
        return view.gate(self.cells.launcher, self.safeguards, self.network, tools)

    def portal(self) -> toolbox.Portal:
        """Return the thread of `call_sync`, which lives until `close`."""
        with self._portal_lock:
            self._portal = self._portal or toolbox.Portal()
            return self._portal

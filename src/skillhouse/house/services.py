"""Who calls, and the parts that one `Skillhouse` is composed of, made from its configuration.

The parts that only calls need are imported where each is made: looking at skills loads no gate, no
audit log, no sandbox and no event loop, which would be most of a short command's time.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from skillhouse import approval, sandbox, store
from skillhouse import tools as toolbox
from skillhouse.floor import (
    SkillhouseError,
    StateError,
    check_private,
    dataclass,
    directory_problem,
)
from skillhouse.floor.lock import once
from skillhouse.floor.structs import replace
from skillhouse.house.cached_skills import refuse_unsynced
from skillhouse.house.composition import Composition, names_of_tools
from skillhouse.house.config.config_files import profile_of, project_of
from skillhouse.house.config_reload import Adopted, ConfigNews
from skillhouse.house.learned_choices import LearnedChoices
from skillhouse.house.settings import SettingsStore
from skillhouse.house.trust import TrustStore
from skillhouse.house.usage import RecentSkills, TouchedFiles

if TYPE_CHECKING:
    from pathlib import Path

    from skillhouse import remote
    from skillhouse.discovery import Root
    from skillhouse.house.agent_view import AgentView
    from skillhouse.house.code_manifests import Found
    from skillhouse.house.code_service import Call, SkillCode
    from skillhouse.house.config import Config
    from skillhouse.house.enforcement import EnforcementServices
    from skillhouse.house.extension_parts import ExtensionParts
    from skillhouse.house.gates import GateFactory
    from skillhouse.house.installed_check import InstalledCheck
    from skillhouse.house.network import Network
    from skillhouse.house.policy import Policy
    from skillhouse.house.sandbox_provider import SandboxProvider
    from skillhouse.sandbox import SandboxLevel, SandboxStatus
    from skillhouse.skill import Skill

logger = logging.getLogger(__name__)


SANDBOX_STATE = "sandbox"
"""Directory of the state for markers, placeholders and passed self-tests."""
BACKGROUND_DIRECTORY = "background"
"""Directory of the state for the places of commands in the background."""
SEEN_DIRECTORY = "seen-skills"
"""Directory of the state for what was last loaded of each skill."""


class CallerFields(TypedDict, total=False):
    """The fields of `Caller` as keywords."""

    agent: str
    user: str
    channel: str
    client: str
    connection: str
    client_info: str
    session_id: str
    message_id: str
    call_id: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who makes a call.

    An approval belongs to the connection that asked, and when that has ended to the next one of the
    same client; `session` answers end with the connection. A program that serves several clients
    with one `Skillhouse` names each of them.
    """

    agent: str = "default"
    user: str = "local"
    """On whose behalf."""
    channel: str = "library"
    """Where the call comes from."""
    client: str = ""
    """Name of the client; the channel when empty."""
    connection: str = ""
    """Which connection of that client; that of the `Skillhouse` itself when empty."""
    client_info: str = ""
    """Name and version of the client as it gives them itself, for the audit log."""
    session_id: str = ""
    """Separates conversations."""
    message_id: str = ""
    call_id: str = ""
    trace: str = ""

    def tool_call(
        self, name: str, arguments: Mapping[str, Any], *, approval_id: str | None = None
    ) -> toolbox.ToolCall:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return toolbox.ToolCall(
            name=name, arguments=arguments, approval_id=approval_id or "", **fields
        )


class Services:
    """What outlives a snapshot: the policy, the log, the network, the sandbox and their state."""

    def __init__(
        self,
        config: Config,
        *,
        channel: approval.Channel | None,
        checks: Iterable[toolbox.SkillCheck],
        call: Call,
        tools: Sequence[toolbox.Tool] = (),
    ) -> None:
        """Compose the services; each opens its files and processes when it is first used.

        `channel` asks a person, besides the configured ones; `checks` are what loading needs
        besides a decision of the policy; `call` makes the calls of skills' code; `tools` are those
        of the program itself.

        Raises:
            ConfigError: the profile, a server or a list of tools of the configuration cannot be
                used, or the name of one of `tools` is taken.
            StateError: others can use the state's directory, or write to the cache's.
        """
        check_directories(config)
        _clean_after_crash(config.state_directory / SANDBOX_STATE)
        self._channel = channel
        self._checks = tuple(checks)
        self._call = call
        self._own_tools = tuple(tools)
        self._extension_parts: ExtensionParts | None = None
        self.trust_store = TrustStore(config.state_directory)
        self.settings_store = SettingsStore(config.state_directory)
        self.composition = self.composed(config)
        """What follows from the configuration in use."""
        self.touched = TouchedFiles(config.places.start, self.project)
        self.recent = RecentSkills(config.cache_directory)
        self.learned = LearnedChoices(config.state_directory)
        self.connection = approval.new_connection()
        """The connection of callers that name none of their own."""
        self._portal: toolbox.Portal | None = None
        self._portal_lock = threading.Lock()

    @property
    def project(self) -> Path:
        """The git root of the start directory, or the start directory outside git."""
        return project_of(self.config.places.start)

    @property
    def config(self) -> Config:
        return self.composition.config

    @property
    def policy(self) -> Policy:
        return self.composition.policy

    @property
    def mcp_host(self) -> remote.McpHost | None:
        return self.composition.mcp_host

    @property
    def network(self) -> Network:
        return self.composition.network

    @network.setter
    def network(self, network: Network) -> None:
        vars(self.composition)["network"] = network

    @property
    def gates(self) -> GateFactory:
        return self.composition.gates

    @property
    def installed_check(self) -> InstalledCheck:
        return self.composition.installed_check

    def composed(self, config: Config) -> Composition:
        """Return what follows from a configuration; nothing of it is in use yet.

        Raises:
            ConfigError: the profile or a server of the configuration cannot be used.
        """
        return Composition(
            config,
            trust=self.trust_store,
            session_grants=lambda key: self.enforcement.approvals.session_grants(key),  # noqa: PLW0108 opened late
            enforcement=lambda: self.enforcement,
            sandbox=lambda: self.sandbox,
            results=lambda: self.results,
            background=lambda: self.background,
            own_tools=(*self._own_tools, *self._extension_tools(config)),
            newest=lambda: self.composition,
            before=vars(self).get("composition"),
        )

    @property
    def extensions(self) -> ExtensionParts:
        """What extensions of others add; nothing is loaded before something asks for them."""
        if self._extension_parts is None:
            from skillhouse.house.extension_parts import ExtensionParts

            redeem = lambda binding: self.enforcement.agreed.take(binding)  # noqa: E731, PLW0108 made late
            self._extension_parts = ExtensionParts(self._call, redeem)
        return self._extension_parts

    def _extension_tools(self, config: Config) -> tuple[toolbox.Tool, ...]:
        if self._extension_parts is None:
            return ()
        taken = {*names_of_tools(profile_of(config)), *(tool.name for tool in self._own_tools)}
        return self._extension_parts.tools(config, taken)

    def _all_channels(self) -> tuple[approval.Channel, ...]:
        own = self.network.channels(self._channel)
        parts = self._extension_parts
        return own if parts is None else (*own, *parts.channels(self.config))

    def adopt(self, composition: Composition) -> Adopted:
        """Put another composition into use; calls that run keep theirs.

        Raises:
            ConfigError: its network or its channels cannot be used; then nothing has changed.
        """
        config, has_begun = composition.config, "enforcement" in vars(self)
        if config.net != self.config.net:
            _ = composition.network.policy
        channels = composition.network.channels(self._channel) if has_begun else ()
        if has_begun:
            self.enforcement.remember_secrets()
        self.composition = composition
        if self._has_code:
            self.skill_code.adopt(config, composition.policy)
        if not has_begun:
            return Adopted()
        before = self.enforcement.policy
        fault = self.enforcement.adopt(config, channels)
        return Adopted(tiers_changed=self.enforcement.policy != before, fault=fault)

    def note_reload(self, news: ConfigNews) -> None:
        """Record what became of a changed configuration; without a log calls fail by themselves."""
        outcome = "refused" if news.is_fault else "ok"
        files = "; ".join(f"{path} {digest}" for path, digest in news.files)
        try:
            self.enforcement.noted(
                "config",
                user="",
                reason=news.text,
                arguments={"rules": list(news.rules)} if news.rules else None,
                outcome=outcome,
                files=files,
            )
        except (SkillhouseError, OSError):
            logger.exception("a reload of the configuration is not in the audit log")

    @once
    def enforcement(self) -> EnforcementServices:
        from skillhouse.house.enforcement import EnforcementServices

        return EnforcementServices(
            self.config,
            channels=self._all_channels,
            secrets=lambda: self.network.secret_values,
            background=lambda: self.skill_code.background if self._has_code else None,
            on_stop=lambda reason: self.extensions.stopped(self.config, reason),
        )

    @once
    def sandbox(self) -> SandboxProvider:
        from skillhouse.house.sandbox_provider import SandboxProvider

        state = self.config.state_directory / SANDBOX_STATE
        return SandboxProvider(state, least=lambda: self.least_sandbox)

    @property
    def least_sandbox(self) -> SandboxLevel:
        """The weakest level of the sandbox that the configuration accepts."""
        levels = sandbox.SandboxLevel
        return levels.RLIMITS if self.config.sandbox == "bubblewrap" else levels.LANDLOCK

    @once
    def skill_code(self) -> SkillCode:
        from skillhouse.house.code_service import SkillCode

        profile = self.policy.profile
        return SkillCode(
            self.config,
            profile,
            self.policy,
            self.sandbox,
            self._call,
            executors=lambda name: self.extensions.executor(name, self.config),
        )

    @property
    def _has_code(self) -> bool:
        """Whether anything has used `skill_code`, which loads what runs skills' own code."""
        return "skill_code" in vars(self)

    def found_code(self, roots: Sequence[Root], *, is_trusted: bool) -> Found:
        """Return the manifests of skills' own code below the roots; none where code is off."""
        is_needed = self.runs_code or self._has_code
        return self.skill_code.found(roots, is_trusted) if is_needed else ()

    def code_tools(self, found: Found, view: AgentView) -> tuple[toolbox.Tool, ...]:
        """Return an agent's tools of these skills; where there are none, what runs them is not
        even loaded."""
        is_needed = found or self._has_code
        return self.skill_code.tools(found, view) if is_needed else ()

    @property
    def runs_code(self) -> bool:
        """Whether skills' own code is on; asking does not import what runs it."""
        configured = self.config.skill_code.enabled
        return self.policy.profile.runs_code if configured is None else configured

    @once
    def results(self) -> toolbox.ResultFiles:
        """The files of long results; those of processes that were killed are removed."""
        from skillhouse.audit import KnownSecrets

        results = toolbox.ResultFiles(
            self.config.state_directory,
            hide=lambda text: KnownSecrets(self.enforcement.secret_values).hide(text),
        )
        results.sweep()
        self.enforcement.approvals.connections.on_end(results.end_connection)
        return results

    @once
    def background(self) -> toolbox.BackgroundRuns:
        """The commands in the background, which end with this."""
        runs = toolbox.BackgroundRuns(
            self.config.state_directory / BACKGROUND_DIRECTORY,
            portal=self.portal,
            running=lambda: self.enforcement.tier_gate.running(),  # noqa: PLW0108 made late
            record=lambda run: self.enforcement.note_background(run),  # noqa: PLW0108 likewise
        )
        conceal = lambda text: self.network.conceal(text)  # noqa: E731, PLW0108 the newest
        runs.answer_by(toolbox.BackgroundAnswers(runs, conceal).answer)
        return runs

    @property
    def has_background(self) -> bool:
        """Whether a command goes on in the background."""
        return "background" in vars(self) and self.background.is_busy

    def caller(self, caller: Caller | None, fields: CallerFields | None = None) -> Caller:
        """Return the caller, given in one form, with client and connection; TypeError for both."""
        if caller is not None and fields:
            raise TypeError(f"got both `caller` and the keyword `{next(iter(fields))}`")
        known = caller or Caller(**(fields or {}))
        return replace(
            known,
            client=known.client or known.channel,
            connection=known.connection or self.connection,
        )

    @once
    def sessions(self) -> toolbox.Sessions:
        """The conversations, each with the skills that it loaded."""
        skill_need = lambda skill: self.policy.skill_need(skill)  # noqa: E731, PLW0108 the newest
        return toolbox.Sessions(
            skill_need,
            self._checks,
            lambda: self.mcp_host,
            self._note_activation,
            seen=toolbox.SeenSkills(self.config.state_directory / SEEN_DIRECTORY),
            verify=self._verify,
            verify_code=self._verify_code,
        )

    def _note_activation(self, activation: toolbox.Activation, session: toolbox.Session) -> None:
        self.recent.note(activation.file)
        if self.config.search.learn:
            self.learned.note_load(activation, session)

    def _verify(self, skill: Skill) -> None:
        from skillhouse.house.installed_check import refuse_changed

        refuse_unsynced(self.config.remote_directory, skill)
        refuse_changed(self.installed_check, skill.directory, skill.scope)

    def _verify_code(self, directory: Path, scope: str) -> None:
        from skillhouse.house.installed_check import refuse_changed

        refuse_changed(self.installed_check, directory, scope)

    def expected_sandbox(self) -> SandboxStatus:
        """Return the sandbox that this machine should offer, without a self-test."""
        least = self.least_sandbox
        return self.portal().call(lambda: sandbox.detect(least=least))

    def portal(self) -> toolbox.Portal:
        """Return the thread that runs calls from synchronous code, until `close_portal`."""
        with self._portal_lock:
            self._portal = self._portal or toolbox.Portal()
            return self._portal

    def close_portal(self) -> None:
        """End that thread, and the skills' code that it runs."""
        with self._portal_lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            if "background" in vars(self):
                portal.call(self.background.close)
            portal.call(self.release_loop)
            portal.close()

    async def release_loop(self) -> None:
        """Close what is bound to the running event loop; call it before that loop ends."""
        if self._has_code:
            await self.skill_code.close()

    def close(self) -> None:
        """End the signer's process; close the state and the log; remove the long results."""
        if "results" in vars(self):
            self.results.close()
        if self._extension_parts is not None:
            self._extension_parts.close(self.config)
        if "enforcement" in vars(self):
            self.enforcement.close()
        store.close_pooled(self.config.state_directory / store.STATE_FILE)


def check_directories(config: Config) -> None:
    """Raise StateError if others can use the state, or write what the cache keeps for later."""
    check_private(config.state_directory)
    cache = config.cache_directory or config.places.cache()
    if problem := directory_problem(cache):
        raise StateError(f"the cache cannot be used: {problem}", cache)


def _clean_after_crash(state: Path) -> None:
    """Remove what killed processes left; without one this costs a listing of the directory."""
    try:
        names = os.listdir(state)
    except OSError:
        return
    if any(name.startswith("running-") for name in names):
        from skillhouse.floor.crash_cleanup import clean_state

        clean_state(state)

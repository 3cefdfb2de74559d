"""The parts that one `Skillhouse` is composed of, made from its configuration.

The parts that only calls need are imported where each is made: looking at skills loads no gate, no
audit log, no sandbox and no event loop, which would be most of a short command's time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from skillhouse import approval, sandbox, store
from skillhouse import tools as toolbox
from skillhouse.floor import (
    SkillhouseError,
    StateError,
    check_private,
    directory_problem,
    structs,
)
from skillhouse.floor.lock import Lazy, once
from skillhouse.house.companion import Companion
from skillhouse.house.composition import Composition, compose, names_of_tools
from skillhouse.house.config.config_files import profile_of, project_of
from skillhouse.house.config_reload import Adopted, ConfigNews
from skillhouse.house.house_snapshot import HouseSnapshot
from skillhouse.house.remote_skills import refuse_unsynced
from skillhouse.house.settings import SettingsStore
from skillhouse.house.trust import TrustStore
from skillhouse.house.usage import LearnedChoices, RecentSkills, TouchedFiles

if TYPE_CHECKING:
    from pathlib import Path

    from skillhouse import remote
    from skillhouse.discovery import Root
    from skillhouse.house.agent_view import AgentView
    from skillhouse.house.code_manifests import Found
    from skillhouse.house.code_service import Call, SkillCode
    from skillhouse.house.config import Config
    from skillhouse.house.enforcement import EnforcementServices, EnforcementSettings
    from skillhouse.house.extension_parts import ExtensionParts
    from skillhouse.house.gates import GateFactory
    from skillhouse.house.installed_check import InstalledCheck
    from skillhouse.house.network import Network
    from skillhouse.house.policy import Policy
    from skillhouse.house.sandbox_provider import SandboxProvider
    from skillhouse.retrieval import MeaningMaker
    from skillhouse.sandbox import SandboxLevel, SandboxStatus
    from skillhouse.skill import Skill

logger = logging.getLogger(__name__)


SANDBOX_STATE = "sandbox"
"""Directory of the state for markers, placeholders and passed self-tests."""
BACKGROUND_DIRECTORY = "background"
"""Directory of the state for the places of commands in the background."""
SEEN_DIRECTORY = "seen-skills"
"""Directory of the state for what was last loaded of each skill."""


class Services:
    """What outlives a snapshot: the policy, the log, the network, the sandbox and their state."""

    def __init__(
        self,
        config: Config,
        *,
        channel: approval.Channel | None,
        checks: Iterable[toolbox.SkillCheck],
        call: Call,
        install_tool: Callable[..., toolbox.Tool],
        tools: Sequence[toolbox.Tool] = (),
    ) -> None:
        """Compose the services; each opens its files and processes when it is first used.

        `channel` asks a person, besides the configured ones; `checks` are what loading needs
        besides a decision of the policy; `call` makes the calls of skills' code; `install_tool`
        makes the tool that installs skills for models; `tools` are those of the program itself.

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
        self._install_tool = install_tool
        self._own_tools = tuple(tools)
        self._extension_parts: ExtensionParts | None = None
        self.project = project_of(config.places.start)
        """The git root of the start directory, or the start directory outside git."""
        self.trust_store = TrustStore(config.state_directory)
        self.settings_store = SettingsStore(config.state_directory)
        self.touched = TouchedFiles(config.places.start, self.project)
        self.recent = RecentSkills(config.cache_directory)
        self.learned = LearnedChoices(config.state_directory)
        self._began_ms = time.time_ns() // 1_000_000
        self._enforcement = Lazy(self._make_enforcement)
        self._skill_code = Lazy(self._make_skill_code)
        self._results = Lazy(self._make_results)
        self._background = Lazy(self._make_background)
        self._portal: toolbox.Portal | None = None
        self._portal_lock = threading.Lock()
        composition = compose(config, self, channel=channel)
        self.snapshot = HouseSnapshot(composition, self)
        """INVARIANT: the one reference that a reload or another scan exchanges: what a call takes
        from it, rules as well as skills, is of one moment."""
        self._exchanging = threading.Lock()

    @once
    def connection(self) -> str:
        """The connection of callers that name none of their own; it began with the services."""
        return approval.new_connection(self._began_ms)

    @property
    def composition(self) -> Composition:
        """What follows from the configuration in use."""
        return self.snapshot.composition

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
        return self.composition.network.get()

    @network.setter
    def network(self, network: Network) -> None:
        self.composition.network.put(network)

    @property
    def encoders(self) -> MeaningMaker | None:
        """What finds skills by meaning; MissingExtraError where the configured one is missing."""
        return self.composition.encoders.get()

    @property
    def gates(self) -> GateFactory:
        return self.composition.gates.get()

    @property
    def installed_check(self) -> InstalledCheck:
        return self.composition.installed_check.get()

    @once
    def companion(self) -> Companion:
        return Companion(self.enforcement, self.config.state_directory)

    @property
    def enforcement_settings(self) -> EnforcementSettings:
        return self.composition.enforcement.get()

    @property
    def extensions(self) -> ExtensionParts:
        """What extensions of others add; nothing is loaded before something asks for them."""
        if self._extension_parts is None:
            from skillhouse.house.extension_parts import ExtensionParts

            self._extension_parts = ExtensionParts(self._call, self._redeemed)
        return self._extension_parts

    def _redeemed(self, binding: str) -> str:
        return self.enforcement.redeemed.take(binding)

    def install_tool(self, decide: Callable[..., str]) -> toolbox.ToolMaker:
        """Return what makes the tool that installs a skill for a model; `decide` gives the effect
        of a permission request."""
        return partial(self._install_tool, decide)

    def own_tools(self, config: Config) -> tuple[toolbox.Tool, ...]:
        """Return the tools of the program and of the extensions that are loaded."""
        if self._extension_parts is None:
            return self._own_tools
        taken = {*names_of_tools(profile_of(config)), *(tool.name for tool in self._own_tools)}
        return (*self._own_tools, *self._extension_parts.tools(config, taken))

    def extension_channels(self, config: Config) -> tuple[approval.Channel, ...]:
        """Return what asks a person by the extensions that are loaded."""
        parts = self._extension_parts
        return () if parts is None else tuple(parts.channels(config))

    def scan(self) -> HouseSnapshot:
        """Return a snapshot of the skills as they are now; it is read when it is first asked."""
        before = self.snapshot
        is_same = before.composition is self.composition
        return HouseSnapshot(self.composition, self, before if is_same else None)

    def exchange(self, now: HouseSnapshot) -> None:
        """Put another scan into use, unless a reload came after it began and scanned by itself.

        INVARIANT: no scan brings back the rules from before a reload.
        """
        with self._exchanging:
            if now.composition is self.composition:
                self.snapshot = now

    def reload(self, config: Config) -> Adopted:
        """Put another configuration into use, all of it or nothing; calls that run keep theirs.

        Raises:
            ConfigError: the profile, a server, a root, its network or its channels cannot be used;
                then nothing has changed.
        """
        before = self.composition
        now = compose(config, self, channel=self._channel, before=before)
        snapshot = HouseSnapshot(now, self)
        # Read here, as it raises ConfigError for a root that cannot be.
        _ = snapshot.roots
        if config.net != before.config.net:
            _ = now.network.get().policy
        if not self._enforcement.made:
            with self._exchanging:
                self.snapshot = snapshot
            return Adopted()
        settings = now.enforcement.get()
        channels = settings.channels()
        self.enforcement.remember_secrets()
        with self._exchanging:
            self.snapshot = snapshot
        earlier = before.enforcement.get()
        self.enforcement.follow(earlier, channels)
        is_changed = settings.tier_policy.get() != earlier.tier_policy.get()
        return Adopted(tiers_changed=is_changed, fault=settings.tier_fault)

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

    @property
    def enforcement(self) -> EnforcementServices:
        return self._enforcement.get()

    def _make_enforcement(self) -> EnforcementServices:
        from skillhouse.house.enforcement import EnforcementServices

        return EnforcementServices(
            self, background=self._cells_to_stop, on_stop=self._stop_extensions
        )

    def _stop_extensions(self, reason: str) -> None:
        self.extensions.stopped(self.config, reason)

    def _cells_to_stop(self) -> toolbox.Background | None:
        return self.skill_code.local_executor if self._skill_code.made else None

    def session_grants(self, key: str) -> tuple[approval.Grant, ...]:
        """Return the approvals for the rest of a conversation."""
        return self.enforcement.session_grants(key)

    @once
    def sandbox(self) -> SandboxProvider:
        from skillhouse.house.sandbox_provider import SandboxProvider

        return SandboxProvider(self.config.state_directory / SANDBOX_STATE, self)

    @property
    def least_sandbox(self) -> SandboxLevel:
        """The weakest level of the sandbox that the configuration accepts."""
        from skillhouse.house.sandbox_provider import least_level

        return least_level(self.config)

    @property
    def skill_code(self) -> SkillCode:
        """Skills' own code; once anything has used it, what runs code is loaded."""
        return self._skill_code.get()

    @property
    def artifacts(self) -> toolbox.Artifacts:
        """The kept files that calls of skills' code wrote; nothing that runs code is loaded."""
        return toolbox.Artifacts(self.config.state_directory, lambda: self.config.skill_code)

    def _make_skill_code(self) -> SkillCode:
        from skillhouse.house.code_service import SkillCode

        return SkillCode(
            self, self.sandbox, self._call, self._executor_of_extension, self._code_way_out
        )

    def _code_way_out(self, session: toolbox.Session, **about: Any) -> toolbox.CodeNetwork:
        # The rules in use when the call begins; each request is judged by newer ones too.
        return self.gates.code_way_out(session, **about)

    def _executor_of_extension(self, name: str) -> toolbox.Runner:
        return self.extensions.executor(name, self.config)

    def found_code(self, roots: Sequence[Root], *, is_trusted: bool) -> Found:
        """Return the manifests of skills' own code below the roots; none where code is off."""
        is_needed = self.runs_code or self._skill_code.made
        return self.skill_code.found(roots, is_trusted=is_trusted) if is_needed else ()

    def code_tools(self, found: Found, view: AgentView) -> tuple[toolbox.Tool, ...]:
        """Return an agent's tools of these skills; where there are none, what runs them is not
        even loaded."""
        is_needed = found or self._skill_code.made
        return self.skill_code.tools(found, view) if is_needed else ()

    def why_tool_absent(self, found: Found, name: str) -> str:
        """Return why no tool has this name although its skill is there; "" where it is not."""
        from skillhouse.house.code_manifests import why_absent

        return why_absent(name, found)

    @property
    def runs_code(self) -> bool:
        """Whether skills' own code is on; asking does not import what runs it."""
        configured = self.config.skill_code.enabled
        return self.policy.profile.runs_code if configured is None else configured

    @property
    def results(self) -> toolbox.ResultFiles:
        """The files of long results; those of processes that were killed are removed."""
        return self._results.get()

    def _make_results(self) -> toolbox.ResultFiles:
        results = toolbox.ResultFiles(self.config.state_directory, hide=self.enforcement.hide)
        results.sweep()
        self.enforcement.connections.on_end(results.end_connection)
        return results

    @property
    def background(self) -> toolbox.BackgroundRuns:
        """The commands in the background, which end with this."""
        return self._background.get()

    def _make_background(self) -> toolbox.BackgroundRuns:
        runs = toolbox.BackgroundRuns(
            self.config.state_directory / BACKGROUND_DIRECTORY,
            portal=self.portal,
            running=self.enforcement.running,
            record=self.enforcement.note_background,
        )
        runs.answer_by(toolbox.BackgroundAnswers(runs, self._conceal).answer)
        return runs

    def _conceal(self, text: str) -> str:
        return self.network.conceal(text)

    @property
    def has_background(self) -> bool:
        """Whether a command goes on in the background."""
        return self._background.made and self.background.is_busy

    def caller(
        self, caller: toolbox.Caller | None, fields: toolbox.CallerFields | None = None
    ) -> toolbox.Caller:
        """Return the caller, given in one form, with client and connection; TypeError for both."""
        if caller is not None and fields:
            raise TypeError(f"got both `caller` and the keyword `{next(iter(fields))}`")
        known = caller or toolbox.Caller(**(fields or {}))
        return structs.replace(
            known,
            client=known.client or known.channel,
            connection=known.connection or self.connection,
        )

    @once
    def sessions(self) -> toolbox.Sessions:
        """The conversations, each with the skills that it loaded."""
        return toolbox.Sessions(
            self._skill_need,
            self._checks,
            self._remote_skills,
            self._note_activation,
            seen=Lazy(lambda: toolbox.SeenSkills(self.config.state_directory / SEEN_DIRECTORY)),
            verify=self._verify,
            verify_code=self._verify_code,
            marks=Lazy(lambda: toolbox.SessionMarks(self.config.state_directory)),
        )

    def _skill_need(self, skill: Skill) -> toolbox.PermissionRequest:
        return self.policy.skill_need(skill)

    def _remote_skills(self) -> remote.McpHost | None:
        return self.mcp_host

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
        return self.portal().call(partial(sandbox.detect, least=self.least_sandbox))

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
            if self._background.made:
                portal.call(self.background.close)
            portal.call(self.release_loop)
            portal.close()

    async def release_loop(self) -> None:
        """Close what is bound to the running event loop; call it before that loop ends."""
        if self._skill_code.made:
            await self.skill_code.close()

    def close(self) -> None:
        """Close extensions, the signer, the state and the log; remove the long results."""
        if self._results.made:
            self.results.close()
        if self._extension_parts is not None:
            self._extension_parts.close(self.config)
        if self._enforcement.made:
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

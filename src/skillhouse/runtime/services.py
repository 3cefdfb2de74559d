"""The parts that one `Skillhouse` is composed of, made from its configuration."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from skillhouse import approval, sandbox
from skillhouse import tools as toolbox
from skillhouse.floor.once import once
from skillhouse.runtime.caller import Caller, CallerFields
from skillhouse.runtime.code.code_service import Call, SkillCode
from skillhouse.runtime.config import Config
from skillhouse.runtime.config.resolve import profile_of, project_of
from skillhouse.runtime.enforcement import EnforcementServices
from skillhouse.runtime.gates import GateFactory
from skillhouse.runtime.mcp_skills import mcp_host_of
from skillhouse.runtime.network import Network
from skillhouse.runtime.policy import Policy
from skillhouse.runtime.recent import RecentSkills
from skillhouse.runtime.sandbox_provider import SandboxProvider
from skillhouse.runtime.settings import SettingsStore
from skillhouse.runtime.touched_files import TouchedFiles
from skillhouse.runtime.trust import TrustStore


class Services:
    """What outlives a snapshot: the policy, the log, the network, the sandbox and their state."""

    def __init__(
        self,
        config: Config,
        *,
        channel: approval.Channel | None,
        checks: Iterable[toolbox.SkillCheck],
        call: Call,
    ) -> None:
        """Compose the services; each opens its files and processes when it is first used.

        Args:
            config: What they are made from.
            channel: Asks a person, besides the configured channels.
            checks: What loading a skill needs besides a decision of the policy.
            call: Makes the tool calls of skills' code.

        Raises:
            ConfigError: the profile or a server of the configuration cannot be used.
        """
        self.config = config
        self._checks = tuple(checks)
        profile = profile_of(config)
        self.trust_store = TrustStore(config.state_directory)
        self.settings_store = SettingsStore(config.state_directory)
        self.mcp_host = mcp_host_of(config, lambda: self.network)
        self.policy = Policy(
            config,
            profile,
            self.trust_store,
            self.project,
            lambda key: self.enforcement.approvals.session_grants(key),  # noqa: PLW0108 opened late
            self.mcp_host,
        )
        self.network = Network(config)
        self.enforcement = EnforcementServices(
            config,
            channels=lambda: self.network.channels(channel),
            secrets=lambda: self.network.secret_values,
            background=lambda: self.skill_code.background,
        )
        self.touched = TouchedFiles(config.places.start, self.project)
        self.recent = RecentSkills(config.cache_directory)
        self.sandbox = SandboxProvider(config.state_directory / "sandbox")
        self.connection = approval.new_connection()
        """The connection of callers that name none of their own."""
        self.skill_code = SkillCode(config, profile, self.policy, self.sandbox, call)
        self.gates = GateFactory(self)
        self._portal: toolbox.Portal | None = None
        self._portal_lock = threading.Lock()

    @property
    def project(self) -> Path:
        """The git root of the start directory, or the start directory outside git."""
        return project_of(self.config.places.start)

    def caller(self, caller: Caller | None, fields: CallerFields | None = None) -> Caller:
        """Return the caller, given as a value or as keywords, with client and connection.

        Raises:
            TypeError: both forms are given, or a keyword is unknown.
        """
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
        noted = lambda activation: self.recent.note(activation.file)  # noqa: E731
        return toolbox.Sessions(self.policy.skill_need, self._checks, self.mcp_host, noted)

    def expected_sandbox(self) -> sandbox.SandboxStatus:
        """Return the sandbox that this machine should offer, without a self-test."""
        return self.portal().call(sandbox.detect)

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
            portal.call(self.release_loop)
            portal.close()

    async def release_loop(self) -> None:
        """Close what is bound to the running event loop; call it before that loop ends."""
        await self.skill_code.close()

"""What follows from one configuration; a reload replaces it as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import extension
from skillhouse import tools as toolbox
from skillhouse.floor import ConfigError, MissingExtraError
from skillhouse.floor.lock import once
from skillhouse.house.config.config_files import profile_of, project_of
from skillhouse.house.mcp_skills import mcp_host_of
from skillhouse.house.policy import Policy

if TYPE_CHECKING:
    from skillhouse import remote
    from skillhouse.approval import Grant
    from skillhouse.house.config import Config
    from skillhouse.house.enforcement import EnforcementServices
    from skillhouse.house.gates import GateFactory
    from skillhouse.house.installed_check import InstalledCheck
    from skillhouse.house.network import Network
    from skillhouse.house.sandbox_provider import SandboxProvider
    from skillhouse.house.trust import TrustStore
    from skillhouse.retrieval import MeaningMaker
    from skillhouse.skill import Profile
    from skillhouse.tools import BackgroundRuns, ResultFiles, Tool


class Composition:
    """What follows from one configuration: policy, network, servers of skills, checks and gates.

    INVARIANT: nothing in it changes. A call keeps the one that it began with, so that no call is
    decided by half of each of two configurations.
    """

    def __init__(
        self,
        config: Config,
        *,
        trust: TrustStore,
        session_grants: Callable[[str], tuple[Grant, ...]],
        enforcement: Callable[[], EnforcementServices],
        sandbox: Callable[[], SandboxProvider],
        results: Callable[[], ResultFiles],
        background: Callable[[], BackgroundRuns],
        own_tools: Sequence[Tool],
        newest: Callable[[], Composition],
        before: Composition | None = None,
    ) -> None:
        """Build it; `newest` gives the one in use, and connections of `before` are kept.

        Raises:
            ConfigError: the profile or a server of the configuration cannot be used.
        """
        profile = profile_of(config)
        self.config = config
        self._enforcement = enforcement
        self._sandbox = sandbox
        self._results = results
        self._background = background
        self._own_tools = own_tools
        self._newest = newest
        self._network_before: Network | None = None
        _check_tools(config, profile, own_tools)
        self.mcp_host: remote.McpHost | None
        if before is not None and before.config.mcp_servers == config.mcp_servers:
            self.mcp_host = before.mcp_host
        else:
            self.mcp_host = mcp_host_of(config, lambda: newest().network)
        if before is not None and _network_settings(before.config) == _network_settings(config):
            self._network_before = vars(before).get("network")
        self._check_before: InstalledCheck | None = None
        if before is not None and before.config.registry == config.registry:
            self._check_before = vars(before).get("installed_check")
        self._encoders_before = before
        self.policy = Policy(
            config,
            profile,
            trust,
            project_of(config.places.start),
            session_grants,
            self.mcp_host,
        )

    @property
    def profile(self) -> Profile:
        return self.policy.profile

    @once
    def network(self) -> Network:
        from skillhouse.house.network import Network  # noqa: PLC0415 - only calls need it.

        return self._network_before or Network(self.config)

    @once
    def installed_check(self) -> InstalledCheck:
        """Compares installed skills with the locks of this user and this project."""
        from skillhouse.house.installed_check import InstalledCheck, install_locks  # noqa: PLC0415

        config = self.config
        return self._check_before or InstalledCheck(
            config.state_directory,
            install_locks(config),
            require_signature=config.registry.require_signature,
            cache=config.cache_directory,
        )

    @once
    def encoders(self) -> MeaningMaker | None:
        """The encoders of search; MissingExtraError: one that is configured is not installed."""
        before, self._encoders_before = self._encoders_before, None
        if before is not None and _encoder_settings(before) == _encoder_settings(self):
            return before.encoders
        search = self.config.search
        if search.encoder == "none":
            return None
        try:
            meaning = extension.own_module("meaning")
        except MissingExtraError:
            if search.encoder == "auto":
                return None
            raise
        weights = Path(search.weights) if search.weights else None
        made: MeaningMaker | None = meaning.encoders_of(search.encoder, weights)
        return made

    @once
    def gates(self) -> GateFactory:
        from skillhouse.house.gates import GateFactory  # noqa: PLC0415 - likewise.

        return GateFactory(
            self.config,
            self.policy,
            self._enforcement(),
            self.network,
            self._sandbox(),
            self._results(),
            background=self._background,
            newest=lambda: (self._newest().policy, self._newest().config.write_gate),
            own_tools=self._own_tools,
        )


def names_of_tools(profile: Profile) -> tuple[str, ...]:
    """Return the names of our tools by a profile, which no other tool may have."""
    published = (name for names in profile.tool_names.values() for name in names)
    return (*toolbox.BUILTIN_TOOLS, *(rule.name for rule in profile.tools), *published)


def _check_tools(config: Config, profile: Profile, own: Sequence[Tool]) -> None:
    """Raise ConfigError where a program's own tool has a name that is taken, or a list of tools
    one that is unknown."""
    lists = config.all_tool_lists()
    if own or lists:
        known = names_of_tools(profile)
        if own:
            toolbox.check_own_tools(own, known)
        _check_lists(lists, (*known, *(tool.name for tool in own)))


def _check_lists(lists: Mapping[str, tuple[str, ...]], known: Sequence[str]) -> None:
    """Raise ConfigError for an unknown name; only then tools of extensions are looked for."""
    try:
        toolbox.check_tool_lists(lists, known)
    except ConfigError:
        from skillhouse.extension import load_extensions  # noqa: PLC0415 - see above.

        more = tuple(load_extensions().tools(taken=known))
        if not more:
            raise
        toolbox.check_tool_lists(lists, (*known, *more))


def _encoder_settings(composition: Composition) -> tuple[object, ...]:
    search = composition.config.search
    return search.encoder, search.weights


def _network_settings(config: Config) -> tuple[object, ...]:
    return config.net, config.approvals, config.search

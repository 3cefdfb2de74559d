"""What follows from one configuration; a reload composes another and replaces it as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import extension
from skillhouse import tools as toolbox
from skillhouse.floor import ConfigError, MissingExtraError
from skillhouse.floor.lock import Lazy
from skillhouse.house.config.config_files import profile_of, project_of
from skillhouse.house.policy import Policy
from skillhouse.house.remote_skills import mcp_host_of

if TYPE_CHECKING:
    from skillhouse import approval, remote
    from skillhouse.house.config import Config
    from skillhouse.house.enforcement import EnforcementSettings
    from skillhouse.house.gates import GateFactory, LastingServices
    from skillhouse.house.installed_check import InstalledCheck
    from skillhouse.house.network import Network
    from skillhouse.retrieval import MeaningMaker
    from skillhouse.skill import Profile, Skill


class Composition(Struct, frozen=True, kw_only=True):
    """What follows from one configuration: policy, network, servers of skills, checks and gates.

    INVARIANT: nothing in it changes. A call keeps the one that it began with, so that no call is
    decided by half of each of two configurations. What is `Lazy` is made when a call needs it, and
    is that of the composition before wherever it follows from the same settings.
    """

    config: Config
    policy: Policy
    mcp_host: remote.McpHost | None
    """Knows the configured MCP servers; its connections outlive a reload that leaves them."""
    network: Lazy[Network]
    installed_check: Lazy[InstalledCheck]
    """Compares installed skills with the locks of this user and this project."""
    encoders: Lazy[MeaningMaker | None]
    """What finds skills by meaning; MissingExtraError where the configured one is not installed."""
    enforcement: Lazy[EnforcementSettings]
    own_tools: tuple[toolbox.Tool, ...]
    """Those of the program and of extensions, which every agent has."""
    gates: Lazy[GateFactory]

    @property
    def profile(self) -> Profile:
        return self.policy.profile

    def fault(self, skill: Skill) -> str:
        """Return why a skill may not be loaded as it is now; empty if it may."""
        return self.installed_check.get().fault(skill.directory, skill.scope)


def compose(
    config: Config,
    services: LastingServices,
    *,
    channel: approval.Channel | None = None,
    before: Composition | None = None,
) -> Composition:
    """Return what follows from a configuration; nothing of it is in use yet.

    Args:
        config: Every setting.
        services: What outlives a reload.
        channel: Asks a person, besides the configured ones.
        before: The composition in use, of which is kept what its settings leave as it is.

    Raises:
        ConfigError: the profile, a server or a list of tools of the configuration cannot be used,
            or the name of a tool of the program is taken.
    """
    profile = profile_of(config)
    own_tools = tuple(services.own_tools(config))
    _check_tools(config, profile, own_tools)
    was = None if before is None else before.config
    if before is not None and before.config.mcp_servers == config.mcp_servers:
        mcp_host = before.mcp_host
    else:
        mcp_host = mcp_host_of(config, services) if config.mcp_servers else None
    policy = Policy(
        config,
        profile,
        services.trust_store,
        project_of(config.places.start),
        services.session_grants,
        mcp_host,
    )
    network = Lazy(partial(_network, config))
    check = Lazy(partial(_installed_check, config, services))
    encoders = Lazy(partial(_encoders, config))
    settings = None
    if before is not None and was is not None:
        if _network_settings(was) == _network_settings(config):
            network = before.network
        if was.registry == config.registry:
            check = before.installed_check
        if _encoder_settings(was) == _encoder_settings(config):
            encoders = before.encoders
        settings = before.enforcement.get() if before.enforcement.made else None
    return Composition(
        config=config,
        policy=policy,
        mcp_host=mcp_host,
        network=network,
        installed_check=check,
        encoders=encoders,
        enforcement=Lazy(
            partial(
                _enforcement_settings,
                config,
                network,
                channel,
                services.extension_channels,
                settings,
            )
        ),
        own_tools=own_tools,
        gates=Lazy(partial(_gates, policy, network, services, own_tools)),
    )


# Only calls need what these import.


def _network(config: Config) -> Network:
    from skillhouse.house.network import Network  # noqa: PLC0415

    return Network(config)


def _installed_check(config: Config, services: LastingServices) -> InstalledCheck:
    def note(tree_digest: str, publisher: str) -> None:
        services.enforcement.noted(
            "skill-verified", user="", reason=tree_digest, publisher=publisher
        )

    from skillhouse.house.installed_check import InstalledCheck, install_locks  # noqa: PLC0415

    return InstalledCheck(
        config.state_directory,
        install_locks(config),
        require_signature=config.registry.require_signature,
        refuses_ended=config.registry.ended == "refuse",
        note=note,
        cache=config.cache_directory,
    )


def _encoders(config: Config) -> MeaningMaker | None:
    """Return the encoders of search; MissingExtraError: one that is configured is not installed."""
    search = config.search
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


def _enforcement_settings(
    config: Config,
    network: Lazy[Network],
    channel: approval.Channel | None,
    further: Callable[[Config], tuple[approval.Channel, ...]],
    before: EnforcementSettings | None,
) -> EnforcementSettings:
    from skillhouse.house.enforcement import EnforcementSettings  # noqa: PLC0415

    return EnforcementSettings(config, network, channel, before, further)


def _gates(
    policy: Policy,
    network: Lazy[Network],
    services: LastingServices,
    own_tools: tuple[toolbox.Tool, ...],
) -> GateFactory:
    from skillhouse.house.gates import GateFactory  # noqa: PLC0415

    return GateFactory(policy, network.get(), services, own_tools)


def names_of_tools(profile: Profile) -> tuple[str, ...]:
    """Return the names of our tools by a profile, which no other tool may have."""
    published = (name for names in profile.tool_names.values() for name in names)
    return (*toolbox.BUILTIN_TOOLS, *(rule.name for rule in profile.tools), *published)


def _check_tools(config: Config, profile: Profile, own: Sequence[toolbox.Tool]) -> None:
    """Raise ConfigError where a program's own tool has a name that is taken, or a list of tools
    one that is unknown."""
    lists = config.all_tool_lists()
    if own or lists:
        known = names_of_tools(profile)
        if own:
            toolbox.check_own_tools(own, known)
        # A tool of the bot's conversations, which a list may name for every process.
        _check_lists(lists, (*known, "send_file", *(tool.name for tool in own)))


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


def _encoder_settings(config: Config) -> tuple[object, ...]:
    return config.search.encoder, config.search.weights


def _network_settings(config: Config) -> tuple[object, ...]:
    return config.net, config.approvals, config.search

"""The skills of other servers among those of this machine: synced ones and those of MCP servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from skillhouse import remote
from skillhouse import skill as skill_package
from skillhouse import tools as toolbox
from skillhouse.floor import SkillError
from skillhouse.floor.paths import safe_path
from skillhouse.skill import SkillContent, SkillIndex

if TYPE_CHECKING:
    from skillhouse.discovery import Root
    from skillhouse.house.config import Config
    from skillhouse.house.network import Network
    from skillhouse.skill import Skill
    from skillhouse.tools import RemoteSkillProvider


SYNC = "`skillhouse remote sync` fetches them again"


def cached_fault(remote_directory: Path, skill: Skill) -> str:
    """Return why a skill of the cache is not what was synced; empty for any other skill."""
    if skill.scope != "remote":
        return ""
    real = os.path.realpath(remote_directory)
    if not skill.root.startswith(real.rstrip("/") + "/"):
        # One of an MCP server: its files are held against the server's listing at each load.
        return ""
    return remote.cache_fault(skill.root, skill.file)


def refuse_unsynced(remote_directory: Path, skill: Skill) -> None:
    """Raise RefusedError for a skill of the cache whose files are others."""
    fault = cached_fault(remote_directory, skill)
    if fault:
        message = f"skill `{skill.name}` is not loaded: {fault}; {SYNC}"
        raise toolbox.RefusedError(message, denied=True)


def check_for_person(
    remote_directory: Path, skill: Skill, installed: Callable[[Path, str], str] | None
) -> None:
    """Raise SkillError for a skill whose files are not those that were synced or installed.

    `installed` gives the fault of an installed one; None asks nothing about it.
    """
    fault = cached_fault(remote_directory, skill)
    if fault:
        raise SkillError("unverified", skill.location, f"{fault}; {SYNC}")
    fault = installed(skill.directory, skill.scope) if installed is not None else ""
    if fault:
        name = skill.directory.name
        more = f"`skillhouse verify {name}` shows more, `load {name} --anyway` prints it"
        raise SkillError("unverified", skill.location, f"not loaded: {fault}; {more}")


MCP_DIRECTORY = "mcp"
"""Where their files lie, below the state directory: no root of skills, and no cache that another
program may clear or fill."""


class NetworkInUse(Protocol):
    """What gives the network that holds now: connections outlive a reload of it."""

    @property
    def network(self) -> Network: ...


def may_come_from(config: Config, text: str) -> bool:
    """Whether the configuration allows skills of a server: its address, or `mcp:LABEL`."""
    if not config.registry.sources:
        return True
    # Most configurations allow every source.
    from skillhouse.house.config.allowed_sources import is_allowed  # noqa: PLC0415

    return is_allowed(config.registry, text)


def mcp_host_of(config: Config, in_use: NetworkInUse) -> remote.McpHost:
    """Return what knows the configured servers, of which there are some.

    One that `registry.sources` does not allow has no skills here.

    Raises:
        ConfigError: one of them is no server, or two share a label.
    """
    cache = remote.McpCache(config.state_directory / MCP_DIRECTORY)
    servers = mcp_servers_of(config)
    allowed = [one for one in servers if may_come_from(config, f"mcp:{one.label}")]
    return remote.McpHost(allowed, cache, dial=mcp_dial(in_use))


def mcp_servers_of(config: Config) -> list[remote.McpServer]:
    """Return the configured servers; ConfigError if one of them is no server."""
    places = config.places
    path = safe_path(places.environment, places.start)
    return [
        remote.McpServer(
            label=one.label,
            url=one.url,
            command=one.command,
            environment={"PATH": path, **one.environment},
            # Not in the project: `npx` and `python -m` run files of their working directory.
            directory=places.home,
            allow_private=one.allow_private,
        )
        for one in config.mcp_servers
    ]


def mcp_dial(in_use: NetworkInUse) -> remote.Dial:
    """Return what connects to a server under the policy of the network."""

    def dial(server: remote.McpServer) -> AbstractAsyncContextManager[remote.Peer]:
        network = in_use.network
        return remote.connected(server, policy=network.policy, route=network.route)

    return dial


def with_skills_of(
    remote_skills: RemoteSkillProvider, found: SkillIndex, roots: Sequence[Root]
) -> SkillIndex:
    """Return an index with skills of MCP servers, as listed last, before the built-in ones.

    Their names begin with their server's label, so they shadow nothing.

    Raises:
        ConfigError: their files would be found below one of the roots.
    """
    remote_skills.refuse_roots(root.path for root in roots)
    own = [skill for skill in found.skills if skill.scope != "builtin"]
    builtin = [skill for skill in found.skills if skill.scope == "builtin"]
    return SkillIndex(
        (*own, *remote_skills.skills(), *builtin),
        shadowed=found.shadowed,
        diagnostics=found.diagnostics,
        left_out=found.left_out,
        name_match=found.name_match,
    )


def load_known(skill: Skill) -> SkillContent:
    """Return a skill's body as far as it is here, fetching nothing; SkillError as `load`."""
    # A place of its own is what only a skill of an MCP server has.
    is_away = skill.scope == "remote" and skill.root == str(skill.directory)
    if not is_away or os.path.lexists(skill.file):
        return skill_package.load(skill)
    return SkillContent(
        skill=skill,
        text="",
        body="",
        resources=(),
        resources_omitted=0,
        directory=skill.directory,
    )


def load_for_person(
    host: remote.McpHost | None,
    skill: Skill,
    remote_directory: Path,
    installed: Callable[[Path, str], str] | None,
) -> SkillContent:
    """Return the body of a skill that a person asked to see; one of a server is fetched for it.

    `installed` is what `check_for_person` asks.

    Raises:
        SkillError: as `load`, or as of `check_for_person`.
        RemoteError: its server cannot be asked, or gave something else than it listed.
    """
    if host is not None and host.held(skill) is not None:
        portal = toolbox.Portal()
        try:
            portal.call(lambda: host.fetch(skill))
        finally:
            portal.close()
    check_for_person(remote_directory, skill, installed)
    return skill_package.load(skill)

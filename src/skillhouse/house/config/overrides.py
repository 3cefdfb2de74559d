"""The values of a configuration that a program sets itself, as keywords of `Skillhouse`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from skillhouse.floor import ConfigError, nearest, structs
from skillhouse.house.config.config_values import Config

if TYPE_CHECKING:
    from skillhouse.approval import ApprovalSettings
    from skillhouse.floor import Diagnostic, Locations
    from skillhouse.house.config.config_values import (
        ExtensionSettings,
        McpServerSettings,
        MemorySettings,
        NetSettings,
        ProtectionSettings,
        RegistrySettings,
        SandboxSettings,
        SignerSettings,
        SkillCodeSettings,
    )
    from skillhouse.house.config.repositories import RepositorySettings
    from skillhouse.house.config.search_settings import SearchSettings
    from skillhouse.permission import Layer, Rule
    from skillhouse.remote import RemoteSource
    from skillhouse.skill import Profile
    from skillhouse.tools import WriteGate


class _PlainFields(TypedDict, total=False):
    """The fields of `Config` that are given as they are kept."""

    places: Locations
    profile: str | Profile
    catalog_budget_tokens: int | None
    yaml_fast_path: bool
    cache_directory: Path | None
    state_directory: Path
    policy: str | None
    layers: tuple[Layer, ...]
    exec_environment: tuple[str, ...]
    sandbox: Literal["any", "bubblewrap"]
    sandbox_limits: SandboxSettings
    approvals: ApprovalSettings
    write_gate: WriteGate
    extensions: ExtensionSettings
    skill_code: SkillCodeSettings
    protection: ProtectionSettings
    memory: MemorySettings
    mcp_servers: tuple[McpServerSettings, ...]
    agents: Mapping[str, Layer]
    skill_rules: Mapping[str, tuple[Rule, ...]]
    preload: Mapping[str, tuple[str, ...]]
    offered_tools: tuple[str, ...]
    agent_tools: Mapping[str, tuple[str, ...]]
    tool_limits: Mapping[str, tuple[str, ...]]
    net: NetSettings
    remotes: tuple[RemoteSource, ...]
    remote_directory: Path
    signer: SignerSettings
    registry: RegistrySettings
    repositories: tuple[RepositorySettings, ...]
    search: SearchSettings
    assignees: frozenset[str]
    audit_checkpoints: Path | None
    problems: tuple[Diagnostic, ...]


class ConfigFields(_PlainFields, total=False):
    """The fields of `Config` as keywords of `Skillhouse`; a test compares the two."""

    roots: Sequence[str | Path]


def overridden(config: Config, overrides: ConfigFields) -> Config:
    """Return a configuration with some values replaced; ConfigError for an unknown one."""
    known = [field.name for field in fields(Config)]
    for key in overrides:
        if key not in known:
            suggestion = next(iter(nearest(key, known)), "")
            raise ConfigError(f"unknown setting `{key}`", key=key, suggestion=suggestion)
    others = overrides.copy()
    if "roots" in others:
        config = structs.replace(config, roots=tuple(map(Path, others.pop("roots"))))
    plain: _PlainFields = others
    return structs.replace(config, **plain)

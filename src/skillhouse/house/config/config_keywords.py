"""The keywords of `Skillhouse(…)`: the fields of `Config`.

Generated from config_values.py by `./x docs`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any, Literal

    from skillhouse.approval import ApprovalSettings
    from skillhouse.floor import Diagnostic, Locations
    from skillhouse.house.config.bot_settings import BotSettings
    from skillhouse.house.config.bundle_files import TakenBundle
    from skillhouse.house.config.code_settings import SkillCodeSettings
    from skillhouse.house.config.config_values import (
        ExtensionSettings,
        FindAndInstallSettings,
        HookSettings,
        McpServerSettings,
        MemorySettings,
        NetSettings,
        OAuthSettings,
        ProtectionSettings,
        SandboxSettings,
        SearchSettings,
        SignerSettings,
    )
    from skillhouse.house.config.repositories import (
        RegistrySettings,
        RepositorySettings,
        SkillsSettings,
    )
    from skillhouse.house.config.state_settings import StateSettings
    from skillhouse.permission import Layer, Rule
    from skillhouse.remote import RemoteSource
    from skillhouse.skill import Profile
    from skillhouse.tools import WriteGate


class ConfigFields(TypedDict, total=False):
    """The values that a program replaces; `roots` may be texts."""

    places: Locations
    profile: str | Profile
    roots: Sequence[str | Path]
    catalog_budget_tokens: int | None
    tool_count: int | Literal["none"] | None
    tool_list_chars: int | Literal["none"] | None
    yaml_fast_path: bool
    cache_directory: Path | None
    state_directory: Path
    state: StateSettings
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
    search: SearchSettings
    find_and_install: FindAndInstallSettings
    hooks: HookSettings
    bot: BotSettings
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
    oauth: OAuthSettings | None
    registry: RegistrySettings
    repositories: tuple[RepositorySettings, ...]
    skills: SkillsSettings
    bundle: TakenBundle | None
    assignees: frozenset[str]
    audit_checkpoints: Path | None
    server_name: str
    sections: Mapping[str, Any]
    problems: tuple[Diagnostic, ...]

"""The values of a configuration that replace those of its files.

The variables `SKILLHOUSE_*` set some; a program sets any as keywords of `Skillhouse`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from skillhouse.floor import ConfigError, is_utf8, nearest, structs
from skillhouse.house.config.config_values import Config, Settings

if TYPE_CHECKING:
    from skillhouse.approval import ApprovalSettings
    from skillhouse.floor import Diagnostic, Locations
    from skillhouse.house.config.config_values import (
        ExtensionSettings,
        HookSettings,
        McpServerSettings,
        MemorySettings,
        NetSettings,
        ProtectionSettings,
        RegistrySettings,
        SandboxSettings,
        SearchSettings,
        SignerSettings,
        SkillCodeSettings,
    )
    from skillhouse.house.config.repositories import RepositorySettings
    from skillhouse.permission import Layer, Rule
    from skillhouse.remote import RemoteSource
    from skillhouse.skill import Profile
    from skillhouse.tools import WriteGate


ENVIRONMENT_PREFIX = "SKILLHOUSE_"


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Return what `SKILLHOUSE_*` sets; the variable with roots belongs to the profile."""
    found: dict[str, Any] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if not is_utf8(variable + value):
            raise ConfigError(f"expected UTF-8 in the variable `{variable}`", key=variable)
        if variable in _OTHER_VARIABLES:
            continue
        key = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key not in _VARIABLES:
            known = [ENVIRONMENT_PREFIX + name.upper() for name in _VARIABLES]
            suggestion = next(iter(nearest(variable, known)), "")
            raise ConfigError(
                f"unknown environment variable `{variable}`", key=variable, suggestion=suggestion
            )
        found[key] = _VARIABLES[key](variable, value)
    return Settings(**found)


def _number(variable: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigError(
            f"expected a number in `{variable}`, got {value!r}", key=variable
        ) from None


def _switch(variable: str, value: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if value.lower() not in known:
        raise ConfigError(f"expected true or false in `{variable}`, got {value!r}", key=variable)
    return known[value.lower()]


def _text(_: str, value: str) -> str:
    return value


_VARIABLES = {
    "profile": _text,
    "catalog_budget_tokens": _number,
    "yaml_fast_path": _switch,
    "cache": _switch,
    "cache_directory": _text,
    "state_directory": _text,
}
_OTHER_VARIABLES = frozenset(
    {"SKILLHOUSE_SKILLS_DIR", "SKILLHOUSE_CHAT_MODEL", "SKILLHOUSE_CHAT_BASE_URL"}
)


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
    hooks: HookSettings
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
    sections: Mapping[str, Any]
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

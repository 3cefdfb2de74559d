"""The values of a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse.approval import OWNER, ApprovalSettings
from skillhouse.floor import Diagnostic, Locations
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.remote import RemoteSource
from skillhouse.runtime.config.extensions import ExtensionSettings, SkillCodeSettings
from skillhouse.runtime.config.memory import MemorySettings
from skillhouse.runtime.config.network import NetSettings
from skillhouse.runtime.config.protection import ProtectionSettings
from skillhouse.runtime.config.signer import SignerSettings
from skillhouse.runtime.mcp_skills import McpServerSettings
from skillhouse.tools import WriteGate


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What is set for one agent."""

    rules: tuple[Rule, ...] = ()
    skill: Mapping[str, Effect] | tuple[tuple[str, Effect], ...] = ()
    """Patterns of skills' names with their effects, as a table or a list of pairs: their order
    counts, as the profile says (S004-54, S004-56)."""
    preload: tuple[str, ...] = ()
    """Skills whose texts the agent gets before it begins."""

    @property
    def skill_rules(self) -> tuple[Rule, ...]:
        """The patterns as rules, in the order in which they were written."""
        pairs = self.skill.items() if isinstance(self.skill, Mapping) else self.skill
        return tuple(
            Rule(effect=effect, action="skill", pattern=pattern) for pattern, effect in pairs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values that a file, the environment or flags may set; None is not set."""

    profile: str | None = None
    roots: tuple[str, ...] | None = None
    """Explicit roots; relative ones are relative to the file that names them."""
    catalog_budget_tokens: int | None = None
    yaml_fast_path: bool | None = None
    cache: bool | None = None
    """Whether the persistent index is used."""
    cache_directory: str | None = None
    state_directory: str | None = None
    exec_environment: tuple[str, ...] | None = None
    """Variables of this process that commands in the sandbox get."""
    rules: tuple[Rule, ...] | None = None
    approvals: ApprovalSettings | None = None
    """The bounds of asking a person; a file sets all of them or leaves them as they are."""
    write_gate: WriteGate | None = None
    """Who may change anything at all."""
    extensions: ExtensionSettings | None = None
    """What Claude Code adds to the format, over the profile; each value is merged by itself."""
    skill_code: SkillCodeSettings | None = None
    """Whether skills' own code runs."""
    memory: MemorySettings | None = None
    """Whether agents get tools for the workspace's memory; no project says so."""
    protection: ProtectionSettings | None = None
    """Which protected paths are asked about; no project says so."""
    mcp_servers: tuple[McpServerSettings, ...] | None = None
    """Servers whose skills are listed here too; no project names one."""
    agents: Mapping[str, AgentSettings] | None = None
    """Agents by name, each with rules of its own."""
    net: NetSettings | None = None
    """What may be reached; a file sets all of it or leaves it as it is."""
    remotes: tuple[RemoteSource, ...] | None = None
    """Servers whose skills are synced; likewise."""
    signer: SignerSettings | None = None
    """Where the password of the keys comes from."""
    assignees: tuple[str, ...] | None = None
    """The users for whom the house works, whom a tier policy calls `assignee-only`."""
    audit_checkpoints: str | None = None
    """A directory for the log's signed checkpoints, best on another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What one house is built from."""

    places: Locations
    profile: str = "default"
    roots: tuple[Path, ...] = ()
    catalog_budget_tokens: int | None = None
    """Most tokens of the catalog; None leaves it to the profile, and 0 lists no skill."""
    yaml_fast_path: bool = True
    cache_directory: Path | None = None
    """None: every file is read anew."""
    state_directory: Path
    layers: tuple[Layer, ...] = ()
    """Rules from far to near: managed, user, project."""
    exec_environment: tuple[str, ...] = ()
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings)
    """The bounds of asking a person."""
    write_gate: WriteGate = field(default_factory=WriteGate)
    """Who may change anything at all."""
    extensions: ExtensionSettings = field(default_factory=ExtensionSettings)
    """What is turned on or off over the profile."""
    skill_code: SkillCodeSettings = field(default_factory=SkillCodeSettings)
    """Whether skills' own code runs, and with what."""
    protection: ProtectionSettings = field(default_factory=ProtectionSettings)
    """Which protected paths are asked about."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    """Whether agents get tools for the workspace's memory."""
    mcp_servers: tuple[McpServerSettings, ...] = ()
    """Servers whose skills are listed beside those of this machine."""
    agents: Mapping[str, Layer] = field(default_factory=lambda: {"default": Layer(name="agent")})
    """The layer of each agent; an agent that is not named here is unknown."""
    skill_rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    """Each agent's patterns of skills; the profile says how they are read."""
    preload: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The skills whose texts each agent gets before it begins."""
    net: NetSettings = field(default_factory=NetSettings)
    """What may be reached."""
    remotes: tuple[RemoteSource, ...] = ()
    """Servers whose skills are synced."""
    remote_directory: Path
    """Where they are synced to; never below a place that is scanned for other skills."""
    signer: SignerSettings = field(default_factory=SignerSettings)
    """Where the password of the keys comes from."""
    assignees: frozenset[str] = frozenset({OWNER})
    """The users for whom the house works; its owner always is one."""
    audit_checkpoints: Path | None = None
    """Where the log's signed checkpoints are kept; None is beside the log."""
    problems: tuple[Diagnostic, ...] = ()
    """What is wrong with the project's file, which costs what that file sets."""

    def at(self, start: Path) -> Config:
        """Return the same configuration for another working directory."""
        return dataclasses.replace(self, places=dataclasses.replace(self.places, start=start))

"""The values of a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict

from msgspec import Struct, field

from skillhouse.approval import OWNER, ApprovalSettings
from skillhouse.floor import ConfigError, Diagnostic, Locations
from skillhouse.floor.structs import PartialStruct, field_names, replace
from skillhouse.house.config.bot_settings import BotSettings
from skillhouse.house.config.bundle_files import TakenBundle
from skillhouse.house.config.code_settings import SkillCodeSettings
from skillhouse.house.config.repositories import (
    RegistrySettings,
    RepositorySettings,
    SkillsSettings,
)
from skillhouse.house.config.secret_places import check_place
from skillhouse.house.config.state_settings import StateSettings
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.remote import RemoteSource
from skillhouse.skill import Extensions, Profile
from skillhouse.tools import WriteGate


class SearchSettings(Struct, frozen=True, kw_only=True):
    """How search works; no project says so."""

    learn: bool = False
    """Whether skills that agents load after a search come earlier for similar requests."""
    encoder: Literal["auto", "none", "use", "granite", "use+granite"] = "auto"
    """Which encoders find skills by meaning; "auto" is those that are installed."""
    weights: str = ""
    """Absolute directory with the encoders' files; "" is the installed packages."""

    database: str = ""
    """Where the address of a PostgreSQL that has the index is, env:NAME or file:PATH; never itself,
    since it may hold a password. Empty keeps the index in files."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a database that is not named by its place, or a relative path."""
        if self.weights and not os.path.isabs(self.weights):
            message = f"expected an absolute directory in `weights`, got `{self.weights}`"
            raise ConfigError(message, key="weights")
        if self.database:
            check_place(self.database, key="database")


ALL_TOOLS = ("all",)
"""The list that leaves no tool out."""
"""Directories of packages beside those of a skill: for all skills, and of the host."""
TOOL_PLACES_MAX = 24
"""Entries of `[sandbox] path` and of `mounts`."""
SANDBOX_BOUNDS = {
    "seconds": (1, 86_400),
    # A result is kept in memory, and then in a file of the conversation (tools/result_files.py).
    # With less, a secret that is cut through could not be left out (sandbox/process.py).
    "output_bytes": (1 << 20, 64 << 20),
    # The runner of a plan, its commands, and what supervises them.
    "processes": (8, 1 << 20),
    "memory": (32 << 20, 1 << 50),
    "file_bytes": (1_024, 1 << 50),
    # A size of 0 would be none at all (tmpfs(5)).
    "tmp_bytes": (4_096, 1 << 50),
}
"""The least and the most of each limit of commands."""


class ExtensionSettings(Struct, frozen=True, kw_only=True):
    """Which of the profile's extensions are turned on or off; None is as the profile has it."""

    invocation: bool | None = None
    """Whether `disable-model-invocation` and `user-invocable` are heeded."""
    substitution: bool | None = None
    """Whether `$ARGUMENTS`, `$1` and `${CLAUDE_SKILL_DIR}` are filled in."""
    when_to_use: bool | None = None
    """Whether it is added to the description."""
    paths: bool | None = None
    """Whether a skill is listed once a file that fits is worked on."""
    commands: bool | None = None
    """Whether commands in the text run when a person starts a skill, each through the gate."""

    def over(self, extensions: Extensions) -> Extensions:
        """Return the profile's extensions with these in their place."""
        return replace(extensions, **_values_set(self))

    def before(self, weaker: ExtensionSettings) -> ExtensionSettings:
        """Return both, each value from this one where it is set here."""
        return replace(weaker, **_values_set(self))


def _values_set(table: Struct) -> dict[str, Any]:
    values = {name: getattr(table, name) for name in field_names(table)}
    return {name: value for name, value in values.items() if value is not None}


class SecretSettings(Struct, frozen=True, kw_only=True):
    """One secret: a variable of this process, and the hosts that may get its value."""

    name: str
    """What `{{secret:NAME}}` in a header says."""
    env: str
    """The variable that holds it."""
    hosts: tuple[str, ...]
    """The only hosts that get it."""


class NetSettings(Struct, frozen=True, kw_only=True):
    """The table `[net]`; without it every request needs an approval."""

    hosts: tuple[str, ...] = ()
    """What is reached without asking: HOST, `*.HOST`, or methods, scheme and port before and after
    it (`net.host_rule`)."""
    private: tuple[str, ...] = ()
    """Networks that are not public and may be reached all the same."""
    secrets: tuple[SecretSettings, ...] = ()
    """Values that requests may carry and no model sees."""
    brave_key_env: str = ""
    """Variable that holds a key of Brave's search."""
    searxng_url: str = ""
    """A SearXNG of the user's own; it comes before Brave."""


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """The table `[sandbox]`: each value is merged by itself, and None is the default."""

    level: Literal["any", "bubblewrap"] | None = None
    """As the key `sandbox` on its own: "bubblewrap" refuses the level `landlock`."""
    seconds: int | None = None
    """Time of a command, and the most that a call may ask for."""
    output_bytes: int | None = None
    """Output of a command that is kept; the middle of what is more is left out."""
    processes: int | None = None
    """Processes and threads of a command at one time."""
    memory: int | None = None
    """Bytes of all processes together."""
    file_bytes: int | None = None
    """Bytes of a file that a command writes."""
    tmp_bytes: int | None = None
    """Bytes of its /tmp."""
    path: tuple[str, ...] | None = None
    """Directories of programs before those of PATH; relative ones are of the workspace."""
    mounts: tuple[str, ...] | None = None
    """Further absolute places that tools read."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a limit out of range."""
        for key, (least, most) in SANDBOX_BOUNDS.items():
            value = getattr(self, key)
            if value is not None and not least <= value <= most:
                message = f"expected a whole number from {least} to {most} in `{key}`, got {value}"
                raise ConfigError(message, key=f"sandbox.{key}")
        for key in ("path", "mounts"):
            places = getattr(self, key) or ()
            if len(places) > TOOL_PLACES_MAX or not all(map(_is_place, places)):
                message = f"expected at most {TOOL_PLACES_MAX} directories in `{key}`"
                raise ConfigError(f"{message}, got {list(places)}", key=f"sandbox.{key}")
        for place in self.mounts or ():
            if not place.startswith(("/", "~/")):
                message = f"expected absolute paths in `mounts`, got {place!r}"
                raise ConfigError(message, key="sandbox.mounts")

    def before(self, weaker: SandboxSettings) -> SandboxSettings:
        """Return both, each value from this one where it is set here."""
        return replace(weaker, **_values_set(self))

    def values(self) -> dict[str, Any]:
        """Return the limits that are set, by their names in `sandbox.Limits`."""
        names = {key: "memory_bytes" if key == "memory" else key for key in SANDBOX_BOUNDS}
        own = {name: getattr(self, key) for key, name in names.items()}
        return {name: value for name, value in own.items() if value is not None}


def _is_place(text: str) -> bool:
    """Whether a text can stand in a PATH."""
    return bool(text) and not {"\0", "\n", ":"} & {*text}


def as_table(value: str | SandboxSettings | None) -> SandboxSettings:
    """Return the table that a value of the key `sandbox` is short for."""
    if isinstance(value, SandboxSettings):
        return value
    level: Any = value
    return SandboxSettings(level=level)


class MemorySettings(Struct, frozen=True, kw_only=True):
    """Whether agents get `memory_search` and `memory_write`."""

    enabled: bool | None = None
    """Whether they do; None leaves it to the profile."""


class FindAndInstallSettings(Struct, frozen=True, kw_only=True):
    """Whether models get `find_and_install_skill`; no project says so."""

    enabled: bool = False
    """Whether they do: each install still needs a person's approval of just that version."""
    public: bool = False
    """Whether it looks into the public collections of GitHub too, besides the repositories."""


class HookSettings(Struct, frozen=True, kw_only=True):
    """What the hooks of coding agents do besides deciding."""

    hints: bool = True
    """Whether a line beside a prompt names the skills that surely fit it."""


class ProtectionSettings(Struct, frozen=True, kw_only=True):
    """Which protected paths ask a person instead of being denied."""

    asked: tuple[str, ...] = ()
    """Paths at any depth, such as `opencode.json`; `*` matches within a name. Git's directory,
    secrets and files of skillhouse cannot be named."""


class SignerSettings(Struct, frozen=True, kw_only=True):
    """The table `[signer]`."""

    password: str = "terminal"  # noqa: S105 - a place, and never the password.
    """Where the keystore's password is: terminal, keyring, fd:NUMBER or env:NAME; never itself."""


class OAuthSettings(Struct, frozen=True, kw_only=True):
    """The table `[oauth]`: whose tokens open `/mcp`, besides our own."""

    issuer: str
    """The authorization server, exactly as its tokens and its metadata name it."""
    resource: str
    """The address of `/mcp` as clients know it; each token must be for it alone."""
    users: tuple[str, ...]
    """Who may log in, by their values of `user_claim`; `["*"]` is everyone to whom the issuer gives
    such a token."""
    user_claim: str = "sub"
    """The claim that names a user, who is `oauth:NAME` in rules, approvals and the log."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """Further claims that must be just these texts, as in `{groups = "tools"}`; where a claim is a
    list, it must have the text."""
    scope: str = "skillhouse"
    """The scope that a token must have."""
    agent: str = "default"
    """The agent for which such clients call."""
    jwks: str = ""
    """The issuer's keys, where its metadata does not say: an https address, or the absolute path of
    a file."""


class McpServerSettings(Struct, frozen=True, kw_only=True):
    """One `[[mcp_servers]]` table of a configuration file."""

    label: str
    """Our name of the server; the names of its skills begin with it."""
    url: str = ""
    """Its address, where it is not started here."""
    command: tuple[str, ...] = ()
    """Program and arguments of a server that is started here, in the home directory."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it is started with."""
    allow_private: bool = False
    """Whether its address may be on this machine or in a private network."""


class AgentSettings(Struct, frozen=True, kw_only=True):
    """What is set for one agent."""

    rules: tuple[Rule, ...] = ()
    """Rules that are nearer than the user's."""
    skill: Mapping[str, Effect] | tuple[tuple[str, Effect], ...] = ()
    """Patterns of skills' names with their effects, as a table or a list of pairs: their order
    counts, as the profile says (S004-54, S004-56)."""
    preload: tuple[str, ...] = ()
    """Skills whose texts the agent gets before it begins."""
    tools: tuple[str, ...] | None = None
    """What it is offered, by name or pattern, `skills` or `all`; None is as for any agent."""

    @property
    def skill_rules(self) -> tuple[Rule, ...]:
        """The patterns as rules, in the order in which they were written."""
        pairs = self.skill.items() if isinstance(self.skill, Mapping) else self.skill
        return tuple(
            Rule(effect=effect, action="skill", pattern=pattern) for pattern, effect in pairs
        )


BY_PROJECT = "a project sets it"
BY_VARIABLE = "a variable sets it"
BY_BUNDLE = "a bundle sets it"
"""Marks of the fields of `Settings`: without one only the files of the machine set a key."""


class Settings(Struct, frozen=True, kw_only=True):
    """The values that a file, the environment or flags may set; None is not set."""

    profile: Annotated[str | None, BY_VARIABLE] = None
    """How skills are found and read."""
    roots: tuple[str, ...] | None = None
    """Further directories of skills; relative ones are relative to the file that names them."""
    catalog_budget_tokens: Annotated[int | None, BY_PROJECT, BY_VARIABLE, BY_BUNDLE] = None
    """Most tokens of the catalog; 0 lists no skill. Without it 2,000, and under the profiles of the
    five designs no bound."""
    tool_count: Annotated[int | Literal["none"] | None, BY_BUNDLE] = None
    """Most tools in a request, ours counted as if all were there; beyond it the tools of skills are
    found by searching. Without it the profile's 128, and under the profiles of the five designs no
    bound."""
    tool_list_chars: Annotated[int | Literal["none"] | None, BY_BUNDLE] = None
    """Most characters of the definitions of skills' tools in a request, likewise. Without it
    20,000, and under the profiles of the five designs no bound."""
    yaml_fast_path: Annotated[bool | None, BY_VARIABLE] = None
    """Whether blocks of plain lines are read without a YAML parser."""
    cache: Annotated[bool | None, BY_VARIABLE] = None
    """Whether the index is kept between starts; it is unless set."""
    cache_directory: Annotated[str | None, BY_VARIABLE] = None
    """Where the index is kept; without it `$XDG_CACHE_HOME/skillhouse`, else
    `~/.cache/skillhouse`."""
    state_directory: Annotated[str | None, BY_VARIABLE] = None
    """Where trust, approvals and the log are kept; without it `$XDG_STATE_HOME/skillhouse`, else
    `~/.local/state/skillhouse`."""
    state: StateSettings | None = None
    """Whether the state is on a server that several machines share; see
    [the state](../concepts/state.md)."""
    exec_environment: tuple[str, ...] | None = None
    """Variables of this process that commands in the sandbox get; names that look like secrets are
    refused."""
    sandbox: Literal["any", "bubblewrap"] | SandboxSettings | None = None
    """What may hold commands and skills' code, and the limits of commands."""
    policy: Literal["careful", "developer", "locked"] | None = None
    """Rules of the program below those of the user's file: careful, developer or locked."""
    rules: Annotated[tuple[Rule, ...] | None, BY_PROJECT, BY_BUNDLE] = None
    """What is allowed, asked about or denied."""
    approvals: ApprovalSettings | None = None
    """The bounds of asking a person; the strongest file with the table gives all of them."""
    write_gate: WriteGate | None = None
    """Who may change anything at all."""
    extensions: ExtensionSettings | None = None
    """What Claude Code adds to the format, over the profile; each value is merged by itself."""
    skill_code: SkillCodeSettings | None = None
    """Whether skills' own code runs, and with what."""
    memory: MemorySettings | None = None
    """Whether agents get tools for the workspace's memory."""
    search: SearchSettings | None = None
    """How search works."""
    find_and_install: FindAndInstallSettings | None = None
    """Whether a model may find a skill in the repositories and ask to have it installed."""
    hooks: HookSettings | None = None
    """What hooks of coding agents do; see
    [skills at the right moment](../guides/rules-for-my-agent.md#skills-at-the-right-moment)."""
    bot: BotSettings | None = None
    """The assistant in chat services, for `skillhouse bot`."""
    protection: ProtectionSettings | None = None
    """Which protected paths are asked about instead of being refused."""
    mcp_servers: tuple[McpServerSettings, ...] | None = None
    """MCP servers whose skills are listed here too."""
    agents: Mapping[str, AgentSettings] | None = None
    """Agents by name, each with rules of its own."""
    tools: tuple[str, ...] | None = None
    """The tools that agents without a list of their own are offered."""
    net: NetSettings | None = None
    """What may be reached; the strongest file with the table gives all of it."""
    remotes: tuple[RemoteSource, ...] | None = None
    """Servers whose skills are synced."""
    signer: SignerSettings | None = None
    """Where the password of the keys comes from."""
    oauth: OAuthSettings | None = None
    """Whose tokens open `/mcp`; see
    [logging in](../guides/any-framework-over-mcp.md#log-in-by-an-authorization-server)."""
    registry: RegistrySettings | None = None
    """Whether skills must be signed."""
    skills: SkillsSettings | None = None
    """Repositories of packages, and a signed bundle of skills."""
    assignees: tuple[str, ...] | None = None
    """The users who count for `assignee-only` in a tier policy."""
    audit_checkpoints: str | None = None
    """A directory for the log's signed checkpoints, best on another machine."""
    server_name: Annotated[str | None, BY_VARIABLE] = None
    """Name of this server, in each record of its log; with one, the state keeps the log's heads."""
    sections: Mapping[str, Any] | None = None
    """What the tables of extensions were read as, by key; no key of this name may be written."""


Stamp = tuple[int | str, ...]
"""What changes when a file is another one; see `config_files.stamp`."""


class ConfigSource(Struct, frozen=True, kw_only=True):
    """What a configuration was read from, and what its files were then."""

    flags: Settings | None
    stamps: Mapping[Path, Stamp]
    """Of each file that decides, present or not, taken before it was read."""
    is_trusted: bool
    """Whether the project was trusted, whose file counts only then."""
    loaded: Config
    """As read; a program may have replaced values since."""
    is_dry: bool = False
    """Whether it is that of a dry run."""


class Config(PartialStruct, frozen=True, kw_only=True):
    """The configuration of one `Skillhouse`; `floor.structs.replace` changes a value of it."""

    HIDDEN: ClassVar = frozenset({"source"})
    UNCOMPARED: ClassVar = frozenset({"source"})

    places: Locations
    profile: str | Profile = "default"
    roots: tuple[Path, ...] = ()
    catalog_budget_tokens: int | None = None
    """Most tokens of the catalog; None leaves it to the profile, and 0 lists no skill."""
    tool_count: int | Literal["none"] | None = None
    """Most tools in a request; None leaves it to the profile, and "none" is no bound."""
    tool_list_chars: int | Literal["none"] | None = None
    """Most characters of skills' tools in a request, likewise."""
    yaml_fast_path: bool = True
    cache_directory: Path | None = None
    """None: every file is read each time."""
    state_directory: Path
    state: StateSettings = StateSettings()
    """Where the state is."""
    policy: str | None = None
    """The policy of the program whose rules are among `layers`."""
    layers: tuple[Layer, ...] = ()
    """Rules from far to near: managed, those of `policy`, user, bundle, project; those of a bundle
    that are defaults come first."""
    exec_environment: tuple[str, ...] = ()
    sandbox: Literal["any", "bubblewrap"] = "any"
    """What may hold commands and skills' code: "bubblewrap" refuses the level `landlock`."""
    sandbox_limits: SandboxSettings = SandboxSettings()
    """The limits of commands; its `level` counts for nothing here."""
    approvals: ApprovalSettings = ApprovalSettings()
    """The bounds of asking a person."""
    write_gate: WriteGate = WriteGate()
    """Who may change anything at all."""
    extensions: ExtensionSettings = ExtensionSettings()
    """What is turned on or off over the profile."""
    skill_code: SkillCodeSettings = SkillCodeSettings()
    """Whether skills' own code runs, and with what."""
    protection: ProtectionSettings = ProtectionSettings()
    """Which protected paths are asked about."""
    memory: MemorySettings = MemorySettings()
    """Whether agents get tools for the workspace's memory."""
    search: SearchSettings = SearchSettings()
    """How search works."""
    find_and_install: FindAndInstallSettings = FindAndInstallSettings()
    """Whether models may ask to have skills installed."""
    hooks: HookSettings = HookSettings()
    """What hooks of coding agents do."""
    bot: BotSettings = BotSettings()
    """The assistant in chat services."""
    mcp_servers: tuple[McpServerSettings, ...] = ()
    """Servers whose skills are listed beside those of this machine."""
    agents: Mapping[str, Layer] = field(default_factory=lambda: {"default": Layer(name="agent")})
    """The layer of each agent; an agent that is not named here is unknown."""
    skill_rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    """Each agent's patterns of skills; the profile says how they are read."""
    preload: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The skills whose texts each agent gets before it begins."""
    offered_tools: tuple[str, ...] = ALL_TOOLS
    """The tools that an agent is offered, by name or pattern, `skills` or `all`."""
    agent_tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same of agents that have a list of their own."""
    tool_limits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Lists that hold besides, by what sets them: no agent is offered what one does not name."""
    net: NetSettings = NetSettings()
    """What may be reached."""
    remotes: tuple[RemoteSource, ...] = ()
    """Servers whose skills are synced."""
    remote_directory: Path
    """Where they are synced to; never below a place that is scanned for other skills."""
    signer: SignerSettings = SignerSettings()
    """Where the password of the keys comes from."""
    oauth: OAuthSettings | None = None
    """Whose tokens open `/mcp`; None for our own alone."""
    registry: RegistrySettings = RegistrySettings()
    """Whether skills must be signed."""
    repositories: tuple[RepositorySettings, ...] = ()
    """Where packages are looked for by name, in this order."""
    skills: SkillsSettings = SkillsSettings()
    """Where a signed bundle of skills is from; without `repositories`, which are above."""
    bundle: TakenBundle | None = None
    """The bundle whose skills, rules and tier policy are used; None where none is configured."""
    assignees: frozenset[str] = frozenset({OWNER})
    """The users who count for `assignee-only`; the owner always does."""
    audit_checkpoints: Path | None = None
    """Where the log's signed checkpoints are kept; None is beside the log."""
    server_name: str = ""
    """Name of this server in records; empty for a machine with one log."""
    sections: Mapping[str, Any] = field(default_factory=dict)
    """What the tables of extensions were read as, by key."""
    problems: tuple[Diagnostic, ...] = ()
    """What is wrong with the project's file, which costs what that file sets."""
    source: ConfigSource | None = None
    """Where it was read from; None for one that a program made, which no file changes."""

    @property
    def shown_server(self) -> str:
        """The name by which other servers, and people, know this one: `server_name`, or that of the
        machine where it is not set."""
        if self.server_name:
            return self.server_name
        import socket  # noqa: PLC0415 - a list of skills names no server.

        return socket.gethostname()

    def tool_lists(self, agent: str) -> tuple[tuple[str, ...], ...]:
        """Return the lists of an agent's tools; it is offered what each of them names."""
        return (self.agent_tools.get(agent, self.offered_tools), *self.tool_limits.values())

    def all_tool_lists(self) -> dict[str, tuple[str, ...]]:
        """Return the lists that leave tools out, by what sets each."""
        agents = {f"agents.{name}.tools": named for name, named in self.agent_tools.items()}
        lists = {"tools": self.offered_tools, **agents, **self.tool_limits}
        return {key: named for key, named in lists.items() if named != ALL_TOOLS}

    def at(self, start: Path) -> Config:
        """Return the same configuration for another working directory."""
        return replace(self, places=replace(self.places, start=start))


class ToolLists(TypedDict):
    """The lists of tools as fields of `Config`."""

    offered_tools: tuple[str, ...]
    agent_tools: Mapping[str, tuple[str, ...]]
    tool_limits: Mapping[str, tuple[str, ...]]


def tool_lists(
    managed: Settings, flags: Settings, user: Settings, *, agents: Mapping[str, AgentSettings]
) -> ToolLists:
    """Return the lists of tools: the managed one and the flag only make an agent's list shorter.

    >>> flags = Settings(tools=("skills",))
    >>> tool_lists(Settings(), flags, Settings(), agents={})["tool_limits"]
    {'--tools': ('skills',)}
    """
    limits = {"managed `tools`": managed.tools, "--tools": flags.tools}
    own = {name: agent.tools for name, agent in agents.items()}
    return ToolLists(
        offered_tools=ALL_TOOLS if user.tools is None else user.tools,
        agent_tools={name: named for name, named in own.items() if named is not None},
        tool_limits={key: named for key, named in limits.items() if named is not None},
    )

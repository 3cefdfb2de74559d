"""One configuration from its files, the environment and flags; an unknown key is an error.

Strongest first: managed, flags, environment, project (only if trusted, only what cannot loosen),
user (DESIGN, "Configuration").
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from skillhouse.approval import ApprovalSettings
from skillhouse.floor import ConfigError, DecodeError, nearest, shaped
from skillhouse.permission import Effect, Layer, Rule, matches
from skillhouse.runtime.away import McpServerSettings
from skillhouse.skill import Extensions
from skillhouse.tools import WriteGate

MANAGED_FILE = Path("/etc/skillhouse/config.toml")
PROJECT_FILE = "skillhouse.toml"
ENVIRONMENT_PREFIX = "SKILLHOUSE_"

APPROVAL_NUMBER_MAX = 86_400
"""Most of any number about approvals: a day's seconds, and more questions than anybody answers."""

PROJECT_KEYS = frozenset({"catalog_budget_tokens", "rules"})
"""What a project may set: its rules are an untrusted layer, and a budget loosens nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where this process stands: everything that is not configuration."""

    start: Path
    """Where the agent works."""
    home: Path
    environment: Mapping[str, str]
    managed_file: Path = MANAGED_FILE

    @classmethod
    def here(cls) -> Self:
        """Return the places of this process."""
        return cls(start=Path.cwd(), home=Path.home(), environment=os.environ)

    @property
    def user_file(self) -> Path:
        """The user's configuration."""
        return self.home / ".config/skillhouse/config.toml"

    @property
    def profiles(self) -> Path:
        """The user's own profiles, one file each."""
        return self.user_file.parent / "profiles"

    def cache(self) -> Path:
        """Return where what can be rebuilt is kept (XDG base directories)."""
        base = self.environment.get("XDG_CACHE_HOME", "")
        return (Path(base) if base else self.home / ".cache") / "skillhouse"

    def state(self) -> Path:
        """Return where what must not be lost is kept (XDG base directories)."""
        base = self.environment.get("XDG_STATE_HOME", "")
        return (Path(base) if base else self.home / ".local/state") / "skillhouse"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What is set for one agent."""

    rules: tuple[Rule, ...] = ()
    skill: Mapping[str, Effect] | tuple[tuple[str, Effect], ...] = ()
    """Patterns of skills' names with their effects, as a table or a list of pairs: their order
    counts, as the profile says (S004-54, S004-56)."""

    @property
    def skill_rules(self) -> tuple[Rule, ...]:
        """The patterns as rules, in the order in which they were written."""
        pairs = self.skill.items() if isinstance(self.skill, Mapping) else self.skill
        return tuple(
            Rule(effect=effect, action="skill", pattern=pattern) for pattern, effect in pairs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSettings:
    """Which of the profile's extensions are turned on or off; None is as the profile has it."""

    invocation: bool | None = None
    substitution: bool | None = None
    when_to_use: bool | None = None
    paths: bool | None = None
    commands: bool | None = None

    def over(self, extensions: Extensions) -> Extensions:
        """Return the profile's extensions with these in their place."""
        return replace(extensions, **self._set())

    def before(self, weaker: ExtensionSettings) -> ExtensionSettings:
        """Return both, each value from this one where it is set here."""
        return replace(weaker, **self._set())

    def _set(self) -> dict[str, Any]:
        values = {known.name: getattr(self, known.name) for known in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


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
    mcp_servers: tuple[McpServerSettings, ...] | None = None
    """Servers whose skills are listed here too; no project names one."""
    agents: Mapping[str, AgentSettings] | None = None
    """Agents by name, each with rules of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What one house is built from."""

    places: Places
    profile: str = "default"
    roots: tuple[Path, ...] = ()
    catalog_budget_tokens: int | None = None
    """Most tokens of the catalog; None is no bound."""
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
    mcp_servers: tuple[McpServerSettings, ...] = ()
    """Servers whose skills are listed beside those of this machine."""
    agents: Mapping[str, Layer] = field(default_factory=lambda: {"default": Layer(name="agent")})
    """The layer of each agent; an agent that is not named here is unknown."""
    skill_rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    """Each agent's patterns of skills; the profile says how they are read."""


def load_config(
    places: Places, flags: Settings | None = None, *, project: Path | None = None
) -> Config:
    """Return the configuration of `places`.

    Args:
        places: Where the files and the environment are.
        flags: What the caller sets by hand.
        project: The trusted project whose file is read too; None reads none.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, a value has the wrong type, or an
            example of a rule does not hold.
    """
    managed = _read_file(places.managed_file)
    user = _read_file(places.user_file)
    near = _read_file(project / PROJECT_FILE, only=PROJECT_KEYS) if project else Settings()
    environment = _from_environment(places.environment)
    merged = _merged(managed, flags or Settings(), environment, near, user)
    layers = (
        Layer(name="managed", rules=managed.rules or ()),
        Layer(name="user", rules=user.rules or ()),
        Layer(name="project", rules=near.rules or (), trusted=False),
    )
    if merged.catalog_budget_tokens is not None and merged.catalog_budget_tokens < 0:
        raise ConfigError(
            f"expected a budget of 0 tokens or more, got {merged.catalog_budget_tokens}",
            key="catalog_budget_tokens",
        )
    cache = Path(merged.cache_directory) if merged.cache_directory else places.cache()
    return Config(
        places=places,
        profile=merged.profile or "default",
        roots=tuple(Path(root) for root in merged.roots or ()),
        catalog_budget_tokens=merged.catalog_budget_tokens,
        yaml_fast_path=merged.yaml_fast_path is not False,
        cache_directory=None if merged.cache is False else cache,
        state_directory=Path(merged.state_directory) if merged.state_directory else places.state(),
        layers=tuple(layer for layer in layers if layer.rules),
        exec_environment=merged.exec_environment or (),
        approvals=merged.approvals or ApprovalSettings(),
        write_gate=merged.write_gate or WriteGate(),
        extensions=merged.extensions or ExtensionSettings(),
        mcp_servers=merged.mcp_servers or (),
        agents={
            "default": Layer(name="agent"),
            **{
                name: Layer(name="agent", rules=agent.rules)
                for name, agent in (merged.agents or {}).items()
            },
        },
        skill_rules={name: agent.skill_rules for name, agent in (merged.agents or {}).items()},
    )


def _merged(*strongest_first: Settings) -> Settings:
    values: dict[str, Any] = {}
    for settings in strongest_first:
        for known in fields(Settings):
            value = getattr(settings, known.name)
            if value is not None:
                found = values.setdefault(known.name, value)
                if isinstance(found, ExtensionSettings):
                    # Each by itself: what is turned off from above stays so.
                    values[known.name] = found.before(value)
    return Settings(**values)


def _read_file(path: Path, *, only: frozenset[str] | None = None) -> Settings:
    """Return what a file sets; one that is missing sets nothing."""
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    if only is not None:
        for key in table.keys() - only:
            if key in _KEYS:
                raise ConfigError(f"key `{key}` cannot be set by a project", path=path, key=key)
    settings = _settings(table, path)
    if settings.roots is not None:
        roots = tuple(str(path.parent / os.path.expanduser(root)) for root in settings.roots)
        settings = replace(settings, roots=roots)
    return settings


def _settings(table: Mapping[str, Any], path: Path | None) -> Settings:
    _refuse_unknown(table, _KEYS, "key", path)
    _refuse_unknown_rule_keys(table, path)
    for key, known in _TABLES.items():
        found = table.get(key)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, Mapping):
                _refuse_unknown(one, known, f"{key} key", path)
    agents = table.get("agents")
    for agent in agents.values() if isinstance(agents, Mapping) else ():
        if isinstance(agent, Mapping):
            _refuse_unknown(agent, frozenset({"rules", "skill"}), "agent key", path)
            _refuse_unknown_rule_keys(agent, path)
    try:
        settings = shaped(table, Settings)
    except DecodeError as error:
        raise ConfigError(f"wrong value: {error}", path=path) from error
    if settings.approvals is not None:
        _check_approvals(settings.approvals, path)
    for index, rule in enumerate(settings.rules or ()):
        _try_examples(rule, index, path)
    for agent in (settings.agents or {}).values():
        for index, rule in enumerate(agent.rules):
            _try_examples(rule, index, path)
    for name in settings.exec_environment or ():
        if _SECRET_NAME.search(name):
            message = f"`{name}` looks like a secret and is not given to commands"
            raise ConfigError(message, path=path, key="exec_environment")
    return settings


def _check_approvals(settings: ApprovalSettings, path: Path | None) -> None:
    """Refuse bounds that bound nothing."""
    for known in fields(ApprovalSettings):
        value = getattr(settings, known.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not 0 < value <= APPROVAL_NUMBER_MAX:
            raise ConfigError(
                f"expected a number above 0 and at most {APPROVAL_NUMBER_MAX}, got {value}",
                path=path,
                key=f"approvals.{known.name}",
            )


def _refuse_unknown_rule_keys(table: Mapping[str, Any], path: Path | None) -> None:
    rules = table.get("rules")
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, Mapping):
            _refuse_unknown(rule, _RULE_KEYS, "rule key", path)


def _refuse_unknown(
    table: Mapping[str, Any], known: frozenset[str], kind: str, path: Path | None
) -> None:
    for key in table:
        if key not in known:
            suggestion = next(iter(nearest(key, known)), "")
            message = f"unknown {kind} `{key}`"
            if not suggestion:
                message += f", known are {', '.join(sorted(known))}"
            raise ConfigError(message, path=path, key=key, suggestion=suggestion)


def _try_examples(rule: Rule, index: int, path: Path | None) -> None:
    """Try a rule's own examples, which are its tests."""
    for example in rule.match:
        if not matches(rule.pattern, example):
            message = f"rule {index + 1}: `{rule.pattern}` does not match its example `{example}`"
            raise ConfigError(message, path=path, key="match")
    for example in rule.not_match:
        if matches(rule.pattern, example):
            message = f"rule {index + 1}: `{rule.pattern}` matches its counterexample `{example}`"
            raise ConfigError(message, path=path, key="not_match")


def _from_environment(environment: Mapping[str, str]) -> Settings:
    """Return what `SKILLHOUSE_*` sets; the variable with roots belongs to the profile."""
    found: dict[str, Any] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
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


# seeds.md section 1.4: such variables are not handed on even when they are listed.
_SECRET_NAME = re.compile(
    "api[_-]?key|token|secret|pass(word)?|private|mnemonic|seed|session", re.IGNORECASE
)
_KEYS = frozenset(field.name for field in fields(Settings))
_TABLES = {
    "approvals": frozenset(field.name for field in fields(ApprovalSettings)),
    "write_gate": frozenset(field.name for field in fields(WriteGate)),
    "extensions": frozenset(field.name for field in fields(ExtensionSettings)),
    "mcp_servers": frozenset(field.name for field in fields(McpServerSettings)),
}
_RULE_KEYS = frozenset(field.name for field in fields(Rule))
_VARIABLES = {
    "profile": _text,
    "catalog_budget_tokens": _number,
    "yaml_fast_path": _switch,
    "cache": _switch,
    "cache_directory": _text,
    "state_directory": _text,
}
_OTHER_VARIABLES = frozenset({"SKILLHOUSE_SKILLS_DIR"})

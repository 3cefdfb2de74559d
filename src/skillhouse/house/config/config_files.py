"""One configuration from its files, the environment and flags; an unknown key is an error.

Strongest first: managed, flags, environment, project (only if trusted, only what cannot loosen),
user, as docs/reference/configuration.md has it. The profile and the project of a place follow from
it. Where it was read from is noted with it, so that a running process sees that a file has changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillhouse.approval import OWNER, ApprovalSettings
from skillhouse.floor import (
    ConfigError,
    DecodeError,
    Diagnostic,
    Locations,
    Severity,
    file_problem,
    git_root,
    read_regular,
    shaped,
    structs,
)
from skillhouse.floor.documents import DocumentError, toml_table
from skillhouse.floor.structs import field_names, replace
from skillhouse.house.config.checks import (
    check_actions,
    check_approvals,
    check_exec_environment,
    check_net,
    check_oauth,
    check_remotes,
    check_rules,
    check_server_name,
    check_signer,
    secret_variables,
    wrong_value,
)
from skillhouse.house.config.config_keys import (
    CONFIG_KEYS,
    from_environment,
    project_keys,
    refuse_unknown_keys,
    section_value,
)
from skillhouse.house.config.config_lines import CONFIG_FILE_MAX, with_line
from skillhouse.house.config.config_values import (
    AgentSettings,
    Config,
    ConfigSource,
    ExtensionSettings,
    NetSettings,
    Settings,
    Stamp,
    as_table,
    tool_lists,
)
from skillhouse.house.config.repositories import (
    SkillsSettings,
    check_repositories,
    published_repositories,
)
from skillhouse.house.config.rule_tables import (
    RULED,
    TriedExamples,
    policy_layer,
    try_examples,
    with_each_pattern,
)
from skillhouse.house.config.state_settings import settle_state
from skillhouse.house.trust import TrustStore
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import Profile, load_profile

PROJECT_FILE = "skillhouse.toml"
REMOTE_DIRECTORY = "remotes"
"""Below the cache directory."""


def load_config(
    places: Locations,
    flags: Settings | None = None,
    *,
    project: Path | None = None,
    without: frozenset[Path] = frozenset(),
) -> Config:
    """Return the configuration of `places`, `flags` and, where it is trusted, of a project.

    The files `without` are as if they set nothing; only what looks at faults may ask for that.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, a value has the wrong type, or an
            example of a rule does not hold. Of a project's file that is one of `problems`.
    """
    places.check()
    files = (places.managed_file, places.user_file)
    own = [_ConfigFile(file, is_empty=file in without) for file in files]
    managed, user = (file.settings() for file in own)
    if places.published_file not in without:
        user = _with_published(user, places.published_file)
    environment = from_environment(places.environment)
    # No project says where the cache is.
    cache = _cache_of(merge(managed, flags or Settings(), environment, user), places)
    for file in own:
        file.try_examples(cache)
    near, problems = _read_project(project / PROJECT_FILE, cache) if project else (Settings(), ())
    merged = merge(managed, flags or Settings(), environment, near, user)
    _check_merged(merged)
    state = Path(merged.state_directory) if merged.state_directory else places.state()
    if merged.state is not None:
        settle_state(merged.state, state, places.environment)
    sandbox, agents = as_table(merged.sandbox), merged.agents or {}
    remote = Path(merged.cache_directory) if merged.cache_directory else places.cache()
    return Config(
        **_as_written(merged),
        places=places,
        roots=tuple(map(Path, merged.roots or ())),
        cache_directory=cache,
        state_directory=state,
        layers=_layers(managed, user, near, merged.policy),
        sandbox=sandbox.level or "any",
        sandbox_limits=sandbox,
        **_of_agents(agents),
        **tool_lists(managed, flags or Settings(), user, agents=agents),
        remote_directory=remote / REMOTE_DIRECTORY,
        repositories=(merged.skills or SkillsSettings()).repositories,
        skills=replace(merged.skills or SkillsSettings(), repositories=()),
        assignees=frozenset({OWNER, *(merged.assignees or ())}),
        audit_checkpoints=Path(merged.audit_checkpoints) if merged.audit_checkpoints else None,
        problems=problems,
    )


_CHANGED = frozenset(
    (
        "roots cache_directory state_directory sandbox agents skills assignees audit_checkpoints"
    ).split()
)
"""Keys that a configuration holds in another form than they are written in."""
_AS_WRITTEN = {*field_names(Settings)} & {*field_names(Config)}


def _as_written(settings: Settings) -> dict[str, Any]:
    """Return what is set and kept as it is; for the others `Config` has the default."""
    found = {name: getattr(settings, name) for name in _AS_WRITTEN - _CHANGED}
    return {name: value for name, value in found.items() if value is not None}


def _layers(
    managed: Settings, user: Settings, near: Settings, policy: str | None
) -> tuple[Layer, ...]:
    """Return the rules that are for all agents, from far to near."""
    every = (
        Layer(name="managed", rules=managed.rules or ()),
        *((policy_layer(policy),) if policy else ()),
        Layer(name="user", rules=user.rules or ()),
        Layer(name="project", rules=near.rules or (), trusted=False),
    )
    return tuple(layer for layer in every if layer.rules)


def _of_agents(agents: Mapping[str, AgentSettings]) -> dict[str, Any]:
    """Return what is set for single agents, as a configuration has it; `default` is always one."""
    layers = {name: Layer(name="agent", rules=agent.rules) for name, agent in agents.items()}
    return {
        "agents": {"default": Layer(name="agent"), **layers},
        "preload": {name: agent.preload for name, agent in agents.items()},
        "skill_rules": {name: agent.skill_rules for name, agent in agents.items()},
    }


def _check_merged(settings: Settings) -> None:
    """Raise ConfigError for what no single file shows."""
    budget = settings.catalog_budget_tokens
    if budget is not None and budget < 0:
        raise ConfigError(
            f"expected a budget of 0 tokens or more, got {budget}", key="catalog_budget_tokens"
        )
    for key in ("tool_count", "tool_list_chars"):
        most = getattr(settings, key)
        if isinstance(most, int) and most < 0:
            raise ConfigError(f'expected 0 or more, or "none", got {most}', key=key)
    check_server_name(settings.server_name)
    secret = secret_variables(
        settings.net or NetSettings(),
        settings.approvals,
        settings.skills,
        settings.search,
        settings.state,
    )
    check_exec_environment(settings.exec_environment or (), None, secret=secret)


def merge(*strongest_first: Settings) -> Settings:
    """Return what is set by any of them, each value by the strongest that sets it."""
    values: dict[str, Any] = {}
    for settings in strongest_first:
        for name in field_names(Settings):
            value = getattr(settings, name)
            if value is not None:
                found = values.setdefault(name, value)
                if isinstance(found, ExtensionSettings):
                    # Each by itself: what is turned off from above stays so.
                    values[name] = found.before(value)
                if name == "sections":
                    values[name] = {**value, **found}
                if name == "sandbox":
                    values[name] = as_table(found).before(as_table(value))
    return Settings(**values)


def _with_published(user: Settings, path: Path) -> Settings:
    """Return the user's settings with the repositories of `config.yaml` after their own."""
    published = published_repositories(path)
    if not published:
        return user
    every = ((user.skills or SkillsSettings()).repositories) + published
    check_repositories(every, path)
    return replace(user, skills=replace(user.skills or SkillsSettings(), repositories=every))


def _cache_of(settings: Settings, places: Locations) -> Path | None:
    if settings.cache is False:
        return None
    return Path(settings.cache_directory) if settings.cache_directory else places.cache()


def _read_project(path: Path, cache: Path | None) -> tuple[Settings, tuple[Diagnostic, ...]]:
    """Return what a trusted project's file sets, and what is wrong with it.

    A fault of the file costs what it sets, and nothing else. Its rules hold if they can be read;
    where they cannot, everything here is asked about, since they may have denied anything.
    """
    try:
        file = _ConfigFile(path, only=project_keys())
        settings = file.settings()
        file.try_examples(cache)
    except ConfigError as error:
        found = Diagnostic(
            code="project-config", severity=Severity.ERROR, message=str(error), path=path
        )
    else:
        return settings, ()
    try:
        file = _ConfigFile(path, only=project_keys(), rules_only=True)
        settings = file.settings()
        file.try_examples(cache)
    except ConfigError:
        reason = f"the rules of this project cannot be read: {found.message}"
        unread = Rule(effect=Effect.ASK, action="*", pattern="*", reason=reason)
        return Settings(rules=(unread,)), (found,)
    return settings, (found,)


class _ConfigFile:
    """One file of the configuration; one that is missing sets nothing."""

    def __init__(
        self,
        path: Path,
        *,
        only: frozenset[str] | None = None,
        rules_only: bool = False,
        is_empty: bool = False,
    ) -> None:
        """Read a file; `only` has the keys that a project may set.

        Whose a project's file is does not matter: it only makes things stricter, and a project may
        be worked on by several people.
        """
        if only is None and not is_empty and (problem := file_problem(path)):
            raise ConfigError(f"the configuration is not used: {problem}", path=path)
        self._path = path
        self._content, self._table = (b"", {}) if is_empty else _read_table(path)
        self._settings = Settings()
        if rules_only:
            self._table = {"rules": self._table.get("rules", [])}
        self._sections: dict[str, object] = {}
        for key in self._table.keys() - (CONFIG_KEYS if only is None else only):
            if only is None:
                # No project sets one: an extension is not judged by what a project says.
                self._take_section(key)
            elif key in CONFIG_KEYS:
                message = f"key `{key}` cannot be set by a project"
                with self._lines():
                    raise ConfigError(message, path=path, key=key)

    def _take_section(self, key: str) -> None:
        """Read a table that belongs to an extension; an unknown key stays, and is refused."""
        found = section_value(key, self._table[key], self._path)
        if found is not None:
            del self._table[key]
            with self._lines():
                self._sections[key] = found()

    def settings(self) -> Settings:
        path = self._path
        with self._lines():
            settings = _settings(self._table, path)
        if self._sections:
            settings = replace(settings, sections=self._sections)
        if settings.roots is not None:
            roots = tuple(str(path.parent / os.path.expanduser(root)) for root in settings.roots)
            settings = replace(settings, roots=roots)
        self._settings = settings
        return settings

    def faults(self) -> Iterator[ConfigError]:
        """Yield what is wrong with each key by itself."""
        for key, value in self._table.items():
            try:
                with self._lines():
                    _settings({key: value}, self._path)
            except ConfigError as error:
                yield error

    @contextmanager
    def _lines(self) -> Iterator[None]:
        """Give an error about this file the line that it is about."""
        try:
            yield
        except ConfigError as error:
            if error.path != self._path:
                raise
            raise with_line(error, self._content.decode("utf-8", "replace")) from error.__cause__

    def try_examples(self, cache: Path | None) -> None:
        """Try the examples of the rules, unless those of the same bytes have held."""
        agents = self._settings.agents or {}
        rules = [*(self._settings.rules or ()), *(r for a in agents.values() for r in a.rules)]
        if not any(rule.match or rule.not_match for rule in rules):
            return
        tried = TriedExamples(cache)
        if tried.holds(self._content):
            return
        with self._lines():
            try_examples(self._table.get("rules"), self._settings.rules or (), self._path)
            for name, agent in agents.items():
                try_examples(self._table["agents"][name].get("rules"), agent.rules, self._path)
        tried.remember(self._content)


def settings_by_source(config: Config) -> dict[str, Settings]:
    """Return what each source of a configuration sets, the strongest first (ConfigError)."""
    places = config.places
    found = {"managed": _ConfigFile(places.managed_file).settings()}
    found["environment"] = from_environment(places.environment)
    if is_trusted(config):
        found["project"] = _read_project(project_of(places.start) / PROJECT_FILE, None)[0]
    user = _ConfigFile(places.user_file).settings()
    return {**found, "user": _with_published(user, places.published_file)}


def faults_of_keys(path: Path) -> tuple[ConfigError, ...]:
    """Return a fault of each key of a managed or user file; none where it cannot be read at all."""
    try:
        file = _ConfigFile(path)
    except ConfigError:
        return ()
    return tuple(file.faults())


def _read_table(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a TOML file and what they say; a missing one is empty."""
    try:
        content = read_regular(path, CONFIG_FILE_MAX)
        return content, toml_table(content)
    except (FileNotFoundError, NotADirectoryError):
        return b"", {}
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except DocumentError as error:
        raise ConfigError(error.reason, path=path, line=error.line) from error


def _settings(table: Mapping[str, Any], path: Path | None) -> Settings:
    refuse_unknown_keys(table, path)
    try:
        written = with_each_pattern(table, path) if table.keys() & RULED else table
        settings = shaped(dict(written), Settings)
    except DecodeError as error:
        raise wrong_value(error, table, path) from error
    except ConfigError as error:
        raise ConfigError(f"wrong value: {error.message}", path=path, key=error.key) from error
    if settings.approvals is not None:
        check_approvals(settings.approvals, path)
    for rules in (settings.rules or (), *(a.rules for a in (settings.agents or {}).values())):
        check_rules(rules, path)
        check_actions(rules, path)
    check_exec_environment(settings.exec_environment or (), path)
    if settings.net is not None:
        check_net(settings.net, path)
    check_remotes(settings.remotes or (), path)
    if settings.skills is not None:
        check_repositories(settings.skills.repositories, path)
    if settings.signer is not None:
        check_signer(settings.signer.password, path)
    if settings.oauth is not None:
        check_oauth(settings.oauth, path)
    return settings


def managed_layers(places: Locations) -> tuple[Layer, ...]:
    """Return the rules of the managed file, and its policy; ConfigError if it cannot be used."""
    settings = _ConfigFile(places.managed_file).settings()
    own = (Layer(name="managed", rules=settings.rules),) if settings.rules else ()
    policy = (policy_layer(settings.policy),) if settings.policy else ()
    return (*own, *policy)


def project_of(start: Path) -> Path:
    """Return the git root of `start`, or `start` itself outside git."""
    return git_root(start.absolute()) or start.absolute()


def profile_of(config: Config) -> Profile:
    """Return the configured profile, with the configured extensions and YAML parser."""
    profile = load_profile(config.profile, config.places.profiles)
    policy = structs.replace(profile.parse_policy, yaml_fast_path=config.yaml_fast_path)
    extensions = config.extensions.over(profile.extensions)
    return structs.replace(profile, parse_policy=policy, extensions=extensions)


def approvals_of(config: Config) -> ApprovalSettings:
    """Return the settings of approvals, with what the profile says where they say nothing."""
    if config.approvals.unattended != "profile":
        return config.approvals
    return structs.replace(config.approvals, unattended=profile_of(config).unattended)


RECENT_NANOSECONDS = 50_000_000
"""A file that was written less than this before it was read may change again under one date: the
clock of a file system has steps of up to 10 ms."""
MISSING = "missing"
"""The first value of the stamp of a file that is not there."""
PROFILES_MAX = 64
"""Files of profiles that are looked at; more are seen by the date of their directory."""


def configured(places: Locations, flags: Settings | None = None) -> Config:
    """Return the configuration for `places`; a trusted project's file is included."""
    before = stamps(places)
    config = load_config(places, flags)
    trusted = is_trusted(config)
    if trusted:
        config = load_config(places, flags, project=project_of(places.start))
    source = ConfigSource(flags=flags, stamps=before, is_trusted=trusted, loaded=config)
    return replace(config, source=source)


def is_trusted(config: Config) -> bool:
    """Whether the project of the start directory is trusted."""
    return TrustStore(config.state_directory).is_trusted(project_of(config.places.start))


def stamps(places: Locations) -> Mapping[Path, Stamp]:
    """Return the stamp of each file that may decide; one written just now is taken as changing."""
    found = {path: stamp(path) for path in _files(places)}
    return {path: () if is_recent(known) else known for path, known in found.items()}


def stamp(path: Path) -> Stamp:
    """Return what changes when a file, its owner, its mode or what a link leads to is another."""
    target = ""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            target = os.readlink(path)
            info = os.stat(path)
    except FileNotFoundError:
        return (MISSING, target)
    except OSError as error:
        return ("unreadable", error.errno or 0)
    return (
        info.st_dev,
        info.st_ino,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_size,
        info.st_mode,
        info.st_uid,
        target,
    )


def is_recent(known: Stamp) -> bool:
    """Whether a file was written, or its mode changed, a moment ago."""
    changed = known[3] if len(known) > 3 else 0
    return isinstance(changed, int) and abs(time.time_ns() - changed) < RECENT_NANOSECONDS


def is_gone_or_empty(known: Stamp) -> bool:
    """Whether there is nothing in a file, as for a moment while an editor saves it."""
    return known[:1] == (MISSING,) or (len(known) > 4 and known[4] == 0)


def _files(places: Locations) -> Iterator[Path]:
    yield places.managed_file
    yield places.user_file
    # Whether the project is trusted or not: trust may come later.
    yield project_of(places.start) / PROJECT_FILE
    yield places.policy_file
    yield places.published_file
    yield places.profiles
    try:
        with os.scandir(places.profiles) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".toml"))
    except OSError:
        return
    for name in names[:PROFILES_MAX]:
        yield places.profiles / name

"""One configuration from its files, the environment and flags; an unknown key is an error.

Strongest first: managed, flags, environment, project (only if trusted, only what cannot loosen),
user, as docs/reference/configuration.md has it. The profile and the project of a place follow from
it. Where it was read from is noted with it, so that a running process sees that a file has changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from skillhouse.approval import OWNER, ApprovalSettings
from skillhouse.floor import (
    ConfigError,
    Diagnostic,
    Locations,
    Severity,
    git_root,
    structs,
)
from skillhouse.floor.structs import field_names, replace
from skillhouse.house.config.bundle_files import (
    BUNDLE,
    BUNDLE_CONFIG,
    TakenBundle,
    taken_bundle,
)
from skillhouse.house.config.config_file import (
    SettingsFile,
    check_exec_environment,
    check_server_name,
    secret_variables,
)
from skillhouse.house.config.config_keys import (
    bundle_keys,
    from_environment,
    project_keys,
)
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
from skillhouse.house.config.rule_tables import policy_layer
from skillhouse.house.config.state_settings import settle_state
from skillhouse.house.trust import TrustStore
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import Profile, load_profile

PROJECT_FILE = "skillhouse.toml"
BUNDLE_FAULT = "bundle-config"
"""The code of what is wrong with the files of the bundle in use."""
REMOTE_DIRECTORY = "remotes"
"""Below the cache directory."""
SWAPS_MAX = 5
"""How often a bundle is read again because another one took its place meanwhile."""


def load_config(
    places: Locations,
    flags: Settings | None = None,
    *,
    project: Path | None = None,
    without: frozenset[Path] = frozenset(),
    kept: Config | None = None,
    is_dry: bool = False,
) -> Config:
    """Return the configuration of `places`, `flags` and, where it is trusted, of a project.

    The files `without` are as if they set nothing; only what looks at faults may ask for that. A
    process with a configuration `kept` goes on with its directories. A dry run leaves no state and
    no cache where there is none.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, a value has the wrong type, or an
            example of a rule does not hold. Of a project's file that is one of `problems`.
    """
    places.check()
    files = (places.managed_file, places.user_file)
    own = [SettingsFile(file, is_empty=file in without) for file in files]
    managed, user = (file.settings() for file in own)
    if places.published_file not in without:
        user = _with_published(user, places.published_file)
    environment = from_environment(places.environment)
    # No project says where the cache is.
    own_values = merge(managed, flags or Settings(), environment, user)
    cache = None if is_dry else _cache_of(own_values, places)
    for file in own:
        file.try_examples(cache)
    read = _read_project(project / PROJECT_FILE, cache) if project else _ReadProject(Settings())
    near = read.settings
    state = Path(own_values.state_directory) if own_values.state_directory else places.state()
    remote = Path(own_values.cache_directory) if own_values.cache_directory else places.cache()
    find = partial(_bundle_of, own_values, remote / REMOTE_DIRECTORY, state, kept)
    bundle, shared, faults = _read_current(find, cache)
    merged = merge(managed, flags or Settings(), environment, near, user, shared)
    _check_merged(merged)
    if merged.state is not None:
        settle_state(merged.state, state, places.environment, is_dry=is_dry)
    sandbox, agents = as_table(merged.sandbox), merged.agents or {}
    return Config(
        **_as_written(merged),
        places=places,
        roots=tuple(map(Path, merged.roots or ())),
        cache_directory=cache,
        state_directory=state,
        layers=_layers(
            managed, user, read, merged.policy, bundle=_bundle_layer(bundle, shared, faults)
        ),
        sandbox=sandbox.level or "any",
        sandbox_limits=sandbox,
        **_of_agents(agents),
        **tool_lists(managed, flags or Settings(), user, agents=agents),
        remote_directory=remote / REMOTE_DIRECTORY,
        repositories=(merged.skills or SkillsSettings()).repositories,
        skills=replace(merged.skills or SkillsSettings(), repositories=()),
        assignees=frozenset({OWNER, *(merged.assignees or ())}),
        audit_checkpoints=Path(merged.audit_checkpoints) if merged.audit_checkpoints else None,
        bundle=bundle,
        problems=(*read.problems, *faults),
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
    managed: Settings, user: Settings, near: _ReadProject, policy: str | None, *, bundle: Layer
) -> tuple[Layer, ...]:
    """Return the rules that are for all agents, from far to near."""
    # INVARIANT: rules of a bundle that may allow are behind all of this machine.
    far, stricter = ((bundle,), ()) if bundle.trusted else ((), (bundle,))
    every = (
        *far,
        Layer(name="managed", rules=managed.rules or ()),
        *((policy_layer(policy),) if policy else ()),
        Layer(name="user", rules=user.rules or ()),
        *stricter,
        Layer(
            name="project",
            rules=near.settings.rules or (),
            trusted=False,
            is_nearest=near.is_unread,
        ),
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


def _bundle_of(
    settings: Settings, remotes: Path, state: Path, kept: Config | None
) -> TakenBundle | None:
    """Return the bundle of the configured source; None without one."""
    skills = settings.skills or SkillsSettings()
    if not skills.source:
        return None
    may_be_used = True
    if settings.registry is not None and settings.registry.sources:
        # Most configurations allow every source.
        from skillhouse.house.config.allowed_sources import is_allowed  # noqa: PLC0415

        may_be_used = is_allowed(settings.registry, skills.source)
    if kept is not None:
        remotes, state = kept.remote_directory, kept.state_directory
    return taken_bundle(skills, remotes, state, is_allowed=may_be_used)


def _read_current(
    find: Callable[[], TakenBundle | None], cache: Path | None
) -> tuple[TakenBundle | None, Settings, tuple[Diagnostic, ...]]:
    """Return the bundle in use with what `_read_bundle` does; another one if that took its place
    while it was read, since what is in use no more is removed."""
    for _ in range(SWAPS_MAX):
        bundle = find()
        shared, faults = _read_bundle(bundle, cache)
        if not faults or bundle is None or bundle.is_current():
            break
    return bundle, shared, faults


def _read_bundle(
    bundle: TakenBundle | None, cache: Path | None
) -> tuple[Settings, tuple[Diagnostic, ...]]:
    """Return what the configuration in a bundle sets, and why it cannot be used.

    What was taken was read once already: where it cannot be now, everything is asked about, since
    it may have denied anything.
    """
    if bundle is None or bundle.rules_are == "none":
        return Settings(), ()
    try:
        contents = bundle.contents()
        return bundle_settings(contents.get(BUNDLE_CONFIG, b""), cache), ()
    except ConfigError as error:
        reason = f"the rules of {bundle.label} cannot be read: {error.message}"
        unread = Rule(effect=Effect.ASK, action="*", pattern="*", reason=reason)
        found = Diagnostic(
            code=BUNDLE_FAULT, severity=Severity.ERROR, message=reason, path=bundle.link
        )
        return Settings(rules=(unread,)), (found,)


def bundle_settings(content: bytes, cache: Path | None) -> Settings:
    """Return what a bundle's configuration sets; ConfigError for more than it may."""
    name = Path(BUNDLE_CONFIG)
    file = SettingsFile(name, only=bundle_keys(), by="a bundle", content=content)
    settings = file.settings()
    file.try_examples(cache)
    _check_merged(settings)
    return settings


def _bundle_layer(
    bundle: TakenBundle | None, shared: Settings, faults: tuple[Diagnostic, ...]
) -> Layer:
    if bundle is None:
        return Layer(name=BUNDLE)
    is_default = bundle.rules_are == "defaults" and not faults
    return Layer(
        name=bundle.label,
        rules=shared.rules or (),
        trusted=is_default,
        is_nearest=bool(faults),
    )


def _cache_of(settings: Settings, places: Locations) -> Path | None:
    if settings.cache is False:
        return None
    return Path(settings.cache_directory) if settings.cache_directory else places.cache()


class _ReadProject(NamedTuple):
    settings: Settings
    problems: tuple[Diagnostic, ...] = ()
    is_unread: bool = False
    """Whether its rules cannot be read."""


def _read_project(path: Path, cache: Path | None) -> _ReadProject:
    """Return what a trusted project's file sets, and what is wrong with it.

    A fault of the file costs what it sets, and nothing else. Its rules hold if they can be read;
    where they cannot, everything here is asked about, since they may have denied anything.
    """
    try:
        file = SettingsFile(path, only=project_keys())
        settings = file.settings()
        file.try_examples(cache)
    except ConfigError as error:
        found = Diagnostic(
            code="project-config", severity=Severity.ERROR, message=str(error), path=path
        )
    else:
        return _ReadProject(settings)
    try:
        file = SettingsFile(path, only=project_keys(), rules_only=True)
        settings = file.settings()
        file.try_examples(cache)
    except ConfigError:
        reason = f"the rules of this project cannot be read: {found.message}"
        unread = Rule(effect=Effect.ASK, action="*", pattern="*", reason=reason)
        return _ReadProject(Settings(rules=(unread,)), (found,), is_unread=True)
    return _ReadProject(settings, (found,))


def settings_by_source(config: Config) -> dict[str, Settings]:
    """Return what each source of a configuration sets, the strongest first (ConfigError)."""
    places = config.places
    found = {"managed": SettingsFile(places.managed_file).settings()}
    found["environment"] = from_environment(places.environment)
    if is_trusted(config):
        found["project"] = _read_project(project_of(places.start) / PROJECT_FILE, None).settings
    user = SettingsFile(places.user_file).settings()
    found["user"] = _with_published(user, places.published_file)
    return {**found, "bundle": _read_bundle(config.bundle, None)[0]}


def managed_layers(places: Locations) -> tuple[Layer, ...]:
    """Return the rules of the managed file, and its policy; ConfigError if it cannot be used."""
    settings = SettingsFile(places.managed_file).settings()
    own = (Layer(name="managed", rules=settings.rules),) if settings.rules else ()
    policy = (policy_layer(settings.policy),) if settings.policy else ()
    return (*own, *policy)


def tier_policy_file(config: Config) -> Path | None:
    """Return the tier policy that holds: this machine's own, or that of its bundle."""
    own = config.places.policy_file
    if own.exists() or own.is_symlink():
        return own
    return None if config.bundle is None else config.bundle.policy_file()


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


def configured(
    places: Locations,
    flags: Settings | None = None,
    *,
    kept: Config | None = None,
    is_dry: bool = False,
) -> Config:
    """Return the configuration for `places`; a trusted project's file is included.

    For `kept` and `is_dry` see `load_config`.
    """
    before = stamps(places)
    config = load_config(places, flags, kept=kept, is_dry=is_dry)
    trusted = is_trusted(config)
    if trusted:
        project = project_of(places.start)
        config = load_config(places, flags, project=project, kept=kept, is_dry=is_dry)
    if config.bundle is not None:
        # As it is seen after reading: where another bundle came meanwhile, it is read again.
        known = stamp(config.bundle.link)
        is_same = config.bundle.is_current() and not is_recent(known)
        before = {**before, config.bundle.link: known if is_same else ()}
    source = ConfigSource(
        flags=flags, stamps=before, is_trusted=trusted, loaded=config, is_dry=is_dry
    )
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

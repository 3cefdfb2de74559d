"""What is wrong with the files of a configuration, and what sets each of its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from skillhouse.audit.redaction import HIDDEN, is_secret_name, without_secrets
from skillhouse.floor import ConfigError, Diagnostic, Severity, StateError, nearest
from skillhouse.floor.structs import replace
from skillhouse.house.config.config_file import faults_of_keys
from skillhouse.house.config.config_files import (
    configured,
    is_trusted,
    load_config,
    merge,
    profile_of,
    project_of,
    settings_by_source,
    tier_policy_file,
)
from skillhouse.house.config.config_keys import CONFIG_KEYS
from skillhouse.tiers import load_tier_policy

if TYPE_CHECKING:
    from skillhouse.floor import Locations
    from skillhouse.house.config.config_values import Config

FAULTS_MAX = 50
"""Keys of one file whose faults are listed."""
FILES_MAX = 8
"""Faults of files and variables that are passed over, one after the other."""


class UsableConfig(NamedTuple):
    """A configuration without the files that cannot be used, and what is wrong with those.

    INVARIANT: nothing is decided or run by it where there are faults, for a file that cannot be
    read may deny anything: only verbs that show faults and rules take one.
    """

    config: Config
    faults: tuple[Diagnostic, ...]


def usable_config(places: Locations) -> UsableConfig:
    """Return what can be used of a configuration, and each fault of its files and of `policy.yml`.

    Raises:
        ConfigError: what is wrong is in no file and no variable, so that it cannot be passed over.
    """
    faults: list[Diagnostic] = []
    config = _passing_over(places, faults)
    faults += config.problems
    try:
        profile_of(config)
    except ConfigError as error:
        faults.append(_fault(error))
        config = replace(config, profile="default")
    file = tier_policy_file(config) or places.policy_file
    policy = load_tier_policy(file, assignees=config.assignees)
    if policy.fault:
        hint = "until it can be used only reads are allowed"
        faults.append(_diagnostic("policy-unusable", policy.fault, file, hint=hint))
    faults += (
        _diagnostic("policy-warning", text, file, severity=Severity.WARNING)
        for text in policy.warnings
    )
    return UsableConfig(config, tuple(faults))


class KeyInUse(NamedTuple):
    """A key of the configuration with the value that is in use."""

    key: str
    value: Any
    """As a file writes it, without secrets; None where nothing sets it, so that the default holds.
    Of rules, those of every source."""
    set_by: tuple[str, ...]
    """The sources that set it, the strongest first."""


def keys_in_use(places: Locations, keys: Sequence[str]) -> tuple[KeyInUse, ...]:
    """Return the values of these keys; ConfigError for an unknown one."""
    for key in keys:
        if key not in CONFIG_KEYS:
            suggestion = next(iter(nearest(key, CONFIG_KEYS)), "")
            raise ConfigError(f"unknown key `{key}`", key=key, suggestion=suggestion)
    sources = settings_by_source(configured(places))
    merged = merge(*sources.values())
    # Rules of all files hold together.
    rules = tuple(rule for one in sources.values() for rule in one.rules or ())
    merged = replace(merged, rules=rules) if rules else merged
    return tuple(
        KeyInUse(
            key=key,
            value=_without_secrets(msgspec.to_builtins(getattr(merged, key))),
            set_by=tuple(name for name, one in sources.items() if getattr(one, key) is not None),
        )
        for key in keys
    )


_PATTERNS = frozenset({"pattern", "match", "not_match"})
"""Keys of a rule, which is shown as it is."""


def _without_secrets(value: Any, key: str = "") -> Any:
    """Return a value without what is a secret by its place: what a server is started with, and what
    an address has besides a host and a path."""
    if isinstance(value, Mapping):
        is_secret = key == "environment"
        return {
            name: HIDDEN if is_secret else _without_secrets(one, name)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        hidden = [_without_secrets(one, key) for one in value]
        if key == "command":
            hidden = [
                HIDDEN
                if before.startswith("-") and is_secret_name(before)
                else without_secrets(one)
                for before, one in zip(("", *value), value, strict=False)
            ]
        return type(value)(hidden)
    is_address = isinstance(value, str) and "://" in value and key not in _PATTERNS
    return without_secrets(value) if is_address else value


def _passing_over(places: Locations, faults: list[Diagnostic]) -> Config:
    try:
        return configured(places)
    except ConfigError:
        pass
    without: frozenset[Path] = frozenset()
    own = (places.managed_file, places.user_file, places.published_file)
    for _ in range(FILES_MAX):
        try:
            config = load_config(places, without=without)
            break
        except ConfigError as error:
            faults.append(_fault(error))
            if error.path is not None and error.path in own:
                without |= {error.path}
                others = faults_of_keys(error.path)[:FAULTS_MAX]
                faults += (_fault(one) for one in others if str(one) != str(error))
            elif error.key in places.environment:
                kept = {key: value for key, value in places.environment.items() if key != error.key}
                places = replace(places, environment=kept)
            else:
                raise
    else:
        raise ConfigError(f"more than {FILES_MAX} faults in the configuration")
    try:
        trusted = is_trusted(config)
    except StateError:
        return config
    if trusted:
        project = project_of(places.start)
        config = load_config(places, project=project, without=without)
    return config


def _fault(error: ConfigError) -> Diagnostic:
    return _diagnostic("config-unusable", str(error), error.path, line=error.line, field=error.key)


def _diagnostic(
    code: str,
    message: str,
    path: Path | None,
    *,
    severity: Severity = Severity.ERROR,
    line: int | None = None,
    field: str = "",
    hint: str = "",
) -> Diagnostic:
    return Diagnostic(
        code=code,
        severity=severity,
        message=message,
        path=path,
        line=line,
        field=field,
        hint=hint,
    )

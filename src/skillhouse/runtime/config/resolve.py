"""From the files of a place to the configuration and the profile of its house."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from skillhouse.discovery import git_root
from skillhouse.floor import ConfigError, nearest
from skillhouse.runtime.config import Config, Locations, Settings, load_config
from skillhouse.runtime.trust import TrustStore
from skillhouse.skill import Profile, load_profile


def configured(places: Locations, flags: Settings | None = None) -> Config:
    """Return the configuration for `places`; a trusted project's file is included."""
    config = load_config(places, flags)
    project = project_of(places.start)
    if TrustStore(config.state_directory).is_trusted(project):
        config = load_config(places, flags, project=project)
    return config


def project_of(start: Path) -> Path:
    """Return the git root of `start`, or `start` itself outside git."""
    return git_root(start.absolute()) or start.absolute()


def profile_of(config: Config) -> Profile:
    """Return the configured profile, with the configured extensions and YAML parser."""
    profile = load_profile(config.profile, config.places.profiles)
    policy = dataclasses.replace(profile.parse_policy, yaml_fast_path=config.yaml_fast_path)
    extensions = config.extensions.over(profile.extensions)
    return dataclasses.replace(profile, parse_policy=policy, extensions=extensions)


def overridden(config: Config, overrides: dict[str, Any]) -> Config:
    """Return a configuration with some values replaced.

    Raises:
        ConfigError: there is no such value.
    """
    if "roots" in overrides:
        overrides = {**overrides, "roots": tuple(Path(root) for root in overrides["roots"])}
    try:
        return dataclasses.replace(config, **overrides)
    except TypeError as error:
        raise _unknown_override(overrides, error) from None


def _unknown_override(overrides: dict[str, Any], error: TypeError) -> Exception:
    known = [field.name for field in dataclasses.fields(Config)]
    for key in overrides:
        if key not in known:
            suggestion = next(iter(nearest(key, known)), "")
            return ConfigError(f"unknown setting `{key}`", key=key, suggestion=suggestion)
    return error

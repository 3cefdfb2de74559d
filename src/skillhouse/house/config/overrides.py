"""The values of a configuration that replace those of its files.

The variables `SKILLHOUSE_*` set some; a program sets any as keywords of `Skillhouse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.floor import ConfigError, is_utf8, nearest, structs
from skillhouse.house.config.config_keys import variables
from skillhouse.house.config.config_values import Config, Settings
from skillhouse.house.config.state_settings import StateSettings

if TYPE_CHECKING:
    from skillhouse.house.config.config_keywords import ConfigFields

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
        key, known = variable.removeprefix(ENVIRONMENT_PREFIX).lower(), variables()
        if key not in known:
            names = [ENVIRONMENT_PREFIX + name.upper() for name in known]
            suggestion = next(iter(nearest(variable, names)), "")
            raise ConfigError(
                f"unknown environment variable `{variable}`", key=variable, suggestion=suggestion
            )
        found[key] = _READERS[known[key]](variable, value)
    if environment.get(STATE_VARIABLE):
        listens = f"env:{LISTEN_VARIABLE}" if environment.get(LISTEN_VARIABLE) else ""
        found["state"] = StateSettings(url=f"env:{STATE_VARIABLE}", listen_url=listens)
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


_READERS: Mapping[type, Callable[[str, str], Any]] = {str: _text, int: _number, bool: _switch}
STATE_VARIABLE, LISTEN_VARIABLE = "SKILLHOUSE_STATE_URL", "SKILLHOUSE_STATE_LISTEN_URL"
"""Addresses with their passwords, which a container gets as secrets; they count as `[state]`."""
_OTHER_VARIABLES = frozenset(
    "SKILLHOUSE_SKILLS_DIR SKILLHOUSE_CHAT_MODEL SKILLHOUSE_CHAT_BASE_URL "
    f"SKILLHOUSE_ID_TOKEN {STATE_VARIABLE} {LISTEN_VARIABLE}".split()
)


def overridden(config: Config, overrides: ConfigFields) -> Config:
    """Return a configuration with some values replaced; ConfigError for an unknown one."""
    known = structs.field_names(Config)
    for key in overrides:
        if key not in known:
            suggestion = next(iter(nearest(key, known)), "")
            raise ConfigError(f"unknown setting `{key}`", key=key, suggestion=suggestion)
    changes: dict[str, Any] = {**overrides}
    if "roots" in changes:
        changes["roots"] = tuple(map(Path, changes["roots"]))
    return structs.replace(config, **changes)

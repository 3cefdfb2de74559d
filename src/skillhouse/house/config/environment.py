"""What the variables `SKILLHOUSE_*` set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillhouse.floor import ConfigError, is_utf8, nearest
from skillhouse.house.config.config_values import Settings

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

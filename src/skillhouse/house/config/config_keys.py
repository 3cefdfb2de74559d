"""The keys of a configuration file: the fields of `Settings`, and of the tables that it names.

What may be written, in a file, as a variable `SKILLHOUSE_…` or as a keyword of `Skillhouse`,
follows from their types. Hints are resolved when they are asked for: a start asks for those of the
tables that its files have. A key that is not ours may be the table of an extension.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from skillhouse.floor import ConfigError, is_utf8, nearest
from skillhouse.floor.faults import is_of_interrupt
from skillhouse.floor.structs import field_names, is_struct, replace
from skillhouse.house.config.config_values import (
    BY_BUNDLE,
    BY_PROJECT,
    BY_VARIABLE,
    Config,
    Settings,
)
from skillhouse.house.config.state_settings import StateSettings
from skillhouse.permission import Rule

if TYPE_CHECKING:
    from skillhouse.house.config.config_keywords import ConfigFields

CONFIG_KEYS = frozenset(field_names(Settings)) - {"sections"}
"""The keys of a configuration file; others may be sections of extensions."""
RULE_KEYS = frozenset({"patterns", *field_names(Rule)})
_LABELS = {"": "", "agents": "agent "}
ENVIRONMENT_PREFIX = "SKILLHOUSE_"


@functools.cache
def hints_of(shape: type) -> Mapping[str, Any]:
    """Return the type of each key of a table, with what is noted beside it."""
    found = get_type_hints(shape, include_extras=True)
    return {name: found[name] for name in field_names(shape) if name != "sections"}


def parts_of(hint: Any) -> Iterator[Any]:
    """Return the types that a hint is made of, without None, unions and collections."""
    if get_origin(hint) is Literal or not get_args(hint):
        if hint not in (types.NoneType, ...):
            yield hint
        return
    # Marks are no types.
    for inner in get_args(hint)[: 1 if get_origin(hint) is Annotated else None]:
        yield from parts_of(inner)


def table_in(hint: Any) -> type | None:
    """Return the shape of the table, or of each table, that a key takes."""
    return next((part for part in parts_of(hint) if is_struct(part)), None)


@functools.cache
def noted(mark: str) -> Mapping[str, Any]:
    """Return the keys that have a mark, with their types."""
    return {
        key: hint
        for key, hint in hints_of(Settings).items()
        if mark in getattr(hint, "__metadata__", ())
    }


def project_keys() -> frozenset[str]:
    """Return what a project may set: rules are an untrusted layer, a budget loosens nothing."""
    return frozenset(noted(BY_PROJECT))


def bundle_keys() -> frozenset[str]:
    """Return what a signed bundle may set: none of them loosens what this machine says, names a
    place of it or a secret, or changes whom it believes."""
    return frozenset(noted(BY_BUNDLE))


def variables() -> Mapping[str, type]:
    """Return the keys that a variable of the environment sets, and whether it is a text, a number
    or a switch."""
    return {key: next(parts_of(hint)) for key, hint in noted(BY_VARIABLE).items()}


def values_of(keys: Sequence[str]) -> tuple[str, ...]:
    """Return what a key with a closed list of values takes; nothing for any other.

    >>> values_of(["rules", "effect"]), values_of(["approvals", "unattended"])
    (('allow', 'ask', 'deny'), ('pending', 'deny'))
    """
    shape: type | None = Settings
    hint: Any = None
    for key in keys:
        if shape is None or key not in hints_of(shape):
            # The name of an agent or of a skill.
            continue
        hint = hints_of(shape)[key]
        shape = table_in(hint)
    for part in parts_of(hint):
        if isinstance(part, type) and issubclass(part, enum.Enum):
            return tuple(str(one.value) for one in part)
        if get_origin(part) is Literal:
            # "profile" is what leaving the key out means.
            return tuple(value for value in get_args(part) if value != "profile")
    return ()


def refuse_unknown_keys(
    table: Mapping[str, Any], path: Path | None, shape: type = Settings, name: str = ""
) -> None:
    """Raise ConfigError for a key that a table, or one in it, does not have."""
    known = CONFIG_KEYS if shape is Settings else frozenset(field_names(shape))
    label = _LABELS.get(name, f"{name} ")
    if shape is Rule:
        known, label = RULE_KEYS, "rule "
    _refuse_unknown(table, known, f"{label}key", path)
    for key, value in table.items():
        if not isinstance(value, list | Mapping):
            continue
        hint = hints_of(shape).get(key)
        inner = table_in(hint)
        if inner is None:
            continue
        found = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping) and has_names(hint):
            found = list(value.values())
        for one in found:
            if isinstance(one, Mapping):
                refuse_unknown_keys(one, path, inner, f"{name}.{key}".removeprefix("."))


def has_names(hint: Any) -> bool:
    """Whether a key has a table of tables, by names of the user's own."""
    is_mapping = get_origin(hint) is Mapping and is_struct(get_args(hint)[1])
    return is_mapping or any(map(has_names, get_args(hint)))


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


def section_value(key: str, table: Any, path: Path | None) -> Callable[[], object] | None:
    """Return what reads the table of an unknown key; None where no extension has such a section.

    What it returns raises ConfigError for a table that cannot be used.
    """
    # Only an unknown key has extensions looked for.
    from skillhouse.extension import load_extensions  # noqa: PLC0415

    found = load_extensions().sections().get(key)
    if found is None:
        return None
    extension, section = found

    def read() -> object:
        if not isinstance(table, Mapping):
            raise ConfigError(f"expected a table in `{key}`", path=path, key=key)
        try:
            return section.parse(dict(table))
        except ConfigError as error:
            message = error.message
            raise ConfigError(message, path=path, key=error.key or key) from error
        except Exception as error:
            if is_of_interrupt(error):
                raise KeyboardInterrupt from error
            message = f"the extension `{extension.name}` cannot read its table `{key}`"
            fault = f"{message}: {type(error).__name__}"
            raise ConfigError(fault, path=path, key=key) from error

    return read


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
    known = field_names(Config)
    for key in overrides:
        if key not in known:
            suggestion = next(iter(nearest(key, known)), "")
            raise ConfigError(f"unknown setting `{key}`", key=key, suggestion=suggestion)
    changes: dict[str, Any] = {**overrides}
    if "roots" in changes:
        changes["roots"] = tuple(map(Path, changes["roots"]))
    return replace(config, **changes)

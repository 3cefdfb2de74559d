"""Variables that are there at an installation and not when what was installed runs.

Clients and systemd start hooks, servers and units with an environment of their own. Where the
address of the state is in a variable of a terminal alone, such a program would look for another
state, in which no stop holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skillhouse.floor import ConfigError
from skillhouse.house.config.config_keys import (
    ENVIRONMENT_PREFIX,
    LISTEN_VARIABLE,
    STATE_VARIABLE,
    variables,
)
from skillhouse.house.config.state_settings import has_password

if TYPE_CHECKING:
    from skillhouse.house.config.config_values import Config

_SPEED = frozenset({"cache", "cache_directory", "catalog_budget_tokens", "yaml_fast_path"})
"""Keys of variables that decide nothing about permissions."""
SECRET_VARIABLES = frozenset({"SKILLHOUSE_ID_TOKEN"})
"""Those that no installation keeps."""


def deciding_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ours that change what is decided, but no address with a password.

    >>> deciding_variables({"SKILLHOUSE_PROFILE": "codex", "SKILLHOUSE_CACHE": "0", "HOME": "/"})
    {'SKILLHOUSE_PROFILE': 'codex'}
    """
    names = {ENVIRONMENT_PREFIX + key.upper() for key in variables() if key not in _SPEED}
    names.add("SKILLHOUSE_SKILLS_DIR")
    names |= {STATE_VARIABLE, LISTEN_VARIABLE}
    return {
        name: value
        for name in sorted(names)
        if (value := environment.get(name)) and not _is_secret(name, value)
    }


def is_plain_address(value: str) -> bool:
    """Whether an address, of a state or a model, may be written down where others read it.

    >>> is_plain_address("postgresql://host/db"), is_plain_address("postgresql://me:x@host/db")
    (True, False)
    """
    try:
        urlsplit(value)
    except ValueError:
        return False
    return not has_password(value)


def carried_by_hooks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return our variables that a hook is started with: all but secrets."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
        and name not in SECRET_VARIABLES
        and not _is_secret(name, value)
    }


def _is_secret(name: str, value: str) -> bool:
    return name.endswith("_URL") and not is_plain_address(value)


def refuse_lost_address(config: Config, carried: Collection[str], *, what: str) -> None:
    """Raise ConfigError where the state's address is in a variable that will not be there.

    Args:
        config: The configuration as it is now.
        carried: Names of the variables that are there later, too.
        what: What is installed, for the message.
    """
    for key in ("url", "listen_url"):
        place = str(getattr(config.state, key))
        name = place.removeprefix("env:")
        if place != name and name not in carried:
            raise ConfigError(
                f"{what} would not know where the state is: its address is in the variable "
                f"`{name}` of this terminal. Put it into a file that only you can read (chmod "
                f'600), and `{key} = "file:PATH"` into `[state]` of `{config.places.user_file}`',
                path=config.places.user_file,
                key=f"state.{key}",
            )

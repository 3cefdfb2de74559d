"""Reads the tables of the configuration file that belong to extensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from skillhouse.floor import ConfigError
from skillhouse.floor.faults import is_of_interrupt


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

"""The text of a client's file, in whichever format it is: read, changed in one place, compared."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from skillhouse.clients.registration import jsonc, toml_text
from skillhouse.clients.registration.clients import ClientConfig
from skillhouse.clients.registration.jsonc import NotEditableError


def parsed(config: ClientConfig, text: str) -> dict[str, Any]:
    """Return what a text says, if the client itself can read it.

    Raises:
        NotEditableError: it cannot.
    """
    if config.format == "toml":
        return toml_text.parse(text)
    document = jsonc.parse(text)
    if document.comments and not config.comments:
        raise NotEditableError(f"{config.client} reads no file with comments, and there are some")
    if document.has_trailing_commas and not config.trailing_commas:
        raise NotEditableError(f"{config.client} reads no file with a comma behind the last value")
    value: dict[str, Any] = document.value
    return value


def with_entry(config: ClientConfig, text: str, name: str, entry: dict[str, Any]) -> str:
    """Return a text with an entry more."""
    if config.format == "toml":
        return toml_text.with_entry(text, config.table, name, entry)
    changed = jsonc.with_entry(text, config.table, name, entry)
    return changed if changed.endswith("\n") or text.strip() else f"{changed}\n"


def without_entry(config: ClientConfig, text: str, name: str, *, with_table: bool = False) -> str:
    """Return a text without an entry."""
    if config.format == "toml":
        return toml_text.without_entry(text, config.table, name)
    return jsonc.without_entry(text, config.table, name, with_table=with_table)


def snippet_of(config: ClientConfig, name: str, entry: dict[str, Any]) -> str:
    """Return an entry alone, to be pasted."""
    if config.format == "toml":
        return toml_text.rendered(config.table, name, entry)
    return json.dumps({config.table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


def difference(before: str, after: str, label: str) -> tuple[str, ...]:
    """Return the lines of a unified diff."""
    old, new = before.splitlines(), after.splitlines()
    return tuple(difflib.unified_diff(old, new, label, label, lineterm="", n=2))


def with_values(config: ClientConfig, text: str, name: str, values: Mapping[str, Any]) -> str:
    """Return a text with these values in an entry; the entry's others stay."""
    write = toml_text.with_values if config.format == "toml" else jsonc.with_values
    return write(text, config.table, name, values)

"""The arguments of a call as a person writes them: NAME=VALUE words, or a JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillhouse.frontends.cli.options import UsageError

Schema = Mapping[str, Any]


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object of `text`, or of the file that it names as `@FILE`."""
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"expected JSON after --args: {error}") from error
    if not isinstance(value, dict):
        raise UsageError('expected a JSON object after --args, such as {"path": "README.md"}')
    return value


def parse_words(words: Sequence[str], schema_of: Callable[[], Schema]) -> dict[str, Any]:
    """Return the arguments that `NAME=VALUE` words give, each as the tool's schema has it.

    A value is text where the schema takes text; elsewhere it is JSON, and text if it is none.

    >>> parse_words(["n=3", "name=3"], lambda: {"properties": {"name": {"type": "string"}}})
    {'n': 3, 'name': '3'}
    """
    found: dict[str, Any] = {}
    properties = schema_of().get("properties", {}) if words else {}
    for word in words:
        name, is_given, value = word.partition("=")
        if not is_given or not name:
            raise UsageError(
                f"expected NAME=VALUE, got `{word}`: try path=README.md, or --args JSON"
            )
        if name in found:
            raise UsageError(f"argument `{name}` is given twice")
        found[name] = value if _takes_text(properties.get(name)) else _json_or_text(value)
    return found


def _takes_text(schema: object) -> bool:
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text

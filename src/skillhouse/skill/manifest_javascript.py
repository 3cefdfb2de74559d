"""package.json with its `owliabot` field, as the design of executable skills publishes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from skillhouse.skill.manifest_fields import Keys, RawManifest, mapping_at
from skillhouse.skill.source import FileRefusedError

FIELD = "owliabot"
"""The key that makes a package a skill (S002-24)."""

_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()


def read_javascript(text: str) -> RawManifest | None:
    """Take a package.json apart; None when it does not say that it is a skill.

    Raises:
        RefusedError: it is not JSON, a key is there twice, or a field has no shape to read.
    """
    try:
        table = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise FileRefusedError("manifest-syntax", f"not JSON: {error.msg}", error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise FileRefusedError("manifest-syntax", f"not JSON: {error}") from error
    if not isinstance(table, dict):
        raise FileRefusedError("manifest-syntax", "expected a JSON object", 1)
    if FIELD not in table:
        return None
    author = table.get("author")
    if isinstance(author, dict):
        # The standard's long form; what a person is called is all that is carried along.
        author = author.get("name")
    written = RawManifest(
        language="javascript",
        package={**table, "author": author},
        package_keys=(),
        own={},
        own_keys=(FIELD,),
        dependencies=(),
        line_of=lambda keys: line_at(text, keys),
    )
    return written._replace(
        own=mapping_at(table, FIELD, (), written),
        dependencies=_dependencies(mapping_at(table, "dependencies", (), written)),
    )


def _dependencies(table: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}@{wanted}" for name, wanted in sorted(table.items()))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        # Two readers would disagree on which one counts.
        raise ValueError(f"the key {twice!r} is there twice in one object")
    return table


def _no_constant(name: str) -> None:
    raise ValueError(f"`{name}` is no JSON")


def line_at(text: str, keys: Keys) -> int:
    """Return the line at which the value at `keys` begins, or the deepest one that is there.

    >>> line_at('{"a": [1,\\n  {"b": 2}]}', ("a", "1", "b"))
    2
    """
    at = _past_blanks(text, 0)
    for key in keys:
        found = _child(text, at, key)
        if found is None:
            break
        at = found
    return text.count("\n", 0, at) + 1


def _child(text: str, at: int, key: str) -> int | None:
    """Return where the value under `key` begins in the object or list at `at`; text is JSON."""
    opening, place = text[at], 0
    if opening not in "{[":
        return None
    at = _past_blanks(text, at + 1)
    while text[at] not in "}]":
        name = str(place)
        if opening == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = _past_blanks(text, _past_blanks(text, at) + 1)
        if name == key:
            return at
        at = _past_blanks(text, _DECODER.raw_decode(text, at)[1])
        place += 1
        if text[at] == ",":
            at = _past_blanks(text, at + 1)
    return None


def _past_blanks(text: str, at: int) -> int:
    while text[at] in _BLANKS:
        at += 1
    return at

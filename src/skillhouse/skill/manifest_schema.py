"""Judges the JSON Schema of a tool's arguments before anything is checked against it.

A schema comes from a skill and later runs inside our own process for every call. So what could
reach the network, never end, or take time out of proportion is refused when it is read:

- a `$ref` to anything but a place in the same schema, and all that moves what a `$ref` means
  (`$id`, `$anchor`, `$dynamicRef`, …);
- a `$ref` that leads back to itself, and schemas that grow beyond `UNFOLDED_MAX` when every
  `$ref` is followed: `allOf` of two references to a schema like itself takes 2ⁿ steps;
- `unevaluatedProperties` and `unevaluatedItems`, which evaluate their neighbours again;
- patterns with look-around or back-references, which only a backtracking engine can match, long
  ones, and ones that compile to much;
- more than `SCHEMA_MAX` bytes or `SCHEMA_DEPTH_MAX` levels, other dialects, hidden characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import jsonschema_rs

from skillhouse.skill.hidden import find_hidden

SCHEMA_MAX = 65_536
"""Bytes of one schema as JSON."""
SCHEMA_DEPTH_MAX = 32
"""Values nested in each other."""
UNFOLDED_MAX = 10_000
"""Subschemas when every `$ref` is replaced by what it names."""
UNFOLDED_DEPTH_MAX = 64
"""Subschemas nested in each other when every `$ref` is replaced."""
PATTERN_MAX = 1_000
"""Characters of a regular expression."""
PATTERN_COMPILED_MAX = 1_048_576
"""Bytes of a compiled regular expression."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REFUSED = frozenset(
    "$id $anchor $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor $vocabulary "
    "unevaluatedProperties unevaluatedItems".split()
)
_ONE = frozenset(
    "additionalProperties contains contentSchema else if items not propertyNames then".split()
)
_LISTS = frozenset("allOf anyOf oneOf prefixItems".split())
_MAPS = frozenset(
    "$defs definitions dependentSchemas patternProperties properties dependencies".split()
)

_NO_REGEX = ' is not a "regex"'

Keys = tuple[str, ...]


class SchemaFinding(NamedTuple):
    keys: Keys
    message: str


class _RefusedSchemaError(Exception):
    def __init__(self, keys: Keys, message: str) -> None:
        super().__init__(message)
        self.finding = SchemaFinding(keys, message)


def schema_finding(schema: object) -> SchemaFinding | None:
    """Return why a tool may not have this schema; None when it may.

    >>> schema_finding({"type": "object", "$ref": "https://example.org/coin.json"}).keys
    ('$ref',)
    """
    try:
        _check_text(schema)
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise _RefusedSchemaError((), 'expected a JSON Schema with "type": "object"')
        dialect = schema.get("$schema", DIALECT)
        if dialect not in (DIALECT, DIALECT + "#"):
            raise _RefusedSchemaError(
                ("$schema",), f"expected JSON Schema 2020-12, got {dialect!r}"
            )
        _Unfolding(schema).check()
        _compile(schema)
    except _RefusedSchemaError as refusal:
        return refusal.finding
    return None


def _check_text(schema: object) -> None:
    """Refuse what is no JSON, too large or too deep, or hides characters."""
    if _too_deep(schema):
        raise _RefusedSchemaError((), f"expected at most {SCHEMA_DEPTH_MAX} levels")
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        raise _RefusedSchemaError((), f"expected values of JSON: {error}") from error
    if size > SCHEMA_MAX:
        raise _RefusedSchemaError((), f"expected at most {SCHEMA_MAX} bytes, got {size}")
    # `dumps` writes control characters as escapes, so what is found here was meant to hide.
    hidden = find_hidden(text)
    if hidden is not None:
        raise _RefusedSchemaError((), f"hidden U+{ord(text[hidden]):04X} in the schema")


def _too_deep(schema: object) -> bool:
    level: list[object] = [schema]
    for _ in range(SCHEMA_DEPTH_MAX):
        level = [
            item
            for value in level
            for item in (
                value.values() if isinstance(value, dict) else value
                if isinstance(value, list) else ()
            )
        ]  # fmt: skip
        if not level:
            return False
    return True


def _compile(schema: Mapping[str, Any]) -> None:
    """Refuse what is no valid schema, or has a pattern without a bound on its time."""
    try:
        jsonschema_rs.Draft202012Validator(
            dict(schema),
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=PATTERN_COMPILED_MAX, dfa_size_limit=PATTERN_COMPILED_MAX
            ),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        keys = tuple(str(key) for key in getattr(error, "instance_path", ()))
        message = str(getattr(error, "message", error)).partition("\n")[0]
        if message.endswith(_NO_REGEX):
            message = (
                "expected a short regular expression without look-around and back-references, "
                f"got {message.removesuffix(_NO_REGEX)}"
            )
        raise _RefusedSchemaError(keys, message) from error


class _Unfolding:
    """Counts the subschemas of a schema with every `$ref` followed."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._sizes: dict[str, int] = {}
        """Of what a `$ref` names, so that each is walked once however often it is named."""
        self._depths: dict[str, int] = {}
        self._open: set[str] = set()

    def check(self) -> None:
        """Refuse references that leave, turn in a circle, or multiply."""
        self._measure(self._root, (), 0)

    def _measure(self, schema: Any, keys: Keys, depth: int) -> tuple[int, int]:
        """Return how many subschemas there are and how deep they are nested."""
        if not isinstance(schema, dict):
            return 1, 1
        if depth > UNFOLDED_DEPTH_MAX:
            raise _RefusedSchemaError(
                keys, f"expected at most {UNFOLDED_DEPTH_MAX} levels with each $ref"
            )
        size, deepest = 1, 0
        for key, child, where in _subschemas(schema, keys):
            if key == "$ref":
                more, below = self._follow(child, where, depth)
            else:
                more, below = self._measure(child, where, depth + 1)
            size, deepest = size + more, max(deepest, below)
            if size > UNFOLDED_MAX or depth + deepest > UNFOLDED_DEPTH_MAX:
                raise _RefusedSchemaError(
                    where, f"expected at most {UNFOLDED_MAX} subschemas with each $ref"
                )
        return size, deepest + 1

    def _follow(self, ref: Any, keys: Keys, depth: int) -> tuple[int, int]:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise _RefusedSchemaError(
                keys, f"expected a $ref into the same schema (`#/…`), got {ref!r}"
            )
        if ref in self._open or ref == "#":
            raise _RefusedSchemaError(keys, f"a $ref that leads back to itself: {ref!r}")
        if ref not in self._sizes:
            self._open.add(ref)
            target = _pointed(self._root, ref, keys)
            self._sizes[ref], self._depths[ref] = self._measure(target, keys, depth + 1)
            self._open.discard(ref)
        return self._sizes[ref], self._depths[ref]


def _subschemas(schema: Mapping[str, Any], keys: Keys) -> Iterator[tuple[str, Any, Keys]]:
    """Yield (keyword, subschema or reference, place) of each schema directly in this one."""
    for key, value in schema.items():
        where = (*keys, key)
        if key in _REFUSED:
            raise _RefusedSchemaError(where, f"`{key}` is not taken in a tool's schema")
        if key == "pattern" and isinstance(value, str):
            _check_pattern(value, where)
        if key in _ONE or key == "$ref":
            yield key, value, where
        elif key in _LISTS and isinstance(value, list):
            for place, item in enumerate(value):
                yield key, item, (*where, str(place))
        elif key in _MAPS and isinstance(value, dict):
            for name, item in value.items():
                if key == "patternProperties":
                    _check_pattern(name, where)
                yield key, item, (*where, name)


def _check_pattern(pattern: str, keys: Keys) -> None:
    if len(pattern) > PATTERN_MAX:
        raise _RefusedSchemaError(
            keys, f"expected a pattern of at most {PATTERN_MAX} characters, got {len(pattern)}"
        )


def _pointed(root: Any, ref: str, keys: Keys) -> Any:
    value = root
    for part in ref.removeprefix("#/").split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise _RefusedSchemaError(keys, f"nothing is at {ref!r}")
    return value

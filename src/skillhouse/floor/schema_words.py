"""JSON Schemas, and what does not fit one, in words for a person or a model.

A schema may be of a skill or of another server, so any shape of one gives some words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from skillhouse.floor.names import nearest

GOT_MAX = 80
"""Characters of a value, or of a name, that a fault shows."""
VALUES_MAX = 20
"""Allowed values that are named; of more it is said how many there are."""
DEPTH_MAX = 4
"""Schemas in schemas that are put into words."""

Schema = Mapping[str, Any]


class SchemaFault(Protocol):
    """What a validator of JSON Schema finds."""

    @property
    def instance(self) -> Any: ...
    @property
    def instance_path(self) -> Sequence[str | int]: ...
    @property
    def schema_path(self) -> Sequence[str | int]: ...


class FaultWords(NamedTuple):
    """A fault in words, for sentences about arguments and about bodies of requests."""

    kind: Literal["missing", "unknown", "wrong"]
    path: tuple[str, ...]
    """Members and places that lead to what is wrong, that which is missing or unknown included."""
    text: str
    """What was expected and what came; of an unknown member what there is."""

    @property
    def place(self) -> str:
        """The path as one writes it; empty for the whole."""
        return safe(".".join(self.path)[:GOT_MAX])


def fault_words(fault: SchemaFault, schema: Schema) -> FaultWords:
    """Return what is wrong with a value that does not fit `schema`."""
    path = tuple(str(part) for part in fault.instance_path)
    keyword = str(fault.schema_path[-1]) if fault.schema_path else ""
    wanted, got = _found(schema, fault.schema_path[:-1]), fault.instance
    is_closed = fault.schema_path[-2:-1] == ["properties"]
    if not isinstance(wanted, Mapping) or (is_closed and wanted.get(keyword) is False):
        return FaultWords("wrong", path, f"nothing fits there, got `{said(got)}`")
    known = wanted.get("properties", {})
    if keyword == "required" and isinstance(got, Mapping):
        missing = next((name for name in wanted["required"] if name not in got), "")
        text = f"expected {in_words(known.get(missing, {}))}"
        return FaultWords("missing", (*path, str(missing)), text)
    if keyword == "additionalProperties" and isinstance(got, Mapping):
        more = next((name for name in got if name not in known), "")
        close = nearest(more[:GOT_MAX], known)
        hint = f"known are {', '.join(known)}" if known else "none is known there"
        text = f"did you mean `{close[0]}`" if close else hint
        return FaultWords("unknown", (*path, more), text)
    expected = in_words(wanted)
    if keyword not in _SAID:
        expected += _more(keyword, wanted.get(keyword))
    return FaultWords("wrong", path, f"expected {expected}, got `{said(got)}`")


def decoding_words(text: str) -> tuple[str, str]:
    """Return where msgspec found what has another type, and what it says of it in our words.

    >>> decoding_words("Expected `int`, got `str` - at `$.of[0].n`")
    ('of[0].n', 'expected a whole number, got text')
    >>> decoding_words("Invalid enum value 'x'")
    ('', "invalid enum value 'x'")
    """
    what, _, place = text.partition(" - at `$")
    for name, words in _TYPES.items():
        what = what.replace(f"`{name}`", words)
    return place.removesuffix("`").lstrip("."), safe(what[:1].lower() + what[1:])


_TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "`true` or `false`",
    "array": "a list",
    "object": "an object",
}


def said(value: object) -> str:
    """Return a value as a fault shows it: cut, and on one line."""
    return safe((value if isinstance(value, str) else _json(value))[:GOT_MAX])


def safe(text: str) -> str:
    r"""Return a text on one line; what cannot be seen is an escape.

    >>> safe("a\n\x1b[31mb")
    'a \\x1b[31mb'
    """
    found = " ".join(text.split())
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in found
    )


def in_words(schema: Any, depth: int = 0) -> str:
    """Return what fits a schema.

    >>> in_words({"type": "integer", "minimum": 1, "maximum": 200})
    'a whole number (1 to 200)'
    >>> in_words({"type": "boolean"}), in_words({"type": "string", "maxLength": 9})
    ('`true` or `false`', 'text (0 to 9 characters)')
    >>> in_words({"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3})
    'a list (0 to 3 items), each `a`, `b` or `c`'
    >>> in_words({"type": "number", "minimum": 0}), in_words({"oneOf": [{"const": 1}, {}]})
    ('a number (at least 0)', '`1`, or a JSON value')
    """
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        return _ANYTHING
    if "const" in schema:
        return f"`{_json(schema['const'])}`"
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return _alternatives(schema["enum"], "or")
    for several in ("anyOf", "oneOf"):
        if isinstance(schema.get(several), list):
            shapes = schema[several][:VALUES_MAX]
            return ", or ".join(dict.fromkeys(in_words(one, depth + 1) for one in shapes))
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = (in_words({**schema, "type": one}, depth + 1) for one in kind)
        return ", or ".join(dict.fromkeys(kinds))
    return _of_kind(kind, schema, depth)


def _of_kind(kind: object, schema: Schema, depth: int) -> str:
    if kind == "boolean":
        return "`true` or `false`"
    if kind in ("integer", "number"):
        noun = "a whole number" if kind == "integer" else "a number"
        return f"{noun}{_bounds(schema, 'minimum', 'maximum')}"
    if kind == "array":
        counted = _bounds(schema, "minItems", "maxItems", " items")
        each = in_words(schema.get("items", {}), depth + 1)
        return f"a list{counted}" if each == _ANYTHING else f"a list{counted}, each {each}"
    if kind == "object":
        known = schema.get("properties")
        return f"an object with {_alternatives(known, 'and')}" if known else "an object"
    if kind != "string":
        return "`null`" if kind == "null" else _ANYTHING
    wanted = f"text{_bounds(schema, 'minLength', 'maxLength', ' characters')}"
    for word, of in (("format", " of the form"), ("pattern", " that fits")):
        if schema.get(word):
            wanted += f"{of} `{said(schema[word])}`"
    return wanted


_ANYTHING = "a JSON value"
_SAID = frozenset(
    "const enum anyOf oneOf type minimum maximum minItems maxItems minLength maxLength pattern "
    "format".split()
)
"""The words of JSON Schema that `in_words` says."""
_WORDS = {
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
    "minProperties": "at least so many members:",
    "maxProperties": "at most so many members:",
}


def _more(keyword: str, value: object) -> str:
    """Return what a word of JSON Schema demands that `in_words` does not say."""
    if keyword == "uniqueItems":
        return ", none of them twice"
    if keyword in _WORDS:
        return f", {_WORDS[keyword]} `{said(value)}`"
    return f" that fits `{safe(keyword)}` of the schema"


def _bounds(schema: Schema, least: str, most: str, unit: str = "") -> str:
    """Return the bounds in brackets, or nothing where there is none."""
    if most in schema:
        return f" ({schema.get(least, 0)} to {schema[most]}{unit})"
    if least not in schema or (unit and not schema[least]):
        return ""
    return " (not empty)" if unit and schema[least] == 1 else f" (at least {schema[least]}{unit})"


def _alternatives(values: Iterable[Any], word: str) -> str:
    found = [f"`{said(one)}`" for one in values]
    if len(found) > VALUES_MAX:
        return f"{', '.join(found[:VALUES_MAX])} {word} {len(found) - VALUES_MAX} more"
    *others, last = found
    return f"{', '.join(others)} {word} {last}" if others else last


def _found(schema: Any, path: Sequence[str | int]) -> Any:
    """Return the schema at a path, references followed; None where it leads nowhere."""
    found = schema
    try:
        for part in path:
            found = found[part]
            if part == "$ref":
                found = _referred(schema, found)
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return found


def _referred(schema: Any, reference: str) -> Any:
    """Return what a reference names in the schema itself (RFC 6901)."""
    if reference[:1] != "#":
        raise KeyError(reference)
    found = schema
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found[int(name)] if isinstance(found, list) else found[name]
    return found


def _json(value: object) -> str:
    return json.dumps(value)

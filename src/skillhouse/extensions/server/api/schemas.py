"""JSON Schemas of the values that the API answers with, which are those of `--json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from skillhouse.floor import nearest
from skillhouse.frontends.answers.json_form import MOMENTS, JsonAnswer, moment_of
from skillhouse.frontends.presentation.text import one_line

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
SHORT: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
EFFECT: Schema = {"enum": ["allow", "ask", "deny"]}
GOT_MAX = 80
"""Characters of a value that a fault shows."""


def maybe(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a value that may be null.

    >>> maybe({"type": "string"})
    {'type': ['string', 'null']}
    """
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [dict(schema), {"type": "null"}]}


def array(items: Mapping[str, Any]) -> Schema:
    return {"type": "array", "items": dict(items)}


def record(
    required: Mapping[str, Mapping[str, Any]],
    *,
    optional: Mapping[str, Mapping[str, Any]] | None = None,
    closed: bool = False,
) -> Schema:
    """Return the schema of an object; a closed one has no other members, as requests do."""
    found: Schema = {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }
    return {**found, "additionalProperties": False} if closed else found


def listing(
    name: str,
    items: Mapping[str, Any] | type,
    more: type[JsonAnswer] | None = None,
    /,
    *,
    total: Mapping[str, Any] = COUNT,
) -> Schema:
    """Return the schema of a list as `--json` writes one, with the members of `more`."""
    shape = items if isinstance(items, Mapping) else ref(items)
    found = record({"list": {"const": name}, "total": total, name: array(shape)})
    return found if more is None else {**found, MORE: ref(more)}


def in_words(schema: Mapping[str, Any]) -> str:
    """Return what fits the schema of a parameter or of a member of a body, for a person.

    >>> in_words({"type": "integer", "minimum": 1, "maximum": 200})
    'a whole number (1 to 200)'
    >>> in_words({"type": "boolean"}), in_words({"type": "string", "maxLength": 9})
    ('`true` or `false`', 'text (0 to 9 characters)')
    >>> in_words({"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3})
    'a list (0 to 3 items), each `a`, `b` or `c`'
    """
    if "const" in schema:
        return f"`{_json(schema['const'])}`"
    if "enum" in schema:
        return _alternatives(schema["enum"], "or")
    if "anyOf" in schema:
        return ", or ".join(dict.fromkeys(in_words(one) for one in schema["anyOf"]))
    kind, signs = schema.get("type"), schema.get("pattern", "")
    if isinstance(kind, list):
        return ", or ".join(in_words({**schema, "type": one}) for one in kind)
    if kind == "boolean":
        return "`true` or `false`"
    if kind == "integer":
        return f"a whole number{_bounds(schema, 'minimum', 'maximum')}"
    if kind == "array":
        counted = _bounds(schema, "minItems", "maxItems", " items")
        return f"a list{counted}, each {in_words(schema['items'])}"
    if kind == "object":
        known = schema.get("properties")
        return f"an object with {_alternatives(known, 'and')}" if known else "an object"
    if kind != "string":
        return {"null": "`null`", "number": "a number"}.get(kind or "", "a JSON value")
    wanted = f"text{_bounds(schema, 'minLength', 'maxLength', ' characters')}"
    return f"{wanted} that fits `{signs}`" if signs else wanted


def _bounds(schema: Mapping[str, Any], least: str, most: str, unit: str = "") -> str:
    """Return the bounds in brackets, or nothing where there is no upper one."""
    return f" ({schema.get(least, 0)} to {schema[most]}{unit})" if most in schema else ""


def _alternatives(values: Iterable[Any], word: str) -> str:
    *others, last = (f"`{one}`" for one in values)
    return f"{', '.join(others)} {word} {last}" if others else last


def _json(value: object) -> str:
    return json.dumps(value)


def fault_in_words(fault: ValidationError, schema: Mapping[str, Any]) -> str:
    """Return what is wrong with a body, for a person: where, what fits there, and what it got."""
    path = [str(part) for part in fault.instance_path]
    keyword = fault.schema_path[-1]
    # What the keyword belongs to says all that fits there.
    wanted: Any = schema
    for part in fault.schema_path[:-1]:
        wanted = wanted[part]
    got: Any = fault.instance
    if keyword == "required":
        missing = next(name for name in wanted["required"] if name not in got)
        member = ".".join((*path, missing))
        return f"the body lacks `{member}`: expected {in_words(wanted['properties'][missing])}"
    known = wanted.get("properties", {})
    if keyword == "additionalProperties":
        more = next(name for name in got if name not in known)
        close = nearest(more, known)
        hint = f"did you mean `{close[0]}`" if close else f"known are {', '.join(known)}"
        member = one_line(".".join((*path, more))[:GOT_MAX])
        return f"the body has an unknown member `{member}`; {hint}"
    where = f"`{one_line('.'.join(path)[:GOT_MAX])}`" if path else "the body"
    said = one_line((got if isinstance(got, str) else _json(got))[:GOT_MAX])
    return f"{where}: expected {in_words(wanted)}, got `{said}`"


def whole(schema: Mapping[str, Any], answers: Mapping[str, Schema]) -> Schema:
    """Return the schema of a list with the members of what is said besides, one of `answers`."""
    found = dict(schema)
    if MORE not in found:
        return found
    own = answers[found.pop(MORE)["$ref"].rpartition("/")[2]]
    found["required"] = [*found["required"], *own["required"]]
    found["properties"] = {**found["properties"], **own["properties"]}
    return found


def ref(answer: type) -> Schema:
    """Return a reference to the schema of an answer, which is in the document from then on.

    >>> from skillhouse.frontends.answers.json_form import HintAnswer
    >>> ref(HintAnswer)
    {'$ref': '#/components/schemas/Hint'}
    """
    _ANSWERS[answer.__name__] = answer
    return {"$ref": _TEMPLATE.format(name=answer.__name__.removesuffix("Answer"))}


def either(*answers: type) -> Schema:
    """Return the schema of an answer that is one of several."""
    return {"anyOf": [ref(one) for one in answers]}


MORE = "more"
"""In the schema of a list until `whole`: making one takes a start of the service no time."""
_TEMPLATE = "#/components/schemas/{name}"
_ANSWERS: dict[str, type] = {}
"""The answers that routes name, by their names; those in them follow."""


def components() -> dict[str, Schema]:
    """Return the schemas of all answers, made from their types."""
    return _schemas(_ANSWERS.values())


def _schemas(answers: Iterable[type]) -> dict[str, Schema]:
    _, found = msgspec.json.schema_components(
        answers, schema_hook=lambda _: {"title": "any"}, ref_template=_TEMPLATE
    )
    flat = {name: kind.flat_members for name, kind in _kinds(JsonAnswer).items()}
    made = {name.removesuffix("Answer"): _answered(_flattened(name, found, flat)) for name in found}
    return dict(sorted(made.items()))


def _kinds(kind: type[JsonAnswer]) -> dict[str, type[JsonAnswer]]:
    found = {kind.__name__: kind}
    for one in kind.__subclasses__():
        found |= _kinds(one)
    return found


def _flattened(
    name: str, schemas: Mapping[str, Schema], flat: Mapping[str, tuple[str, ...]]
) -> Schema:
    """Return a schema with the members of its flat members in their places."""
    schema = schemas[name]
    if not flat.get(name):
        return schema
    properties: Schema = {}
    required: list[str] = []
    for member, value in schema["properties"].items():
        is_required = member in schema["required"]
        if member in flat[name]:
            below = _flattened(value["$ref"].rpartition("/")[2], schemas, flat)
            properties |= below["properties"]
            required += below["required"] if is_required else []
        else:
            properties[member] = value
            required += [member] if is_required else []
    return {**schema, "properties": properties, "required": required}


def _with_moments(members: Schema) -> Schema:
    """Return the members with a time of RFC 3339 after each that is one in milliseconds."""
    found: Schema = {}
    for name, one in members.items():
        found[name] = one
        if name in MOMENTS:
            new = moment_of(name)
            found[name] = {**one, "deprecated": True, "description": f"`{new}` says the same."}
            found[new] = {"type": ["string", "null"], "format": "date-time"}
    return found


def _answered(schema: Any) -> Any:
    """Return a schema as what we write fits it: what has a default is written too."""
    if isinstance(schema, list):
        return [_answered(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _answered(one) for key, one in schema.items() if key not in ("title", "default")}
    if "$ref" in found:
        found["$ref"] = found["$ref"].removesuffix("Answer")
    members = schema.get("properties", {})
    if members:
        always = {*schema["required"], *(name for name in members if "default" in members[name])}
        # A member may have the name of a word of JSON Schema.
        written = _with_moments({name: _answered(one) for name, one in members.items()})
        always |= {moment_of(name) for name in MOMENTS & always}
        found |= {"required": [name for name in written if name in always]}
        found |= {"properties": written}
    return found

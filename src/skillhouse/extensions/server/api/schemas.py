"""JSON Schemas of the values that the API answers with, which are those of `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from skillhouse.answers.json_form import MOMENTS, SPARSE, JsonAnswer, moment_of
from skillhouse.floor.schema_words import SchemaFault, fault_words

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
SHORT: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
EFFECT: Schema = {"enum": ["allow", "ask", "deny"]}


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


def fault_in_words(fault: SchemaFault, schema: Mapping[str, Any]) -> str:
    """Return what is wrong with a body, for a person: where, what fits there, and what it got."""
    found = fault_words(fault, schema)
    if found.kind == "missing":
        return f"the body lacks `{found.place}`: {found.text}"
    if found.kind == "unknown":
        return f"the body has an unknown member `{found.place}`; {found.text}"
    return f"`{found.place}`: {found.text}" if found.path else f"the body: {found.text}"


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

    >>> from skillhouse.answers.json_form import HintAnswer
    >>> ref(HintAnswer)
    {'$ref': '#/components/schemas/Hint'}
    """
    _ANSWERS[answer.__name__] = answer
    return {"$ref": _TEMPLATE.format(name=answer.__name__.removesuffix("Answer"))}


def either(*answers: type) -> Schema:
    """Return the schema of an answer that is one of several."""
    return {"anyOf": [ref(one) for one in answers]}


def named(name: str, schema: Mapping[str, Any]) -> Schema:
    """Return a reference to a schema that is in the document under that name from then on."""
    _NAMED[name] = schema
    return {"$ref": _TEMPLATE.format(name=name)}


def typed(answer: type[JsonAnswer], member: str, *shapes: Mapping[str, Any]) -> None:
    """Have the document say what a member is: null, or one of these, which its type cannot say."""
    shape = {"anyOf": [*map(dict, shapes), {"type": "null"}]}
    _MEMBERS[answer.__name__.removesuffix("Answer"), member] = shape


MORE = "more"
"""In the schema of a list until `whole`: making one takes a start of the service no time."""
_TEMPLATE = "#/components/schemas/{name}"
_ANSWERS: dict[str, type] = {}
"""The answers that routes name, by their names; those in them follow."""
_NAMED: dict[str, Mapping[str, Any]] = {}
_MEMBERS: dict[tuple[str, str], Schema] = {}


def components() -> dict[str, Schema]:
    """Return the schemas of all answers, made from their types, and those that have a name."""
    found = _schemas(_ANSWERS.values())
    for (answer, member), shape in _MEMBERS.items():
        found[answer]["properties"][member] = shape
    found |= {name: whole(schema, found) for name, schema in _NAMED.items()}
    return dict(sorted(found.items()))


def _schemas(answers: Iterable[type]) -> dict[str, Schema]:
    _, found = msgspec.json.schema_components(
        answers, schema_hook=lambda _: {"title": "any"}, ref_template=_TEMPLATE
    )
    flat = {name: kind.flat_members for name, kind in _kinds(JsonAnswer).items()}
    made = {name.removesuffix("Answer"): _answered(_flattened(name, found, flat)) for name in found}
    for name, left in SPARSE.items():
        if name in made:
            made[name]["required"] = [one for one in made[name]["required"] if one not in left]
    return made


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
    if found.get("enum") == [True]:
        # Generators know no enum of anything but texts and numbers.
        found = {"const": True}
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

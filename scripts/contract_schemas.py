"""What an OpenAPI document promises of each answer, whatever way its schemas are written.

`{"type": ["string", "null"]}` and `anyOf` of both are one promise, so is a schema in place and
a reference to it; titles, descriptions and defaults promise nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "maxItems", "contentMediaType")
DEPTH_MAX = 12
"""Of members; a schema may hold itself."""


def promises(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each operation the members of its good answer, by their paths.

    `PATH!` says that a member is always there, `PATH=WORD` a word that it may be.

    >>> member = {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "A"}
    >>> answer = {"type": "object", "properties": {"a": member}, "required": ["a"]}
    >>> good = {"200": {"content": {"application/json": {"schema": answer}}}}
    >>> promises({"paths": {"/a": {"get": {"responses": good}}}})
    {'GET /a 200': {'.a!': 'yes', '.a': 'null or string'}}
    """
    return {
        f"{method.upper()} {path} {status}": dict(_members(content["schema"], document, ""))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for status, response in operation["responses"].items()
        if status.startswith("2")
        for content in response.get("content", {}).values()
    }


def _members(
    schema: Mapping[str, Any], document: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    """Yield what a schema and those below it promise."""
    parts = list(_parts(schema, document))
    kind = " or ".join(sorted({_kind(part) for part in parts}))
    if path or kind != "object":
        yield path, kind
    if path.count(".") >= DEPTH_MAX:
        return
    objects = [part for part in parts if part.get("type") == "object"]
    for name in objects[0].get("required", ()) if objects else ():
        if all(name in part.get("required", ()) for part in objects):
            yield f"{path}.{name}!", "yes"
    for part in parts:
        for word in part.get("enum", ()):
            yield f"{path}={word}", "yes"
        for name, below in part.get("properties", {}).items():
            yield from _members(below, document, f"{path}.{name}")
        if isinstance(part.get("additionalProperties"), Mapping):
            yield from _members(part["additionalProperties"], document, f"{path}.*")
        if part.get("items"):
            yield from _members(part["items"], document, f"{path}[]")


def _parts(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the alternatives of a schema, each of one type, without references."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _parts(document["components"]["schemas"][name], document)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _parts(one, document)
    elif isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield {"type": kind} if kind == "null" else {**schema, "type": kind}
    elif "const" in schema:
        yield {"enum": [schema["const"]]}
    else:
        yield schema


def _kind(part: Mapping[str, Any]) -> str:
    if "enum" in part:
        # Words to choose from are texts all the same.
        return "string" if all(isinstance(word, str) for word in part["enum"]) else "one of"
    bounds = [f"{name} {part[name]}" for name in _BOUNDS if name in part]
    closed = ["closed"] if part.get("additionalProperties") is False else []
    return ", ".join((part.get("type", "any"), *bounds, *closed))

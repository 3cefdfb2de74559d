"""What a skill's tool returned, as the value that its manifest's `returns` describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from skillhouse.floor.paths import sendable
from skillhouse.floor.schema_words import fault_words
from skillhouse.tools.result_files import is_cut


def returned_value(wrapped: Mapping[str, Any]) -> Any:
    """Return what a result says besides whether it went well.

    >>> returned_value({"success": True, "data": {"a": 1}}), returned_value({"success": 1, "b": 2})
    ({'a': 1}, {'b': 2})
    """
    return wrapped.get("data", {k: v for k, v in wrapped.items() if k != "success"})


def misfit(schema: Mapping[str, Any], value: object) -> str:
    """Return why a value does not fit a schema that was judged with its manifest; "" if it does."""
    import jsonschema_rs  # noqa: PLC0415 - only tools that declare `returns` need it.

    if not isinstance(value, Mapping):
        return f"expected an object, got {type(value).__name__}"
    for fault in jsonschema_rs.Draft202012Validator(dict(schema)).iter_errors(dict(value)):
        found = fault_words(fault, schema)
        words = {"missing": "it lacks it: ", "unknown": "it may not be there: "}.get(found.kind, "")
        return f"`{found.place}`: {words}{found.text}" if found.path else f"{words}{found.text}"
    return ""


def structured_content(
    schema: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the value for a program, and why there is none, of a result as it was delivered.

    What was delivered has no secrets and a bounded size, so it may fit less than what was returned.
    """
    if is_cut(data):
        return {}, "it is too long for a structured result"
    value = returned_value(data)
    if why := misfit(schema, value):
        return {}, f"without secrets and hidden characters it does not fit `returns`: {why}"
    # A surrogate by itself is no text of JSON.
    plain: dict[str, Any] = json.loads(sendable(json.dumps(value, ensure_ascii=False)))
    return plain, ""

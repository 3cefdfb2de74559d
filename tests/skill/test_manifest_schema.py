"""Tests of skill/manifest_schema.py: which JSON Schemas a tool may have."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.skill.manifest_schema import (
    PATTERN_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_MAX,
    UNFOLDED_MAX,
    schema_finding,
)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def of(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


TAKEN: dict[str, dict[str, Any]] = {
    "empty": of(),
    "dialect": of(**{"$schema": "https://json-schema.org/draft/2020-12/schema"}),
    "pattern": of(properties={"a": {"pattern": "^0x[0-9a-fA-F]{40}$"}}),
    "same schema": of(
        **{"$defs": {"a/b": {"type": "string"}}}, properties={"a": {"$ref": "#/$defs/a~1b"}}
    ),
    "names like keywords": of(properties={"$ref": {}, "$id": {}, "pattern": {"type": "string"}}),
    "values like keywords": of(properties={"a": {"default": {"$ref": "https://x"}}}),
    "deep": nested(SCHEMA_DEPTH_MAX // 2 - 1),
    "unknown words": of(**{"x-order": 1}),
}

REFUSED: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "no object": ({"type": "string"}, (), "expected a JSON Schema with"),
    "a list": ([], (), "expected a JSON Schema with"),
    "nothing": (None, (), "expected a JSON Schema with"),
    "always true": (True, (), "expected a JSON Schema with"),
    "no type of JSON": (of(default={1, 2}), (), "expected values of JSON"),
    "not a number": (of(default=float("nan")), (), "expected values of JSON"),
    "half a character": (of(title="\ud800"), (), "expected values of JSON"),
    "large": (of(title="x" * SCHEMA_MAX), (), f"expected at most {SCHEMA_MAX} bytes"),
    "deep": (nested(SCHEMA_DEPTH_MAX), (), f"expected at most {SCHEMA_DEPTH_MAX} levels"),
    "hidden": (of(properties={"a": {"description": "x\u202ey"}}), (), "hidden U+202E"),
    "older dialect": (
        of(**{"$schema": "http://json-schema.org/draft-07/schema#"}),
        ("$schema",),
        "expected JSON Schema 2020-12",
    ),
    "wrong type": (
        of(properties={"a": {"type": "strin"}}),
        ("properties", "a", "type"),
        '"strin" is not valid',
    ),
    "pattern with look-around": (
        of(properties={"a": {"pattern": "^(?=.*x)"}}),
        ("properties", "a", "pattern"),
        "expected a short regular expression without look-around",
    ),
    "back-reference": (
        of(patternProperties={r"(a)\1": {}}),
        ("patternProperties", r"(a)\1"),
        "expected a short regular expression without look-around",
    ),
    "long pattern": (
        of(properties={"a": {"pattern": "a" * (PATTERN_MAX + 1)}}),
        ("properties", "a", "pattern"),
        f"expected a pattern of at most {PATTERN_MAX}",
    ),
    "pattern that compiles to much": (
        of(properties={"a": {"pattern": "((a{1000}){1000}){9}"}}),
        ("properties", "a", "pattern"),
        "expected a short regular expression",
    ),
    "elsewhere": (
        of(properties={"a": {"$ref": "https://example.org/a.json"}}),
        ("properties", "a", "$ref"),
        "expected a $ref into the same schema",
    ),
    "a file": (
        of(allOf=[{"$ref": "file:///etc/passwd"}]),
        ("allOf", "0", "$ref"),
        "expected a $ref",
    ),
    "nowhere": (of(**{"$ref": "#/$defs/a"}), ("$ref",), "nothing is at"),
    "itself": (of(**{"$ref": "#"}), ("$ref",), "a $ref that leads back to itself"),
    "each other": (
        of(
            properties={"a": {"$ref": "#/$defs/b"}},
            **{
                "$defs": {
                    "b": {"items": {"$ref": "#/$defs/c"}},
                    "c": {"not": {"$ref": "#/$defs/b"}},
                }
            },
        ),
        ("properties", "a", "$ref", "items", "$ref", "not", "$ref"),
        "a $ref that leads back to itself",
    ),
    "another base": (of(**{"$id": "https://x/y"}), ("$id",), "`$id` is not taken"),
    "dynamic": (of(**{"$dynamicRef": "#a"}), ("$dynamicRef",), "`$dynamicRef` is not taken"),
    "twice": (of(unevaluatedProperties=False), ("unevaluatedProperties",), "is not taken"),
    "wide": (
        of(
            **{"$defs": {"a": {"anyOf": [{}] * 200}}},
            oneOf=[{"$ref": "#/$defs/a"}] * 60,
        ),
        ("oneOf", "48"),
        f"expected at most {UNFOLDED_MAX} subschemas",
    ),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_plain_schema_is_taken(case: str) -> None:
    assert schema_finding(TAKEN[case]) is None
    assert jsonschema_rs.Draft202012Validator(TAKEN[case]).is_valid({})


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_is_refused_with_its_place_and_why(case: str) -> None:
    schema, keys, message = REFUSED[case]
    found = schema_finding(schema)
    assert found is not None
    assert (found.keys, message in found.message) == (keys, True), found


WORDS = st.sampled_from(
    "type properties items allOf anyOf not $ref $defs pattern enum required const if then".split()
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["object", "#", "#/$defs/a", "(", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(schema=st.dictionaries(WORDS, VALUES, max_size=5), instance=VALUES)
def test_whatever_is_taken_can_be_used(schema: dict[str, Any], instance: object) -> None:
    schema["type"] = "object"
    if schema_finding(schema) is None:
        jsonschema_rs.Draft202012Validator(schema).is_valid(instance)

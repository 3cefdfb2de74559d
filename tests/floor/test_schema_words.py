"""What does not fit a schema is said in words: what was expected, what came, what is allowed."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from skillhouse.floor.schema_words import GOT_MAX, FaultWords, fault_words, in_words

HIDDEN = "a\u202eb\n\x1b[31mc"


def words_of(schema: Any, value: Any) -> FaultWords:
    fault = next(jsonschema_rs.Draft202012Validator(schema).iter_errors(value))
    return fault_words(fault, schema)


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"type": "integer"}, "x", "expected a whole number, got `x`"),
        ({"type": "number", "minimum": 2}, 1, "expected a number (at least 2), got `1`"),
        ({"type": ["string", "null"]}, 3, "expected text, or `null`, got `3`"),
        ({"enum": ["once", 1, None]}, "no", "expected `once`, `1` or `null`, got `no`"),
        ({"enum": list(range(25))}, 30, f"{', '.join(f'`{n}`' for n in range(20))} or 5 more"),
        ({"const": True}, False, "expected `true`, got `false`"),
        ({"type": "string", "format": "date"}, 3, "expected text of the form `date`, got `3`"),
        ({"type": "string", "minLength": 2}, "a", "expected text (at least 2 characters), got `a`"),
        ({"type": "string", "pattern": "^a$"}, "b", "expected text that fits `^a$`, got `b`"),
        ({"type": "array", "minItems": 0}, "a", "expected a list, got `a`"),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            ["a", "a"],
            "expected a list, each text, none of them twice, got",
        ),
        (
            {"type": "integer", "exclusiveMinimum": 1},
            1,
            "expected a whole number, more than `1`, got `1`",
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            1,
            "expected text, or a list, each text, got `1`",
        ),
        ({"not": {"type": "string"}}, "a", "expected a JSON value that fits `not` of the schema"),
        (False, 1, "nothing fits there, got `1`"),
        ({"type": "string"}, {"a": HIDDEN}, "expected text, got"),
        (
            {"enum": [HIDDEN]},
            HIDDEN[1:],
            "expected `a\\u202eb \\x1b[31mc`, got `\\u202eb \\x1b[31mc`",
        ),
    ],
)
def test_a_fault_says_what_was_expected_and_what_came(schema: Any, value: Any, text: str) -> None:
    found = words_of({"type": "object", "properties": {"n": schema}}, {"n": value})
    assert (found.kind, found.path) == ("wrong", ("n",))
    assert text in found.text
    assert found.text.isprintable()


def test_what_is_missing_or_not_known_is_named() -> None:
    inner = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    schema = {"type": "object", "properties": {"of": {**inner, "additionalProperties": False}}}
    found = words_of(schema, {"of": {}})
    assert (found.kind, found.place, found.text) == ("missing", "of.path", "expected text")
    found = words_of(schema, {"of": {"path": "a", "pth": "a"}})
    assert (found.kind, found.place, found.text) == ("unknown", "of.pth", "did you mean `path`")


def test_references_are_followed_and_what_leads_nowhere_has_words() -> None:
    schema = {
        "$defs": {"a/b": {"enum": ["x", "y"]}},
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/a~1b"}},
    }
    assert words_of(schema, {"n": "z"}).text == "expected `x` or `y`, got `z`"
    fault = next(jsonschema_rs.Draft202012Validator(schema).iter_errors({"n": "z"}))
    assert fault_words(fault, {"type": "object"}).text == "nothing fits there, got `z`"


def test_a_schema_of_a_stranger_gives_short_words() -> None:
    deep: Any = {"type": "string"}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    assert len(in_words(deep)) < 100
    assert len(words_of({"type": "integer"}, "x" * 10_000).text) < 2 * GOT_MAX
    assert len(in_words({"enum": ["x" * 10_000] * 1_000})) < 30 * GOT_MAX

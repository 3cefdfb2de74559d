"""The document says what the routes answer: one table makes both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator
from tests.extensions.server.api.place import API, client_of, make_house

from skillhouse.extensions.server.api.openapi import statuses_of
from skillhouse.extensions.server.api.route_table import API_PATH, EVENT_STREAM, JSON, Endpoint
from skillhouse.extensions.server.api.routes import ENDPOINTS, document

pytestmark = pytest.mark.slow

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document()))


def resolved(schema: Any) -> Any:
    return {**schema, "components": DOCUMENT["components"]}


def operation(one: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][API_PATH + one.path][one.method.lower()]
    return found


def test_each_route_is_in_the_document_once() -> None:
    written = [
        (path, method.upper()) for path, methods in DOCUMENT["paths"].items() for method in methods
    ]
    assert sorted(written) == sorted((API_PATH + one.path, one.method) for one in ENDPOINTS)
    names = [one.name for one in ENDPOINTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: one.name)
def test_the_examples_of_a_route_fit_its_schemas(one: Endpoint) -> None:
    found = operation(one)
    assert found["summary"].endswith(".")
    if one.body is not None:
        Draft202012Validator(resolved(one.body.schema)).validate(one.body.example)
    for each in found["parameters"]:
        assert each["description"], each["name"]
        if "example" in each:
            Draft202012Validator(resolved(each["schema"])).validate(each["example"])
        assert "example" in each or each["name"] in ("cursor", "last-event-id"), each["name"]
    assert set(map(str, statuses_of(one))) <= set(found["responses"])
    for response in found["responses"].values():
        for media, content in response.get("content", {}).items():
            assert "example" in content, one.name
            if media == JSON or "problem" in media:
                Draft202012Validator(resolved(content["schema"])).validate(content["example"])


def test_the_document_is_served_and_every_reference_leads_somewhere(tmp_path: Path) -> None:
    served = client_of(make_house(tmp_path)).get(f"{API}/openapi.json")
    assert served.json() == DOCUMENT
    text = json.dumps(DOCUMENT)
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize(
    "one",
    [
        one
        for one in ENDPOINTS
        if one.method == "GET" and not one.names and one.media != EVENT_STREAM
    ],
    ids=lambda one: one.name,
)
def test_what_a_reading_route_answers_fits_its_schema(one: Endpoint, tmp_path: Path) -> None:
    query = {each.name: each.example for each in one.query if each.required}
    answer = client_of(make_house(tmp_path)).get(API + one.path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == one.media
    if one.media == JSON:
        Draft202012Validator(resolved(one.answer)).validate(answer.json())

"""The document says what the routes answer: one table makes both."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema_rs import Draft202012Validator
from starlette.testclient import TestClient
from tests.extensions.server.api.place import API, TOKEN, client_of, make_house, token_of

import skillhouse
from skillhouse.answers.errors import class_code
from skillhouse.extensions.server.api.openapi import openapi_document, statuses_of
from skillhouse.extensions.server.api.route_table import API_PATH, EVENT_STREAM, JSON, Endpoint
from skillhouse.extensions.server.api.routes import ENDPOINTS
from skillhouse.extensions.server.api.schemas import components, whole
from skillhouse.floor import AmbiguousSkillError, ConfigError, StateError
from skillhouse.registry import RepositoryError

if TYPE_CHECKING:
    from httpx2 import Response

pytestmark = pytest.mark.slow

DOCUMENT: dict[str, Any] = json.loads(json.dumps(openapi_document(ENDPOINTS)))


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


UNTYPED = {
    "Approval.content": "the call that is asked about, which may be one of any tool",
    "AuditRecord.arguments": "the arguments of any tool",
    "AuditRecord.detail": "what a kind of call adds; a log has that of earlier versions too",
    "ListedRecord.arguments": "the arguments of any tool",
    "ListedRecord.detail": "as that of `AuditRecord`",
    "CallResult.data": "structured content of any tool",
    "Draft.fields": "the frontmatter of any skill",
    "Result.data": "structured content of any tool",
    "ShownSkill.frontmatter": "the frontmatter of any skill",
    "Tool.parameters": "a JSON Schema",
    "showDocument.paths": "an OpenAPI document",
}
"""What of the answers has no shape of its own, and why."""


def untyped(schema: Any, place: str) -> Iterator[str]:
    """Yield the places in a schema that take any object, any list or any value."""
    if "$ref" in schema:
        return
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    values = schema.get("additionalProperties")
    is_open = not isinstance(values, dict) or list(untyped(values, "")) != []
    if (
        not set(schema) - {"description", "deprecated"}
        or ("object" in kinds and not schema.get("properties") and is_open)
        or ("array" in kinds and "items" not in schema and "prefixItems" not in schema)
    ):
        yield place
    for name, one in schema.get("properties", {}).items():
        yield from untyped(one, f"{place}.{name}")
    for key in ("items", "contentSchema"):
        if key in schema:
            yield from untyped(schema[key], place)
    for key in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(key, ()):
            yield from untyped(one, place)


def test_what_has_no_shape_in_the_document_is_known() -> None:
    """A program gets a class for each answer, and not a bag of members."""
    found = set()
    for name, schema in DOCUMENT["components"]["schemas"].items():
        found |= set(untyped(schema, name))
    for one in ENDPOINTS:
        for status, response in operation(one)["responses"].items():
            for content in response.get("content", {}).values() if status < "300" else ():
                found |= set(untyped(content["schema"], one.name))
    assert found == set(UNTYPED)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": ["object", "null"]},
        {"type": "array"},
        {"type": "object", "additionalProperties": {"type": "object"}},
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
        {"type": "array", "items": {}},
        {"type": "string", "contentSchema": {"type": "array"}},
    ],
)
def test_an_answer_without_a_shape_is_found(schema: Any) -> None:
    assert set(untyped({"type": "object", "properties": {"a": schema}}, "x")) == {"x.a"}


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
        Draft202012Validator(resolved(whole(one.answer, components()))).validate(answer.json())


CLASS_CODES = frozenset(
    map(class_code, (AmbiguousSkillError, ConfigError, RepositoryError, StateError))
)


def test_the_example_of_each_error_has_a_code_of_the_service() -> None:
    """Programs compare codes, so an example with one that is never sent misleads."""
    source = "\n".join(file.read_text() for file in Path(skillhouse.__file__).parent.rglob("*.py"))
    for one in ENDPOINTS:
        for status, response in operation(one)["responses"].items():
            if int(status) < 400:
                continue
            example = response["content"]["application/problem+json"]["example"]
            code = example["code"]
            assert f'"{code}"' in source or code in CLASS_CODES, code
            assert example["detail"][0].islower() or example["detail"][0] == "`", example


NEEDS = {
    "createSkill": (409, "skill-exists"),
    "updateSkill": (412, "changed"),
    "restoreSkill": (404, "not-deleted"),
    "changeRule": (412, "changed"),
    "removeRule": (412, "changed"),
    "showApproval": (404, "unknown"),
    "answerApproval": (404, "unknown"),
    "revokeGrant": (404, "unknown-grant"),
    "showRecord": (404, "unknown-record"),
    "showInstalled": (404, "not-installed"),
    "applyFix": (404, "unknown-fix"),
    "applyFixes": (404, "unknown-fix"),
    "applyExports": (409, "plan-changed"),
    "showPackage": (404, "not-configured"),
    "uninstall": (404, "not-installed"),
    "pin": (404, "not-installed"),
    "acceptEdits": (404, "not-installed"),
    "showJob": (404, "unknown-job"),
    "cancelJob": (404, "unknown-job"),
    "unpairDevice": (404, "unknown-device"),
    "revokeToken": (404, "unknown-token"),
    "trustProject": (412, "changed"),
    "showArtifacts": (404, "unknown-artifact"),
    "getArtifact": (404, "unknown-artifact"),
    "removeArtifacts": (404, "unknown-artifact"),
}
"""The examples that name what a new service does not have, or has already, and their answers."""


def sent(line: str, client: TestClient) -> Response:
    """Send what a line of the document says, as curl would."""
    words = shlex.split(line.replace("$URL", "").replace("$TOKEN", TOKEN))
    assert words.pop(0) == "curl"
    options: dict[str, list[str]] = {}
    while words[0] in ("-X", "-H", "-d"):
        options.setdefault(words.pop(0), []).append(words.pop(0))
    body = options.get("-d", [None])[0]
    (method,) = options.get("-X", ["GET" if body is None else "POST"])
    headers = dict(each.split(": ", 1) for each in options.get("-H", []))
    path, *more = words
    assert more in ([], ["-OJ"])
    return client.request(method, path, headers=headers, content=body)


@pytest.mark.parametrize(
    "one", [one for one in ENDPOINTS if one.media != EVENT_STREAM], ids=lambda one: one.name
)
def test_a_printed_example_is_answered_as_printed(one: Endpoint, tmp_path: Path) -> None:
    """A person pastes it into a terminal: it is done, or says that what it names is not here."""
    (sample,) = operation(one)["x-codeSamples"]
    with make_house(tmp_path) as house:
        answer = sent(sample["source"], client_of(house, {}))
    if one.name in NEEDS:
        assert (answer.status_code, answer.json()["code"]) == NEEDS[one.name]
        return
    assert answer.status_code == one.status, answer.text
    if one.media == JSON:
        Draft202012Validator(resolved(whole(one.answer, components()))).validate(answer.json())


@pytest.mark.parametrize(
    ("language", "title"), [("en", "Reference of the API"), ("zh", "API 参考")]
)
def test_the_document_is_a_page_without_scripts(tmp_path: Path, language: str, title: str) -> None:
    house = make_house(tmp_path)
    client = client_of(house)
    answer = client.get(f"{API}/docs", headers={"accept-language": language})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert f"<h1>{title}</h1>" in answer.text
    assert "<script" not in answer.text
    for one in ENDPOINTS:
        (sample,) = operation(one)["x-codeSamples"]
        assert (
            html.escape(sample["source"]).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
            in answer.text
        ), one.name
    assert client_of(house, {}).get(f"{API}/docs").status_code == 401
    assert client_of(house, token_of(house, "call")).get(f"{API}/docs").status_code == 403
    assert client_of(house, token_of(house, "read")).get(f"{API}/docs").status_code == 200

"""The OpenAPI 3.1 document of the API, made from the table that routes its requests."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import skillhouse
from skillhouse.extensions.server.api.problems import problem_value
from skillhouse.extensions.server.api.route_table import (
    API_PATH,
    EVENT_STREAM,
    JSON,
    PROBLEM_JSON,
    Endpoint,
    RouteParameter,
)
from skillhouse.extensions.server.api.schemas import components, ref

ALWAYS = (400, 401, 403, 405, 421, 500, 503)
"""Statuses of problems that every route may give."""
WITH_BODY = (413, 415, 422)
_WHEN = {
    400: "The request has another shape: `wrong-parameter`, `wrong-body`, `not-json`.",
    401: "No token, or one that is not known: `unauthorized`.",
    403: "The key may not do this: `scope-wanted`, `proof-wanted`, `read-only`, `foreign-origin`.",
    404: "There is nothing of that name.",
    405: "The address has other methods; `Allow` names them.",
    409: "It does not fit what is there now.",
    412: "The file was changed since: `changed`.",
    413: "The body is too large: `too-large`.",
    415: "The body is no `application/json`: `json-wanted`.",
    421: "The Host is not served here: `wrong-host`.",
    422: "The values are refused.",
    428: "`If-Match` is missing: `match-wanted`.",
    429: "Too much at one time.",
    500: "A fault of ours: `broken`.",
    502: "A server that was asked did not answer as it should.",
    503: "State, log or an optional part cannot be used now.",
}
_INTRODUCTION = """What `skillhouse up` answers to programs. Values are those of `--json`.

Send a token as `Authorization: Bearer TOKEN`: that of the start, or a named one
(`skillhouse tokens new`), whose scopes are named at each operation. A browser's cookie reads; for a
change it also sends `Skillhouse-Proof`, which a page of ours has.

Errors are problem details (RFC 9457) whose `code` is stable."""


def openapi_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(API_PATH + one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "skillhouse",
            "version": skillhouse.__version__,
            "description": _INTRODUCTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of the start, or one of `skillhouse tokens new`.",
                }
            },
        },
    }


def statuses_of(one: Endpoint) -> tuple[int, ...]:
    """Return the statuses of all problems that a route may answer with, in their order."""
    found = {*ALWAYS, *one.problems}
    found |= set(WITH_BODY) if one.body is not None else set()
    found |= {404, 409, 422} if one.names else set()
    return tuple(sorted(found))


def _operation(one: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.tag],
        "summary": one.what,
        "description": _scope_text(one),
        "parameters": [_parameter(each) for each in (*_path_parameters(one), *one.query)],
        "responses": _responses(one),
    }
    if one.scope is None:
        found["security"] = []
    if one.body is not None:
        content = {"schema": one.body.schema, "example": one.body.example}
        found["requestBody"] = {"required": True, "content": {JSON: content}}
    return found


def _scope_text(one: Endpoint) -> str:
    return "Needs no key." if one.scope is None else f"Needs the scope `{one.scope}`."


def _path_parameters(one: Endpoint) -> Iterable[RouteParameter]:
    for name in one.names:
        what, example = _PATH_WORDS.get(name, ("", "x"))
        schema = {"type": "string", "minLength": 1}
        yield RouteParameter(
            name=name, schema=schema, what=what, example=example, place="path", required=True
        )


_PATH_WORDS = {
    "skill": ("An id, a name or a directory name; a slash is written %2F.", "builtin:weather"),
    "file": ("A path in the skill; a slash is written %2F.", "references/list.md"),
    "approval": ("The id of a question, or its beginning.", "3fa9c1d2"),
    "grant": ("The id of a standing approval.", "81c0"),
    "record": ("The id of a record, or its beginning.", "01J9ZC"),
    "key": ("The key of a deleted skill.", "20260131T120000000000-0a1b2c3d"),
    "profile": ("The name of a profile.", "codex"),
    "layer": ("The layer of a rule.", "user"),
    "index": ("The place of a rule in its layer, from 0.", "0"),
    "operation": ("A published channel of the management operations.", "SKILLS_GET_ALL"),
    "job": ("The id of a job.", "3fa9c1d25e6f7a8b"),
    "repository": ("The name of a configured repository.", "official"),
    "package": ("The name of a package; a slash is written %2F.", "@acme%2Fpdf"),
    "fix": ("The id of a fix.", "0a1b2c3d4e5f6071"),
    "token": ("The id or name of a token.", "ci"),
}


def _parameter(one: RouteParameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": one.name,
        "in": one.place,
        "required": one.required,
        "description": one.what,
        "schema": one.schema,
    }
    return found if one.example is None else {**found, "example": one.example}


def _responses(one: Endpoint) -> dict[str, Any]:
    answer: dict[str, Any] = {"schema": one.answer}
    if one.example is not None:
        answer["example"] = one.example
    good: dict[str, Any] = {"description": HTTPStatus(one.status).phrase}
    good["content"] = {one.media: answer}
    found = {str(one.status): good}
    if one.method == "GET" and one.media != EVENT_STREAM:
        tag = {"schema": {"type": "string"}, "description": "For `If-None-Match`."}
        good["headers"] = {"ETag": tag}
        found["304"] = {"description": "It has not changed since (`If-None-Match`)."}
    for status in statuses_of(one):
        example = problem_value(status, "code", _WHEN[status].rstrip("."))
        content = {PROBLEM_JSON: {"schema": ref("Problem"), "example": example}}
        found[str(status)] = {"description": _WHEN[status], "content": content}
    return found

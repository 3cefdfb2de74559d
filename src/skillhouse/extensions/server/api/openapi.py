"""The OpenAPI 3.1 document of the API, made from the table that routes its requests."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote, urlencode

import skillhouse
from skillhouse.answers.errors import ProblemAnswer, problem_answer
from skillhouse.answers.json_form import plain
from skillhouse.extensions.server.api.route_table import (
    API_PATH,
    EVENT_STREAM,
    JSON,
    PROBLEM_JSON,
    Endpoint,
    RouteParameter,
)
from skillhouse.extensions.server.api.schemas import Schema, components, ref, whole
from skillhouse.house import AccessScope

_PROBLEM = ref(ProblemAnswer)
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

Errors are problem details (RFC 9457) whose `code` is stable.

Within `/api/v1` members, parameters and operations are added, and none is taken away or gets
another meaning. What has a successor is marked as deprecated, stays in version 1, and goes with
`/api/v2`; both are served for at least one minor version."""


def openapi_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    answers = components()
    for one in endpoints:
        paths.setdefault(API_PATH + one.path, {})[one.method.lower()] = _operation(one, answers)
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
            "schemas": answers,
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


def problem_example(one: Endpoint, status: int) -> tuple[str, str]:
    """Return the code and the text of a problem that a route may answer with."""
    last = one.names[-1] if one.names else ""
    if status == 400 and one.body is not None:
        return "wrong-body", "the body has an unknown member `colour`; known are `name`"
    if status == 403 and one.scope is not None:
        return "scope-wanted", f"this key has not the scope `{one.scope}`"
    if status == 404 and last in _UNKNOWN:
        return _UNKNOWN[last]
    if status == 409 and any(each.name == "cursor" for each in one.query):
        return "cursor-ended", "the list has changed; begin without a cursor"
    if status == 409 and any(each.name == "server" for each in one.query):
        return "unknown-server", "no server `core-a`"
    if status == 409 and last == "approval":
        return "another-call", "the answer is about another content than that of the question"
    if status == 409 and last in ("skill", "file"):
        return "ambiguous-skill", "several skills have the name `weather`; say which one"
    return _EXAMPLES[status]


_UNKNOWN = {
    "skill": ("unknown-skill", "no skill `wether`; nearest: `weather`"),
    "file": ("not-found", "no such file: `list.md`"),
    "approval": ("unknown", "no approval begins with `3fa9`"),
    "grant": ("unknown-grant", "no standing approval has the id `81c0`"),
    "artifact": ("unknown-artifact", "no files of a call have the id `3fa9`"),
    "output": ("unknown-artifact", "the call has no file `chart.png`"),
    "record": ("unknown-record", "no record begins with `01J9`"),
    "key": ("not-deleted", "nothing was deleted under this key"),
    "profile": ("unknown-profile", "no profile `codecs`; did you mean `codex`"),
    "index": ("unknown-rule", "the user's rules have no place 7"),
    "operation": ("unknown-operation", "no operation `SKILLS_GET`"),
    "job": ("unknown-job", "no job has the id `3fa9`"),
    "fix": ("unknown-fix", "no fix has the id `0a1b`"),
    "device": ("unknown-device", "no device `3f0a5c2d9e1b7a64`"),
    "token": ("unknown-token", "no token has the id or name `ci`"),
}
_EXAMPLES = {
    400: ("wrong-parameter", "unknown parameter `colour`; none is known here"),
    401: ("unauthorized", "send the token that `skillhouse up` printed"),
    403: ("wrong-host", "this Host is not served here"),
    404: ("unknown-skill", "no skill `wether`; nearest: `weather`"),
    405: ("wrong-method", "only GET and HEAD are answered here"),
    409: ("changed", "it is not what was shown any more; look at it again"),
    412: ("changed", "the file was changed since it was read"),
    413: ("too-large", "expected at most 65536 bytes"),
    415: ("json-wanted", "send the request as application/json"),
    421: ("wrong-host", "this Host is not served here"),
    422: ("config", "unknown agent `builder`; known are `default`"),
    428: ("match-wanted", "send the `ETag` as `If-Match`"),
    429: ("too-many-jobs", "ten jobs wait; ask again when one has ended"),
    500: ("broken", "something went wrong; the terminal where `skillhouse up` runs says what"),
    502: ("repository", "`skills.example.com` did not answer"),
    503: ("state", "the state cannot be read"),
}


def _operation(one: Endpoint, answers: Mapping[str, Schema]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.tag],
        "summary": one.what,
        "description": _scope_text(one),
        "parameters": [_parameter(each) for each in (*_path_parameters(one), *one.query)],
        "responses": _responses(one, answers),
        "x-codeSamples": [{"lang": "shell", "source": curl_line(one)}],
    }
    if one.scope is None:
        found["security"] = []
    if one.body is not None:
        content = {"schema": one.body.schema, "example": one.body.example}
        found["requestBody"] = {"required": True, "content": {JSON: content}}
    return found


def curl_line(one: Endpoint) -> str:
    """Return a command that sends the example of a route, with `$URL` and `$TOKEN`."""
    words = ["curl"]
    if one.method != ("GET" if one.body is None else "POST"):
        words.append(f"-X {one.method}")
    if one.scope is not None:
        words.append('-H "Authorization: Bearer $TOKEN"')
    needed = [each for each in one.query if each.required]
    words += [
        f"-H {shlex.quote(f'{each.name}: {each.example}')}"
        for each in needed
        if each.place == "header"
    ]
    if one.body is not None:
        words.append("-H 'Content-Type: application/json'")
        words.append(f"-d {shlex.quote(json.dumps(one.body.example))}")
    path = one.path
    for each in _path_parameters(one):
        path = path.replace(f"{{{each.name}}}", quote(unquote(each.example), safe=":@"))
    asked = urlencode({each.name: each.example for each in needed if each.place == "query"})
    words.append(f'"$URL{API_PATH}{path}{f"?{asked}" if asked else ""}"')
    if not one.media.startswith(("text/", "application/json", "application/x-ndjson")):
        words.append("-OJ")
    return " ".join(words)


def _scope_text(one: Endpoint) -> str:
    return "Needs no key." if one.scope is None else f"Needs the scope `{one.scope}`."


def _path_parameters(one: Endpoint) -> Iterable[RouteParameter]:
    for name in one.names:
        what, example = _PATH_WORDS.get(name, ("", "x"))
        if name == "skill" and one.scope == AccessScope.MANAGE:
            # What came with the package is not changed.
            example = "user:notes"
        schema = {"type": "string", "minLength": 1}
        yield RouteParameter(
            name=name, schema=schema, what=what, example=example, place="path", required=True
        )


_PATH_WORDS = {
    "skill": ("An id, a name or a directory name; a slash is written %2F.", "builtin:weather"),
    "file": ("A path in the skill; a slash is written %2F.", "SKILL.md"),
    "approval": ("The id of a question, or its beginning.", "3fa9c1d2"),
    "grant": ("The id of a standing approval.", "81c0"),
    "record": ("The id of a record, or its beginning.", "01J9ZC"),
    "key": ("The key of a deleted skill.", "20260131T120000000000-0a1b2c3d"),
    "profile": ("The name of a profile.", "codex"),
    "layer": ("The layer of a rule.", "user"),
    "index": ("The place of a rule in its layer, from 0.", "0"),
    "operation": ("A published channel of the management operations.", "SKILLS_READ_FILE"),
    "job": ("The id of a job.", "3fa9c1d25e6f7a8b"),
    "repository": ("The name of a configured repository.", "official"),
    "package": ("The name of a package; a slash is written %2F.", "@acme%2Fpdf"),
    "fix": ("The id of a fix.", "0a1b2c3d4e5f6071"),
    "artifact": ("The id of a call's kept files.", "3fa9c1d25e6f7a8b3fa9c1d25e6f7a8b"),
    "output": ("The name of one of them; a slash is written %2F.", "plots%2Fchart.png"),
    "device": ("The id of a paired device.", "3f0a5c2d9e1b7a64"),
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


def _responses(one: Endpoint, answers: Mapping[str, Schema]) -> dict[str, Any]:
    answer: dict[str, Any] = {"schema": whole(one.answer, answers)}
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
        example = plain(problem_answer(status, *problem_example(one, status)))
        content = {PROBLEM_JSON: {"schema": _PROBLEM, "example": example}}
        found[str(status)] = {"description": _WHEN[status], "content": content}
    return found

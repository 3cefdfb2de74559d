"""Answers the requests below /api/v1: finds the route, checks access and shape, runs it."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from jsonschema_rs import Draft202012Validator

from skillhouse.answers.json_form import json_text
from skillhouse.extensions.cells.rpc import parse
from skillhouse.extensions.server.api.events import left
from skillhouse.extensions.server.api.problems import ApiProblem, problem_of
from skillhouse.extensions.server.api.route_table import (
    API_PATH,
    EVENT_STREAM,
    PROBLEM_JSON,
    ApiRequest,
    Endpoint,
    RouteParameter,
    RouteResponse,
    RouteTable,
)
from skillhouse.extensions.server.api.schemas import fault_in_words
from skillhouse.extensions.server.guard import access_of
from skillhouse.floor import nearest
from skillhouse.floor.schema_words import in_words
from skillhouse.house import Access
from skillhouse.presentation.text import one_line
from skillhouse.sandbox.code_call import RpcError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from skillhouse.extensions.server.api.api_services import ApiServices
    from skillhouse.extensions.server.status import SkillScan

logger = logging.getLogger(__name__)

PROOF_HEADER = "skillhouse-proof"
PROOF_WANTED = "proof-wanted"
PROOF_WANTED_TEXT = "a cookie alone changes nothing; send a token as `Authorization: Bearer TOKEN`"
QUERY_MAX = 8_192
"""Bytes of a query."""
FIELDS_MAX = 40
KEPT_MAX = 100
"""Answers that are kept until the next scan, a second at most."""
_NO_CONTENT = (204, 304)


class ApiApp:
    """An ASGI application behind the guard, which has found out whose request it is."""

    def __init__(self, services: ApiServices, endpoints: Iterable[Endpoint]) -> None:
        self._services = services
        self._table = RouteTable(endpoints)
        self._bodies = {
            one.name: Draft202012Validator(dict(one.body.schema))
            for one in self._table.endpoints
            if one.body is not None
        }
        self._short = CapacityLimiter(1)
        self._kept: dict[tuple[str, bytes], RouteResponse] = {}
        self._kept_of: SkillScan | None = None
        self._values = {
            (one.name, each.name): Draft202012Validator(dict(each.schema))
            for one in self._table.endpoints
            for each in one.query
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply: RouteResponse
        endpoint: Endpoint | None = None
        try:
            endpoint, values = self._found(scope)
            request = await self._request(endpoint, values, scope, receive)
            if endpoint.media == EVENT_STREAM:
                # What runs an endpoint of this media returns an application, no reply.
                await endpoint.run(self._services, request)(receive, send)  # type: ignore[operator]
                return
            reply = await self._answered(endpoint, request, scope["query_string"])
        except ApiProblem as problem:
            reply = _problem_reply(problem)
        except Exception as error:
            if isinstance(error, OSError):
                logger.exception("a request of the API failed")
            reply = _problem_reply(problem_of(error))
        media = endpoint.media if endpoint and reply.status < 400 else PROBLEM_JSON
        answered = self._services.answered
        answered[reply.status] = answered.get(reply.status, 0) + 1
        await _send(reply, media, scope, send)

    def _found(self, scope: Scope) -> tuple[Endpoint, Mapping[str, str]]:
        raw = scope.get("raw_path") or scope["path"].encode()
        path = raw.decode("ascii", "replace").partition("?")[0].removeprefix(API_PATH)
        methods, values = self._table.find(path)
        if not methods:
            raise ApiProblem(404, "nothing-here", "there is nothing at this address")
        wanted = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = methods.get(wanted)
        if endpoint is None:
            allowed = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
            are = "are" if len(allowed) > 1 else "is"
            text = f"only {' and '.join(allowed)} {are} answered here"
            raise ApiProblem(405, "wrong-method", text, headers={"allow": ", ".join(allowed)})
        return endpoint, dict(zip(endpoint.names, values, strict=True))

    async def _request(
        self, endpoint: Endpoint, values: Mapping[str, str], scope: Scope, receive: Receive
    ) -> ApiRequest:
        access, headers = access_of(scope), _headers(scope)
        self._check_access(endpoint, access, headers, scope)
        query = self._query(endpoint, scope["query_string"], headers)
        body = await self._body(endpoint, headers, receive) if endpoint.body else None
        gone = partial(left, receive)
        return ApiRequest(
            access=access, path=values, query=query, body=body, headers=headers, left=gone
        )

    def _check_access(
        self, endpoint: Endpoint, access: Access, headers: Mapping[str, str], scope: Scope
    ) -> None:
        if endpoint.scope is None:
            return
        if endpoint.scope not in access.scopes:
            text = f"this key has not the scope `{endpoint.scope}`"
            raise ApiProblem(403, "scope-wanted", text, scope=endpoint.scope.value)
        if endpoint.method == "GET":
            return
        # INVARIANT: a browser adds its cookie to what another page sends, but neither a header of
        # ours nor a proof: no change, and no call, is made on the cookie alone.
        path = (scope.get("raw_path") or b"").decode("ascii", "replace").partition("?")[0]
        given = headers.get(PROOF_HEADER, "")
        if "authorization" not in headers and not self._services.proofs.holds(
            given, access, scope["method"], path
        ):
            raise ApiProblem(403, PROOF_WANTED, PROOF_WANTED_TEXT)
        if self._services.read_only and endpoint.changes and endpoint.scope in _REFUSED:
            text = f"nothing is changed here: {self._services.read_only}"
            raise ApiProblem(403, "read-only", text)

    def _query(
        self, endpoint: Endpoint, query: bytes, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        known = {one.name: one for one in endpoint.query}
        given = {name: headers[name] for name, one in known.items() if _in_header(one, headers)}
        if len(query) > QUERY_MAX:
            raise ApiProblem(400, "wrong-parameter", f"expected at most {QUERY_MAX} bytes of query")
        try:
            pairs = parse_qsl(
                query.decode("ascii"),
                keep_blank_values=True,
                strict_parsing=bool(query),
                errors="strict",
                max_num_fields=FIELDS_MAX,
            )
        except ValueError:
            raise ApiProblem(400, "wrong-parameter", "the query cannot be read") from None
        for name, text in pairs:
            if name not in known or known[name].place != "query":
                raise ApiProblem(400, "wrong-parameter", _unknown(name, known))
            if name in given:
                raise ApiProblem(400, "wrong-parameter", f"`{name}` is given twice")
            given[name] = text
        for name, one in known.items():
            if one.required and name not in given:
                if name == "if-match":
                    raise ApiProblem(428, "match-wanted", "send the `ETag` as `If-Match`")
                text = f"the query lacks `{name}`: expected {in_words(one.schema)}"
                raise ApiProblem(400, "wrong-parameter", text)
        return {name: self._typed(endpoint, known[name], text) for name, text in given.items()}

    def _typed(self, endpoint: Endpoint, one: RouteParameter, text: str) -> Any:
        if one.read is not None:
            try:
                return one.read(text)
            except ValueError as error:
                raise ApiProblem(400, "wrong-parameter", f"`{one.name}`: {error}") from None
        value: Any = text
        kind = one.schema.get("type")
        if kind == "integer" and text.isascii() and text.lstrip("-").isdigit() and len(text) < 16:
            value = int(text)
        elif kind == "boolean" and text in ("true", "false"):
            value = text == "true"
        if not self._values[endpoint.name, one.name].is_valid(value):
            got = f"expected {in_words(one.schema)}, got `{one_line(text[:80])}`"
            raise ApiProblem(400, "wrong-parameter", f"`{one.name}`: {got}")
        return value

    async def _body(self, endpoint: Endpoint, headers: Mapping[str, str], receive: Receive) -> Any:
        assert endpoint.body is not None  # noqa: S101 - for the type checker.
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiProblem(415, "json-wanted", "send the request as application/json")
        most, data, more = endpoint.body.max_bytes, bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ApiProblem(400, "not-json", "the request did not end")
            data += message.get("body", b"")
            more = message.get("more_body", False)
            if len(data) > most:
                raise ApiProblem(413, "too-large", f"expected at most {most} bytes")
        try:
            value = parse(bytes(data))
        except RpcError as error:
            raise ApiProblem(400, "not-json", str(error)) from error
        fault = next(self._bodies[endpoint.name].iter_errors(value), None)
        if fault is not None:
            text = fault_in_words(fault, endpoint.body.schema)
            raise ApiProblem(400, "wrong-body", text)
        return value

    async def _answered(
        self, endpoint: Endpoint, request: ApiRequest, query: bytes
    ) -> RouteResponse:
        if inspect.iscoroutinefunction(endpoint.run):
            return _reply(endpoint, await endpoint.run(self._services, request))
        work = partial(_run_whole, endpoint, self._services, request)
        if not endpoint.is_kept:
            return await to_thread.run_sync(work, limiter=self._lane(endpoint))
        key = (endpoint.name, query)
        scan = self._services.reader.at_hand()
        if scan is not None and scan is self._kept_of and key in self._kept:
            return self._kept[key]
        reply = await to_thread.run_sync(work, limiter=self._lane(endpoint))
        self._keep(key, reply)
        return reply

    def _lane(self, endpoint: Endpoint) -> CapacityLimiter | None:
        # More threads would wait for the lock, and take the interpreter from one another.
        return self._short if endpoint.is_short else None

    def _keep(self, key: tuple[str, bytes], reply: RouteResponse) -> None:
        """Keep an answer until the next scan; it is of the scan of now or of the one before."""
        scan = self._services.reader.at_hand()
        if scan is not self._kept_of:
            self._kept.clear()
            # The answer may be of the scan before, so the first one after it is not kept.
            self._kept_of = scan
        elif len(self._kept) < KEPT_MAX:
            self._kept[key] = reply


def _run_whole(endpoint: Endpoint, services: ApiServices, request: ApiRequest) -> RouteResponse:
    """Run a route on a thread, and make its bytes there too."""
    return _reply(endpoint, endpoint.run(services, request))


_REFUSED = frozenset({"manage", "approve"})
"""Scopes whose changes a read-only service refuses; a call goes through the gate anyway."""


def _in_header(one: RouteParameter, headers: Mapping[str, str]) -> bool:
    return one.place == "header" and one.name in headers


def _unknown(name: str, known: Mapping[str, RouteParameter]) -> str:
    """Return that there is no such parameter, with the nearest or all that there are."""
    names = [one for one, parameter in known.items() if parameter.place == "query"]
    close = nearest(name[:80], names)
    hint = f"known are {', '.join(names)}" if names else "none is known here"
    said = f"did you mean `{close[0]}`" if close else hint
    return f"unknown parameter `{one_line(name[:80])}`; {said}"


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _reply(endpoint: Endpoint, found: Any) -> RouteResponse:
    """Return the answer with its bytes; JSON is ASCII, so that nothing can hide in it."""
    reply = found if isinstance(found, RouteResponse) else RouteResponse(value=found)
    content = reply.content
    if content is None:
        content = json_text(reply.value).encode()
    headers = dict(reply.headers)
    if endpoint.method == "GET":
        headers.setdefault("etag", etag_of(content))
    return RouteResponse(content=content, status=reply.status or endpoint.status, headers=headers)


def etag_of(content: bytes) -> str:
    """Return the entity tag of an answer.

    >>> etag_of(b"")
    '"e3b0c44298fc1c149afbf4c8996fb924"'
    """
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _problem_reply(problem: ApiProblem) -> RouteResponse:
    return RouteResponse(
        content=json_text(problem.answer()).encode(), status=problem.status, headers=problem.headers
    )


async def _send(reply: RouteResponse, media: str, scope: Scope, send: Send) -> None:
    content, status = reply.content or b"", reply.status
    tag = reply.headers.get("etag")
    if status == 200 and tag is not None and _is_known(tag, scope):
        status, content = 304, b""
    headers = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
    if status not in _NO_CONTENT:
        headers += [
            (b"content-type", media.encode()),
            (b"content-length", str(len(content)).encode()),
        ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send(
        {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content}
    )


def _is_known(tag: str, scope: Scope) -> bool:
    """Whether the client has just this answer (RFC 9110, 13.1.2)."""
    given = [value for name, value in scope["headers"] if name == b"if-none-match"]
    tags = {one.strip().removeprefix(b"W/") for value in given for one in value.split(b",")}
    return tag.encode() in tags or b"*" in tags

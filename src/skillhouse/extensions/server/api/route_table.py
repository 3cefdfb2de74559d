"""What a route of the API is, and how a path finds its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec import Struct, field

from skillhouse.house import Access, AccessScope

if TYPE_CHECKING:
    from skillhouse.extensions.server.api.api_services import ApiServices

API_PATH = "/api/v1"
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
EVENT_STREAM = "text/event-stream"
CHANGING = ("POST", "PUT", "DELETE")
BODY_MAX = 65_536
"""Bytes of a request's body, where its route names no other bound."""

Schema = Mapping[str, Any]
"""A JSON Schema (draft 2020-12), as OpenAPI 3.1 uses it."""


class RouteParameter(Struct, frozen=True, kw_only=True):
    """One value of the query, or a header that the route reads."""

    name: str
    schema: Schema
    what: str
    example: Any = None
    place: str = "query"
    required: bool = False
    read: Callable[[str], Any] | None = None
    """Makes the value of the text in place of the schema; ValueError says what it expected."""


class Body(Struct, frozen=True, kw_only=True):
    """What a request must carry."""

    schema: Schema
    example: Any
    max_bytes: int = BODY_MAX


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A checked request: every value has the shape that its route names."""

    access: Access
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    headers: Mapping[str, str]
    """Names in lower case; a header that came twice has its last value."""
    left: Callable[[], Awaitable[None]]
    """Waits until the client has gone."""


class RouteResponse(Struct, frozen=True, kw_only=True):
    """An answer that is more than a JSON value with the status of its route."""

    value: Struct | None = None
    content: bytes | None = None
    """Bytes instead of a value."""
    status: int = 0
    """0 is that of the route."""
    headers: Mapping[str, str] = field(default_factory=dict)


Run = Callable[["ApiServices", ApiRequest], Struct | Awaitable[Struct]]
"""Does the work: on a thread, or on the event loop if it is a coroutine function."""


class Endpoint(Struct, frozen=True, kw_only=True, dict=True):
    """One route, with all that its documentation says."""

    name: str
    """The operationId."""
    method: str
    path: str
    """Below `API_PATH`; `{name}` is one segment, in which %2F is no separator."""
    tag: str
    what: str
    run: Run
    scope: AccessScope | None = AccessScope.READ
    """None: no key is needed."""
    answer: Schema = field(default_factory=lambda: {"type": "object"})
    example: Any = None
    """Of the answer."""
    query: tuple[RouteParameter, ...] = ()
    body: Body | None = None
    status: int = 200
    media: str = JSON
    problems: tuple[int, ...] = ()
    """Statuses of problems besides those that each route may give."""
    is_kept: bool = False
    """Whether an answer follows from the last scan and the query alone, so that it is made once."""
    is_short: bool = False
    """Whether its work is short and under the one lock of readers: one thread does it."""
    is_change: bool = True
    """Whether a POST changes something, so that a read-only service refuses it."""

    @cached_property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the path's parameters, in their order."""
        return tuple(part[1:-1] for part in self.segments if part.startswith("{"))

    @property
    def changes(self) -> bool:
        return self.method in CHANGING and self.is_change


class RouteTable:
    """The routes by their paths; built once."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)
        self._by_shape: dict[tuple[str, ...], dict[str, Endpoint]] = {}
        for one in self.endpoints:
            shape = tuple("{}" if part.startswith("{") else part for part in one.segments)
            self._by_shape.setdefault(shape, {})[one.method] = one
        self._shapes = tuple(self._by_shape)

    def find(self, raw_path: str) -> tuple[Mapping[str, Endpoint], tuple[str, ...]]:
        """Return the routes of a path by their methods, and the values of its parameters.

        `raw_path` is as it was sent, below `API_PATH`: what is encoded is decoded here, once and
        after the path was taken apart, so that no value can add a segment. A fixed segment wins
        over a parameter. Both are empty where there is nothing.
        """
        parts = tuple(raw_path.strip("/").split("/"))
        exact = self._by_shape.get(parts)
        if exact is not None:
            return exact, ()
        for shape in self._shapes:
            if len(shape) == len(parts) and all(
                (want == "{}" and part) or want == part
                for want, part in zip(shape, parts, strict=True)
            ):
                given = (part for want, part in zip(shape, parts, strict=True) if want == "{}")
                try:
                    values = tuple(unquote(part, errors="strict") for part in given)
                except UnicodeDecodeError:
                    return {}, ()
                return self._by_shape[shape], values
        return {}, ()

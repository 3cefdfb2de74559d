"""What the routes of the API work with."""

from __future__ import annotations

import base64
import binascii
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import skillhouse
from skillhouse.answers.doctor import InstanceAnswer
from skillhouse.answers.json_form import JsonAnswer, ListAnswer, PageAnswer, listed
from skillhouse.audit import timestamp
from skillhouse.extensions.server.api.job_rows import JobRows
from skillhouse.extensions.server.api.jobs import Jobs
from skillhouse.extensions.server.api.metrics import CallCounts
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.forms import Proofs
from skillhouse.floor.lock import once
from skillhouse.house import CallKeys

if TYPE_CHECKING:
    from msgspec import Struct

    from skillhouse.extensions.server.api.events import EventLog
    from skillhouse.extensions.server.status import SkillScan, StatusReader
    from skillhouse.house import AccessTokens, Skillhouse


T = TypeVar("T")

PAGE_DEFAULT = 50
PAGE_MAX = 200


class ApiServices:
    """One for each application."""

    def __init__(
        self,
        house: Skillhouse,
        reader: StatusReader,
        *,
        tokens: AccessTokens,
        events: EventLog,
        document: Callable[[], Mapping[str, Any]],
        clock: Callable[[], float],
        read_only: str = "",
    ) -> None:
        """`document` makes the OpenAPI document; `read_only` is why nothing may be changed."""
        self.house = house
        self.reader = reader
        self.tokens = tokens
        self.events = events
        directory = house.config.state_directory
        connections = house.services.enforcement.connections
        rows = JobRows(directory, connections, clock=clock)
        self.jobs = Jobs(events, clock=clock, moment=time.monotonic, rows=rows)
        self.proofs = Proofs(tokens.proof_key)
        self.call_keys = CallKeys(directory, connections, clock=clock)
        self.read_only = read_only
        self.clock = clock
        self._document = document
        self.reference: Callable[[Mapping[str, str]], bytes] | None = None
        """Makes the page of the document for the headers of a request."""
        self.answered: dict[int, int] = {}
        """Number of answers by their status."""
        self.started = clock()
        self.instance = InstanceAnswer(
            id=events.start,
            name=house.config.shown_server,
            host=socket.gethostname(),
            version=skillhouse.__version__,
            started=timestamp(int(self.started * 1000)),
        )
        self.calls = CallCounts(house.audit_log, self.started)
        events.instance = self.instance

    @once
    def openapi(self) -> Mapping[str, Any]:
        return self._document()

    @contextmanager
    def fresh(self) -> Iterator[Skillhouse]:
        """Hold the lock for reading, after a scan of at most a second ago."""
        self.reader.scan()
        with self.reader.using() as house:
            yield house

    def scan(self) -> SkillScan:
        return self.reader.scan()


def paged(
    items: Sequence[T],
    query: Mapping[str, Any],
    *,
    key: Callable[[T], str],
    name: str,
    value: Callable[[T], Struct],
    more: Callable[[str | None], JsonAnswer] = lambda cursor: PageAnswer(next=cursor),
    default: int = PAGE_DEFAULT,
) -> ListAnswer:
    """Return one page of a list, with the cursor of the next page.

    Raises:
        ApiProblem: the cursor is none of ours, or what it names is not in the list any more.
    """
    limit = query.get("limit", default)
    start = _after(items, query.get("cursor"), key)
    shown = items[start : start + limit]
    has_more = start + limit < len(items)
    cursor = cursor_of(start + limit, key(shown[-1])) if has_more and shown else None
    return listed(name, list(map(value, shown)), more(cursor), total=len(items))


def _after(items: Sequence[T], cursor: str | None, key: Callable[[T], str]) -> int:
    if cursor is None:
        return 0
    place, last = read_cursor(cursor)
    if 0 < place <= len(items) and key(items[place - 1]) == last:
        return place
    for at, item in enumerate(items):
        if key(item) == last:
            return at + 1
    raise ApiProblem(409, "cursor-ended", "the list has changed; begin without a cursor")


def cursor_of(place: int, last: str) -> str:
    """Return a text that only this module reads: a place in a list, and the key at it."""
    data = json.dumps([place, last], ensure_ascii=True).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[int, str]:
    """Return the place and key of a cursor; ApiProblem for a text that is none."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place, last = json.loads(data)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        place, last = None, None
    if type(place) is not int or not isinstance(last, str):
        raise ApiProblem(400, "wrong-cursor", "expected the `next` of an earlier answer")
    return place, last

"""Several executors as one: which gets a call, and what happens where one takes none."""

from __future__ import annotations

import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from msgspec import Struct

from skillhouse.extensions.cells.code_archive import CodeArchive, archive_of
from skillhouse.extensions.cells.executor_proof import check_isolation
from skillhouse.extensions.cells.rpc_client import NoAnswerError, RpcClient, SentArchives
from skillhouse.extensions.cells.service import CODE_MISSING
from skillhouse.floor import TreeError, read_tree
from skillhouse.floor.structs import replace
from skillhouse.sandbox import SandboxError, SandboxLevel
from skillhouse.sandbox.code_call import ExecutorState, RpcError

NAMES_SECONDS = 5.0
"""How long the addresses of a name are used before it is looked up again."""
REST_SECONDS = 2.0
"""How long one that took no call gets none, where others are there."""
REST_DOUBLED = 3
"""How often this is doubled for one that does not answer: each call that tries it may wait for it
for as long as a connection may take."""
PLACES = 5
"""Most places that are asked for one request; each may take `CONNECT_SECONDS` to refuse it."""
SHARES = 3
"""How often a request waits for code that another brings to its address, before it brings it."""
PAUSE_SECONDS = 0.2
"""Before the same address is tried again: behind it may be a balancer."""
UNPROVED = "executor-unproved"
LISTS = 64
"""Lists of packages that are kept: each was read from thousands of files."""


LOOKS = 32
"""Executors that are asked at one time how they are."""
LOOK_SECONDS = 1.5
"""How long each has to say so."""
LOOKS_SECONDS = 4.0
"""And all of them together: a person waits for it."""
WHY_MAX = 200
CALLS_MAX = 1_000_000
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,62}")
_LEVELS = frozenset(map(str, SandboxLevel))


class ExecutorPlace(Struct, frozen=True):
    """One address of one executor, or of a balancer."""

    client: RpcClient
    address: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.client.place, self.address)


class Parcel(Struct, frozen=True, kw_only=True):
    """The code of a call, as this machine has it."""

    digest: str
    directory: Path
    packages: Path | None = None


class ExecutorPool:
    def __init__(self, clients: Sequence[RpcClient]) -> None:
        """Use what listens at these addresses; each address of a name is one executor."""
        self._clients = tuple(clients)
        self._looked_up: dict[str, tuple[float, Sequence[str]]] = {}
        self._lookups: dict[str, anyio.Lock] = {}
        self._running: dict[tuple[str, str], int] = {}
        self._rests: dict[tuple[str, str], float] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._gone: dict[tuple[str, str], int] = {}
        self._turn = 0
        self._proved: set[tuple[str, str]] = set()
        self._unproved: dict[tuple[str, str], tuple[float, str]] = {}
        self._locks: dict[tuple[str, str], anyio.Lock] = {}
        self._sending: dict[tuple[tuple[str, str], str, Path | None], anyio.Event] = {}
        self._packages: OrderedDict[Path, CodeArchive] = OrderedDict()

    async def ask(
        self, method: str, params: Mapping[str, Any], parcel: Parcel | None = None
    ) -> Any:
        """Return the result of one of the executors, the one with the fewest of our requests.

        A request is made again only if the executor has certainly not begun it: once at each other
        place, and once more after a pause where all refused it. With a `parcel`, the code is sent
        to an executor that does not have it; other calls that need it there wait until it is.

        Raises:
            NoAnswerError: none answered; `is_sent` says whether one may have begun.
            RpcError: the executor's own.
            SandboxError: the code to send is not as it was.
        """
        refused: set[tuple[str, str]] = set()
        is_last = False
        place = await self._chosen(refused)
        while True:
            try:
                with self._used(place):
                    return await self._asked(place, method, params, parcel)
            except NoAnswerError as error:
                self._doubt(place, error)
                # INVARIANT: what may have begun is never repeated.
                if error.is_sent or not error.may_retry or is_last:
                    raise
                refused.add(place.key)
                self._let_rest(place, is_gone=not error.retry_after)
                place = await self._chosen(refused)
                if place.key in refused or len(refused) >= PLACES:
                    if error.reason == UNPROVED:
                        raise
                    is_last = True
                    await anyio.sleep(max(PAUSE_SECONDS, error.retry_after))
                    place = await self._chosen({place.key})

    async def _asked(
        self, place: ExecutorPlace, method: str, params: Mapping[str, Any], parcel: Parcel | None
    ) -> Any:
        """Return the answer of one place, where the code is sent if it is not there.

        Behind one address may be many executors: one may have the code, and the next not.
        """
        shares = SHARES
        while True:
            try:
                asked = self._with_digest(params, parcel)
                return await place.client.ask(method, asked, address=place.address)
            except RpcError as error:
                if error.reason != CODE_MISSING or parcel is None:
                    raise
            under_way = self._sending.get((place.key, parcel.digest, parcel.packages))
            if under_way is None or not shares:
                return await self._sent(place, method, params, parcel)
            shares -= 1
            await under_way.wait()

    async def _sent(
        self, place: ExecutorPlace, method: str, params: Mapping[str, Any], parcel: Parcel
    ) -> Any:
        """Return the answer to a request with the code behind it."""
        key = (place.key, parcel.digest, parcel.packages)
        on_its_way = anyio.Event()
        self._sending.setdefault(key, on_its_way)

        def sent() -> None:
            on_its_way.set()
            if self._sending.get(key) is on_its_way:
                del self._sending[key]

        try:
            # INVARIANT: no place gets code before it was proved, also one that is tried second.
            await self._prove(place)
            archives = await anyio.to_thread.run_sync(self._attachment, parcel, sent)
            asked = self._with_digest(params, parcel)
            return await place.client.ask(method, asked, address=place.address, attachment=archives)
        finally:
            sent()

    async def _prove(self, place: ExecutorPlace) -> None:
        """Have code run at a place that is new to us before it gets code of a skill.

        INVARIANT: what an executor says of its own isolation is never taken instead.
        """

        async def ask(method: str, params: Mapping[str, Any], archive: CodeArchive) -> Any:
            attached = SentArchives(archive.size, archive.parts)
            return await place.client.ask(
                method, params, address=place.address, attachment=attached
            )

        async with self._locks.setdefault(place.key, anyio.Lock()):
            if place.key in self._proved:
                return
            until, why = self._unproved.get(place.key, (0.0, ""))
            if time.monotonic() < until:
                raise _unproved(why)
            hosts = tuple(dict.fromkeys(("127.0.0.1", place.address)))
            try:
                await check_isolation(ask, hosts, place.client.port)
            except (RpcError, SandboxError) as error:
                # Only our own skill may have run: nothing of the call was begun.
                message = f"the executor at {place.client.place} gets no code: {error}"
                if isinstance(error, NoAnswerError) and error.may_retry:
                    raise NoAnswerError(
                        message, is_sent=False, may_retry=True, retry_after=error.retry_after
                    ) from error
                self._unproved[place.key] = (time.monotonic() + REST_SECONDS, message)
                raise _unproved(message) from error
            self._unproved.pop(place.key, None)
            self._proved.add(place.key)

    async def ask_all(
        self, method: str, params: Mapping[str, Any]
    ) -> Sequence[tuple[str, Any | RpcError]]:
        """Ask every executor, at each address that its name has now; return what each says."""
        for client in self._clients:
            _, addresses = self._looked_up.get(client.place, (0.0, ()))
            self._looked_up[client.place] = (-NAMES_SECONDS, addresses)
        places = await self._places()
        found: list[tuple[str, Any | RpcError]] = []

        async def one(place: ExecutorPlace) -> None:
            said: Any
            try:
                said = await place.client.ask(method, params, address=place.address)
            except RpcError as error:
                self._doubt(place, error)
                said = error
            found.append((place.address or place.client.place, said))

        async with anyio.create_task_group() as tasks:
            for place in places:
                tasks.start_soon(one, place)
        return tuple(found)

    async def states(self, runs: str) -> Sequence[ExecutorState]:
        """Return how each executor is, at each address that its name has.

        Each is asked for a moment only: who does not answer in it is silent. A name that is not
        found in that time has the addresses of before.
        """
        found: dict[str, ExecutorState] = {}
        most = anyio.Semaphore(LOOKS)

        async def one(place: ExecutorPlace) -> None:
            async with most:
                state = await self._looked(place, runs)
            found[state.id] = state

        async def each(client: RpcClient) -> None:
            await self._look_up(client)
            for place in self._known_places(client):
                tasks.start_soon(one, place)

        with anyio.move_on_after(LOOKS_SECONDS):
            async with anyio.create_task_group() as tasks:
                for client in self._clients:
                    tasks.start_soon(each, client)
        places = self._known_places(*self._clients)
        return [found.get(_id(one)) or ExecutorState(id=_id(one), runs=(runs,)) for one in places]

    async def _looked(self, place: ExecutorPlace, runs: str) -> ExecutorState:
        began = time.monotonic()
        said: Any = None
        why = "it takes too long"
        try:
            with anyio.move_on_after(LOOK_SECONDS):
                said = await place.client.ask("health", {}, address=place.address)
                self._seen[place.key] = round(time.time() * 1_000)
        except RpcError as error:
            self._doubt(place, error)
            why = _short(str(error))
        took = round((time.monotonic() - began) * 1_000)
        state = ExecutorState(id=_id(place), runs=(runs,), why=why)
        if isinstance(said, dict):
            state = replace(state, **_own_words(said), why="", lag_ms=took)
        elif said is not None:
            state = replace(state, why="it answered something else")
        failed = self._unproved.get(place.key)
        if place.key in self._proved:
            state = replace(state, isolation="shown")
        elif failed is not None:
            said_why = state.why or _short(failed[1])
            state = replace(state, isolation="failed", why=said_why)
        return replace(state, seen_ms=self._seen.get(place.key, 0))

    async def _places(self) -> Sequence[ExecutorPlace]:
        async with anyio.create_task_group() as tasks:
            for client in self._clients:
                tasks.start_soon(self._look_up, client)
        return self._known_places(*self._clients)

    async def _look_up(self, client: RpcClient) -> None:
        # One at a time: each holds a thread while no resolver answers, and a loop has few.
        async with self._lookups.setdefault(client.place, anyio.Lock()):
            at, before = self._looked_up.get(client.place, (-NAMES_SECONDS, ()))
            if time.monotonic() < at + NAMES_SECONDS:
                return
            # A resolver that does not answer takes nothing away: those of before are used.
            addresses = await client.addresses() or before or (client.host,)
            self._looked_up[client.place] = (time.monotonic(), addresses)

    def _known_places(self, *clients: RpcClient) -> Sequence[ExecutorPlace]:
        found: list[ExecutorPlace] = []
        for client in clients:
            _, addresses = self._looked_up.get(client.place, (0.0, ()))
            found += [ExecutorPlace(client, one) for one in addresses or (client.host,)]
        return found

    async def _chosen(self, refused: Container[tuple[str, str]]) -> ExecutorPlace:
        places = await self._places()
        now = time.monotonic()
        self._rests = {key: end for key, end in self._rests.items() if end > now}
        self._turn += 1
        turn = self._turn

        def rank(numbered: tuple[int, ExecutorPlace]) -> tuple[bool, bool, int, int]:
            number, place = numbered
            return (
                place.key in refused,
                place.key in self._rests,
                self._running.get(place.key, 0),
                (number - turn) % len(places),
            )

        return min(enumerate(places), key=rank)[1]

    def _doubt(self, place: ExecutorPlace, error: RpcError) -> None:
        """Have what listens there next, which may be another one, asked for its isolation again."""
        if isinstance(error, NoAnswerError) and (not error.retry_after or error.reason == "ending"):
            self._proved.discard(place.key)

    def _let_rest(self, place: ExecutorPlace, *, is_gone: bool) -> None:
        """Give it no call for a while; for longer each time where it does not even answer."""
        self._gone[place.key] = self._gone.get(place.key, 0) + 1 if is_gone else 0
        seconds = REST_SECONDS * 2 ** min(REST_DOUBLED, max(0, self._gone[place.key] - 1))
        self._rests[place.key] = time.monotonic() + seconds

    @contextlib.contextmanager
    def _used(self, place: ExecutorPlace) -> Iterator[None]:
        self._running[place.key] = self._running.get(place.key, 0) + 1
        try:
            yield
            self._gone.pop(place.key, None)
            self._seen[place.key] = round(time.time() * 1_000)
        finally:
            self._running[place.key] -= 1
            if not self._running[place.key]:
                del self._running[place.key]

    def _with_digest(self, params: Mapping[str, Any], parcel: Parcel | None) -> Mapping[str, Any]:
        """Return the params with the digest of the packages, once they had to be sent."""
        archive = self._packages.get(parcel.packages) if parcel and parcel.packages else None
        if archive is None:
            return params
        return {**params, "context": {**params["context"], "packages_digest": archive.digest}}

    def _attachment(self, parcel: Parcel, sent: Callable[[], None]) -> SentArchives:
        archives = [_code(parcel)]
        if parcel.packages is not None:
            found = self._packages.get(parcel.packages) or archive_of(parcel.packages)
            self._packages[parcel.packages] = found
            if len(self._packages) > LISTS:
                self._packages.popitem(last=False)
            archives.append(found)

        def parts() -> Iterator[bytes]:
            for archive in archives:
                yield from archive.parts()

        return SentArchives(sum(one.size for one in archives), parts, sent)


def _id(place: ExecutorPlace) -> str:
    client = place.client
    return (
        client.place if place.address in ("", client.host) else f"{client.place} ({place.address})"
    )


def _short(text: str) -> str:
    return " ".join(text.split())[:WHY_MAX]


def _own_words(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an executor says of itself, each value only if it is one of its kind."""

    def word(key: str) -> str:
        found = said.get(key)
        return found if isinstance(found, str) and _WORD.fullmatch(found) else ""

    def number(key: str) -> int | None:
        found = said.get(key)
        return found if type(found) is int and 0 <= found <= CALLS_MAX else None

    calls, most = number("calls"), number("most")
    state = "ready"
    if said.get("is_ending") is True:
        state = "ending"
    elif said.get("is_ready") is False:
        state = "not-ready"
    elif calls is not None and most is not None and calls >= most:
        state = "full"
    level = word("level")
    return {
        "name": word("name"),
        "version": word("version"),
        "level": level if level in _LEVELS else "",
        "calls": calls,
        "most": most,
        "state": state,
    }


def _unproved(message: str) -> NoAnswerError:
    return NoAnswerError(message, is_sent=False, may_retry=True, reason=UNPROVED)


def _code(parcel: Parcel) -> CodeArchive:
    """Return the skill's files, if they are what was judged; the executor compares them too."""
    try:
        tree = read_tree(parcel.directory)
    except TreeError as error:
        raise SandboxError("skill-unreadable", f"cannot send the skill: {error}") from error
    if tree.digest != parcel.digest:
        message = f"the skill is not as it was: expected {parcel.digest}, got {tree.digest}"
        raise SandboxError("skill-changed", message)
    return archive_of(parcel.directory, {one.path for one in tree.files})

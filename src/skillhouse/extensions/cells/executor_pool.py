"""Several executors as one: which gets a call, and what happens where one takes none."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
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
from skillhouse.sandbox import SandboxError
from skillhouse.sandbox.code_call import RpcError

NAMES_SECONDS = 5.0
"""How long the addresses of a name are used before it is looked up again."""
REST_SECONDS = 2.0
"""How long one that took no call gets none, where others are there."""
PAUSE_SECONDS = 0.2
"""Before the same address is tried again: behind it may be a balancer."""
LISTS = 64
"""Lists of packages that are kept: each was read from thousands of files."""


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
        self._running: dict[tuple[str, str], int] = {}
        self._rests: dict[tuple[str, str], float] = {}
        self._turn = 0
        self._proved: set[tuple[str, str]] = set()
        self._locks: dict[tuple[str, str], anyio.Lock] = {}
        self._packages: OrderedDict[Path, CodeArchive] = OrderedDict()

    async def ask(
        self, method: str, params: Mapping[str, Any], parcel: Parcel | None = None
    ) -> Any:
        """Return the result of one of the executors, the one with the fewest of our requests.

        A request is made once more, elsewhere where there is another place, only if the first
        executor has certainly not begun it. With a `parcel`, the code is sent to an executor that
        does not have it.

        Raises:
            NoAnswerError: none answered; `is_sent` says whether one may have begun.
            RpcError: the executor's own.
            SandboxError: the code to send is not as it was.
        """
        attachment: SentArchives | None = None
        is_again = is_wanted = False
        place = await self._chosen(None)
        while True:
            try:
                if is_wanted and parcel is not None and attachment is None:
                    await self._prove(place)
                    attachment = await anyio.to_thread.run_sync(self._attachment, parcel)
                with self._used(place):
                    return await place.client.ask(
                        method,
                        self._with_digest(params, parcel),
                        address=place.address,
                        attachment=attachment,
                    )
            except NoAnswerError as error:
                # INVARIANT: what may have begun is never repeated.
                if error.is_sent or not error.may_retry or is_again:
                    raise
                is_again = True
                self._rests[place.key] = time.monotonic() + REST_SECONDS
                other = await self._chosen(place)
                if other.key == place.key:
                    await anyio.sleep(max(PAUSE_SECONDS, error.retry_after))
                place = other
            except RpcError as error:
                if error.reason != CODE_MISSING or parcel is None or is_wanted:
                    raise
                is_wanted = True

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
            hosts = tuple(dict.fromkeys(("127.0.0.1", place.address)))
            try:
                await check_isolation(ask, hosts, place.client.port)
            except (RpcError, SandboxError) as error:
                # Only our own skill may have run: nothing of the call was begun.
                message = f"the executor at {place.client.place} gets no code: {error}"
                may_retry = isinstance(error, NoAnswerError) and error.may_retry
                raise NoAnswerError(message, is_sent=False, may_retry=may_retry) from error
            self._proved.add(place.key)

    async def ask_all(
        self, method: str, params: Mapping[str, Any]
    ) -> Sequence[tuple[str, Any | RpcError]]:
        """Ask every executor, at each address that its name has now; return what each says."""
        self._looked_up.clear()
        places = await self._places()
        found: list[tuple[str, Any | RpcError]] = []

        async def one(place: ExecutorPlace) -> None:
            said: Any
            try:
                said = await place.client.ask(method, params, address=place.address)
            except RpcError as error:
                said = error
            found.append((place.address or place.client.place, said))

        async with anyio.create_task_group() as tasks:
            for place in places:
                tasks.start_soon(one, place)
        return tuple(found)

    async def _places(self) -> Sequence[ExecutorPlace]:
        found: list[ExecutorPlace] = []
        for client in self._clients:
            at, addresses = self._looked_up.get(client.place, (0.0, ()))
            if not addresses or at < time.monotonic() - NAMES_SECONDS:
                addresses = await client.addresses()
                self._looked_up[client.place] = (time.monotonic(), addresses)
            found += [ExecutorPlace(client, address) for address in addresses]
        return found

    async def _chosen(self, refused: ExecutorPlace | None) -> ExecutorPlace:
        places = await self._places()
        now = time.monotonic()
        self._rests = {key: end for key, end in self._rests.items() if end > now}
        self._turn += 1
        turn = self._turn

        def rank(numbered: tuple[int, ExecutorPlace]) -> tuple[bool, bool, int, int]:
            number, place = numbered
            return (
                refused is not None and place.key == refused.key,
                place.key in self._rests,
                self._running.get(place.key, 0),
                (number - turn) % len(places),
            )

        return min(enumerate(places), key=rank)[1]

    @contextlib.contextmanager
    def _used(self, place: ExecutorPlace) -> Iterator[None]:
        self._running[place.key] = self._running.get(place.key, 0) + 1
        try:
            yield
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

    def _attachment(self, parcel: Parcel) -> SentArchives:
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

        return SentArchives(sum(one.size for one in archives), parts)


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

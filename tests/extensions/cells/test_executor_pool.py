"""Calls at several executors at once: who waits for whose code, and where a refused one goes."""

from __future__ import annotations

import random
import resource
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.executors import Balancer
from tests.house.coded import tool, write_code

from skillhouse.extensions.cells import (
    ExecutorPool,
    NoAnswerError,
    Parcel,
    RpcClient,
    RpcServer,
    executor_pool,
)
from skillhouse.extensions.cells.rpc import NotBegunError, packed, request_value
from skillhouse.extensions.cells.rpc_http import CURRENT
from skillhouse.extensions.cells.rpc_tokens import TokenFiles, digest_of
from skillhouse.extensions.cells.uploads import UPLOADS, UPLOADS_EACH, Uploads, code_digests
from skillhouse.floor import tree_digest
from skillhouse.sandbox.code_call import UNAVAILABLE, RpcError

TOKEN = "token-of-the-one-core"
OLDER = "token-of-the-one-core-before"


class Executors:
    """Executors that run nothing: they keep code, count, and answer as they are set to."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.uploads: list[tuple[str, str]] = []
        """(executor, digest) of each call that came with its code."""
        self.calls: list[tuple[str, str]] = []
        self.proofs: list[str] = []
        self.most = 0
        self.unpack_seconds = 0.05
        self.seconds = 0.0
        self.refuses: set[str] = set()
        self.refuses_code: set[str] = set()
        self.unproved: set[str] = set()
        self._now = 0

    @asynccontextmanager
    async def running(
        self, *names: str, token: Any = TOKEN, port: int = 0
    ) -> AsyncIterator[list[str]]:
        async with AsyncExitStack() as kept:
            servers = [self._server(one, token).listening("127.0.0.1", port) for one in names]
            ports = [await kept.enter_async_context(one) for one in servers]
            yield [f"http://127.0.0.1:{port}/rpc" for port in ports]

    def _server(self, name: str, token: Any) -> RpcServer:
        place = self.base / f"sent-{name}"
        place.mkdir()
        uploads = Uploads(place)
        here: set[str] = set()

        async def execute(params: Any) -> Any:
            current = CURRENT.get()
            assert current is not None
            if name in self.refuses:
                raise NotBegunError(UNAVAILABLE, "ends", reason="ending")
            if params["tool"] == "proof:tries":
                self.proofs.append(name)
                found = ["the network"] if name in self.unproved else []
                return {"success": True, "data": {"word": params["args"]["word"], "found": found}}
            if name in self.refuses_code and current.archives is not None:
                raise NotBegunError(UNAVAILABLE, "full", reason="busy")
            [digest] = code_digests(params)
            if current.archives is None and digest not in here:
                await uploads.wait_for(current.caller.name, digest)
            if current.archives is not None:
                self.uploads.append((name, digest))
                await anyio.sleep(self.unpack_seconds)
                here.add(digest)
                current.taken()
            if digest not in here:
                raise RpcError(UNAVAILABLE, "the code is not here", reason="code-missing")
            self.calls.append((name, params["args"]["number"]))
            self._now += 1
            self.most = max(self.most, self._now)
            await anyio.sleep(self.seconds)
            self._now -= 1
            return {"success": True, "data": name}

        return RpcServer({"tool.execute": execute}, token=token, uploads=uploads)


def parcels(base: Path, count: int) -> list[Parcel]:
    found = []
    for number in range(count):
        place = write_code(base / f"skill-{number}", f"# {number}\ntools = {{}}\n", tool())
        found.append(Parcel(digest=tree_digest(place), directory=place))
    return found


async def asked(pool: ExecutorPool, given: list[Parcel]) -> list[Any]:
    """Return what comes of a call with each parcel, all at once; errors too."""
    found: list[Any] = [None] * len(given)

    async def one(number: int, parcel: Parcel) -> None:
        context = {"digest": parcel.digest}
        params = {"tool": "one:tool", "args": {"number": str(number)}, "context": context}
        try:
            found[number] = (await pool.ask("tool.execute", params, parcel))["data"]
        except RpcError as error:
            found[number] = error

    async with anyio.create_task_group() as tasks:
        for number, parcel in enumerate(given):
            tasks.start_soon(one, number, parcel)
    return found


def pool_of(addresses: list[str], **options: Any) -> ExecutorPool:
    return ExecutorPool([RpcClient(url, TOKEN, **options) for url in addresses])


Scene = Callable[[ExecutorPool, Executors], Any]


def played(base: Path, names: tuple[str, ...], scene: Scene, **settings: Any) -> Any:
    executors = Executors(base)
    for name, value in settings.items():
        setattr(executors, name, value)

    async def run() -> Any:
        async with executors.running(*names) as addresses:
            with anyio.fail_after(30):
                return await scene(pool_of(addresses), executors)

    return anyio.run(run)


def test_first_calls_of_one_code_share_its_way(tmp_path: Path) -> None:
    [parcel] = parcels(tmp_path, 1)

    async def scene(pool: ExecutorPool, executors: Executors) -> list[Any]:
        return [await asked(pool, [parcel] * 20), executors]

    found, executors = played(tmp_path, ("one",), scene, seconds=0.5)
    assert found == ["one"] * 20
    assert executors.uploads == [("one", parcel.digest)]
    # Each once, and at the same time: none waited for the answer of the one that brought it.
    assert sorted(number for _, number in executors.calls) == sorted(map(str, range(20)))
    assert executors.most == 20
    assert executors.proofs == ["one"] * 2


def test_first_calls_of_other_code_wait_for_a_place_and_not_for_calls(tmp_path: Path) -> None:
    given = parcels(tmp_path, 3 * UPLOADS)

    async def scene(pool: ExecutorPool, executors: Executors) -> list[Any]:
        return [await asked(pool, given), executors]

    found, executors = played(tmp_path, ("one",), scene, seconds=1.0)
    assert found == ["one"] * len(given)
    assert len(executors.uploads) == len(executors.calls) == len(given)
    # A call that runs has given its place of an upload away.
    assert executors.most > UPLOADS


def test_where_the_call_that_brings_the_code_is_cancelled_another_brings_it(tmp_path: Path) -> None:
    [parcel] = parcels(tmp_path, 1)

    async def scene(pool: ExecutorPool, executors: Executors) -> list[Any]:
        first, found = anyio.CancelScope(), []

        async def brings() -> None:
            with first:
                await asked(pool, [parcel])

        async def others() -> None:
            found.extend(await asked(pool, [parcel] * 6))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(brings)
            while not executors.uploads:  # noqa: ASYNC110 - nothing tells of it.
                await anyio.sleep(0.001)
            tasks.start_soon(others)
            await anyio.sleep(0.1)
            first.cancel()
        return [found, executors]

    found, executors = played(tmp_path, ("one",), scene, unpack_seconds=1.0)
    assert found == ["one"] * 6
    assert len(executors.uploads) == 2
    assert len(executors.calls) == 6


def test_one_that_was_gone_shows_its_isolation_again(tmp_path: Path) -> None:
    first, second = parcels(tmp_path, 2)

    async def scene(pool: ExecutorPool, executors: Executors) -> Any:
        found = await asked(pool, [first])
        executors.refuses = {"one"}
        found += await asked(pool, [first])
        executors.refuses = set()
        return [*found, *await asked(pool, [second]), executors]

    *found, executors = played(tmp_path, ("one",), scene)
    assert [str(one) == "one" for one in found] == [True, False, True]
    assert executors.proofs == ["one"] * 4


def test_what_listens_where_one_ended_in_a_call_shows_its_isolation(tmp_path: Path) -> None:
    first, second = parcels(tmp_path, 2)
    executors = Executors(tmp_path)
    executors.unproved = {"two"}

    async def scene() -> list[Any]:
        found: list[Any] = []

        async def is_cut_off() -> None:
            found.extend(await asked(pool, [first]))

        async with anyio.create_task_group() as tasks, executors.running("one") as addresses:
            pool = pool_of(addresses)
            found += await asked(pool, [first])
            executors.seconds = 20.0
            tasks.start_soon(is_cut_off)
            while len(executors.calls) < 2:  # noqa: ASYNC110 - nothing tells of it.
                await anyio.sleep(0.001)
        port = int(addresses[0].rsplit(":", 1)[1][:-4])
        with anyio.fail_after(20):
            async with executors.running("two", port=port):
                return [*found, *await asked(pool, [second])]

    first_answer, cut_off, refused = anyio.run(scene)
    assert first_answer == "one"
    assert isinstance(cut_off, NoAnswerError)
    assert cut_off.is_sent
    assert isinstance(refused, NoAnswerError)
    assert refused.reason == "executor-unproved"
    assert [name for name, _ in executors.uploads] == ["one"]


def test_behind_one_address_each_executor_gets_the_code(tmp_path: Path) -> None:
    [parcel] = parcels(tmp_path, 1)
    executors = Executors(tmp_path)

    async def scene() -> list[Any]:
        async with executors.running("one", "two", "three") as addresses:
            balancer = Balancer([int(url.rsplit(":", 1)[1][:-4]) for url in addresses])
            try:
                with anyio.fail_after(30):
                    return await asked(pool_of([balancer.address]), [parcel] * 24)
            finally:
                balancer.close()

    found = anyio.run(scene)
    assert set(found) == {"one", "two", "three"}
    assert len(executors.calls) == 24
    # Of 24 calls: each executor once, and a few more where two went to one at the same time.
    assert 3 <= len(executors.uploads) <= 12


def test_a_call_goes_round_until_one_takes_it(tmp_path: Path) -> None:
    [parcel] = parcels(tmp_path, 1)

    async def scene(pool: ExecutorPool, executors: Executors) -> list[Any]:
        return [await asked(pool, [parcel] * 6), executors]

    names = ("one", "two", "three", "four")
    refused = {"one", "two", "three"}
    found, executors = played(tmp_path, names, scene, refuses=refused)
    assert found == ["four"] * 6
    assert {name for name, _ in executors.calls} == {"four"}


def test_where_all_refuse_a_call_is_made_once_more_and_not_again(tmp_path: Path) -> None:
    [parcel] = parcels(tmp_path, 1)

    async def scene(pool: ExecutorPool, executors: Executors) -> Any:
        return await asked(pool, [parcel])

    [error] = played(tmp_path, ("one", "two"), scene, refuses={"one", "two"})
    assert isinstance(error, NoAnswerError)
    assert (error.is_sent, error.reason) == (False, "ending")


def test_no_place_gets_code_before_it_is_proved_also_as_the_second(tmp_path: Path) -> None:
    [parcel] = parcels(tmp_path, 1)

    async def scene(pool: ExecutorPool, executors: Executors) -> Any:
        return [*await asked(pool, [parcel]), executors]

    # "one" refuses as the code comes; the other shows nothing, and is tried with the code packed.
    settings: Mapping[str, Any] = {"refuses_code": {"one"}, "unproved": {"two"}}
    found, executors = played(tmp_path, ("one", "two"), scene, **settings)
    assert isinstance(found, NoAnswerError)
    assert executors.uploads == executors.calls == []
    assert set(executors.proofs) == {"one", "two"}


def test_where_one_shows_nothing_the_others_take_the_calls(tmp_path: Path) -> None:
    [parcel] = parcels(tmp_path, 1)

    async def scene(pool: ExecutorPool, executors: Executors) -> Any:
        return [await asked(pool, [parcel] * 8), executors]

    found, executors = played(tmp_path, ("one", "two"), scene, unproved={"one"})
    assert found == ["two"] * 8
    # It was asked once for all of them.
    assert executors.proofs.count("one") == 1


def test_a_token_that_is_new_on_one_side_only_costs_no_call(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"old {digest_of(OLDER)}\n")
    [parcel] = parcels(tmp_path, 1)
    executors = Executors(tmp_path)

    async def scene() -> list[Any]:
        async with executors.running("one", token=TokenFiles(tokens)) as addresses:
            found = await asked(pool_of(addresses), [parcel])
            found += await asked(pool_of(addresses, former=lambda: OLDER), [parcel] * 4)
            tokens.write_text(f"new {digest_of(TOKEN)}\n")
            return found + await asked(pool_of(addresses, former=lambda: OLDER), [parcel])

    refused, *found = anyio.run(scene)
    assert "does not take our token" in str(refused)
    assert found == ["one"] * 5


def files_of(place: Path) -> list[str]:
    return [one.name for one in place.iterdir()]


@pytest.mark.parametrize("count", [1, UPLOADS_EACH])
async def test_one_caller_leaves_a_place_to_the_others(tmp_path: Path, count: int) -> None:
    uploads = Uploads(tmp_path, wait_seconds=0.2)
    async with AsyncExitStack() as kept:
        for _ in range(count):
            await kept.enter_async_context(uploads.place("slow"))
        async with uploads.place("other"):
            pass
        if count == UPLOADS_EACH:
            with pytest.raises(NotBegunError, match="on its way here"):
                await kept.enter_async_context(uploads.place("slow"))
    async with uploads.place("slow") as upload:
        upload.end()
        upload.end()
    assert files_of(tmp_path) == []


async def test_calls_wait_for_code_of_their_own_caller_alone(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, wait_seconds=30.0)
    digest = "skilltree1:" + "0" * 64
    body = packed(request_value("tool.execute", {"context": {"digest": digest}}, id="1"))
    ended: list[str] = []

    async def waits(caller: str) -> None:
        await uploads.wait_for(caller, digest)
        ended.append(caller)

    async with anyio.create_task_group() as tasks, uploads.place("one") as upload:
        uploads.announce(upload, "one", body)
        for caller in ("one", "other"):
            tasks.start_soon(waits, caller)
        await anyio.sleep(0.1)
        assert ended == ["other"]
        upload.end()
        await anyio.sleep(0.1)
        assert ended == ["other", "one"]


@pytest.mark.parametrize("size", [0, 300_000])
def test_an_executor_whose_disk_is_full_says_that_nothing_was_begun(
    tmp_path: Path, size: int
) -> None:
    """Also where the last bytes have no room, which are written as the file is closed."""
    first, second = parcels(tmp_path, 2)
    (second.directory / "data.bin").write_bytes(random.Random(1).randbytes(size))
    second = Parcel(digest=tree_digest(second.directory), directory=second.directory)

    async def scene(pool: ExecutorPool, executors: Executors) -> Any:
        found = await asked(pool, [first])
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, before[1]))
        try:
            return [*found, *await asked(pool, [second])]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    answer, error = played(tmp_path, ("one",), scene)
    assert answer == "one"
    assert isinstance(error, NoAnswerError)
    assert (error.is_sent, error.reason) == (False, "no-room"), str(error)


class Unnamed(RpcClient):
    """Of a name for which no resolver answers."""

    async def addresses(self) -> Sequence[str]:
        await anyio.sleep_forever()
        raise AssertionError


async def test_names_are_looked_up_within_the_time_of_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a name that takes long keeps no other from being found."""
    monkeypatch.setattr(executor_pool, "LOOKS_SECONDS", 0.5)
    clients = [Unnamed("http://gone.example:1", "t"), RpcClient("http://127.0.0.1:1", "t")]
    with anyio.fail_after(30):
        states = await ExecutorPool(clients).states("python")
    assert [(one.id, one.state, bool(one.why)) for one in states] == [
        ("gone.example:1", "silent", False),
        # This one was asked, and refused.
        ("127.0.0.1:1", "silent", True),
    ]


class Named(RpcClient):
    """Of a name that is found late."""

    lookups = 0

    async def addresses(self) -> Sequence[str]:
        self.lookups += 1
        await anyio.sleep(0.1)
        return ("127.0.0.1",)


async def test_a_name_is_looked_up_once_for_all_who_wait_for_it() -> None:
    """A resolver that hangs would take a thread for each of them, of which other names have few."""
    client = Named("http://late.example:1", "t")
    pool = ExecutorPool([client])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(pool.states, "python")
    assert client.lookups == 1

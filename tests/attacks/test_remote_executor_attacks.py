"""Attacks by and on executors elsewhere: stolen tokens, forged answers, code and levels, balancers.

Each is shown on the naive version first: what a plain JSON-RPC client, server or loader does.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import http.server
import io
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import (
    ExecutorPool,
    FixedTokens,
    NoAnswerError,
    Parcel,
    RpcClient,
    RpcError,
    RpcServer,
    ServedTool,
    check_token,
)
from skillhouse.extensions.cells.code_archive import archive_of, unpack
from skillhouse.extensions.cells.code_store import CodeStore
from skillhouse.extensions.cells.rpc import NotBegunError
from skillhouse.extensions.cells.rpc_http import CURRENT, RpcExchange
from skillhouse.extensions.cells.rpc_tokens import TokenCaller, TokenFiles, digest_of
from skillhouse.extensions.cells.served_call import ServedCall
from skillhouse.extensions.cells.service import cell_for
from skillhouse.extensions.cells.worker.executor import CoreAddresses
from skillhouse.floor import tree_digest
from skillhouse.house import SkillCodeSettings
from skillhouse.house.container import ContainerExecutor
from skillhouse.sandbox import SandboxError
from skillhouse.sandbox.code_call import CellResult, CellSpec
from tests.executors import Balancer, answering
from tests.extensions.cells.lab import Core
from tests.house.coded import tool, write_code

TOKEN = "token-of-the-one-core"
OTHER = "token-of-another-core"
BODY = b'{"jsonrpc": "2.0", "method": "health", "id": 1}'


async def ping(params: Any) -> Any:
    return "pong"


def posted(port: int, *lines: str, body: bytes = BODY) -> bytes:
    """Return what a server answers to a request with these headers."""
    head = "".join(f"{line}\r\n" for line in lines)
    length = f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
        stream.sendall(f"POST /rpc HTTP/1.1\r\nHost: x\r\n{length}{head}\r\n".encode() + body)
        found = b""
        with contextlib.suppress(OSError):
            while data := stream.recv(65_536):
                found += data
    return found


def statuses(token: Any, *requests: tuple[str, ...], change: Callable[[], None]) -> list[int]:
    """Return the status of each request to a server, which `change` comes before."""

    async def scene() -> list[int]:
        async with RpcServer({"health": ping}, token=token).listening("127.0.0.1", 0) as port:
            found = []
            for lines in requests:
                change()
                answer = await anyio.to_thread.run_sync(posted, port, *lines)
                found.append(int(answer.split()[1]))
            return found

    return anyio.run(scene)


# --- a stolen token ---


def test_a_stolen_token_is_taken_away_from_a_server_that_runs(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"one {digest_of(TOKEN)}\nthief {digest_of(OTHER)}\n")
    stolen = (f"Authorization: Bearer {OTHER}",)
    kept = (f"Authorization: Bearer {TOKEN}",)

    def take_away() -> None:
        tokens.write_text(f"one {digest_of(TOKEN)}\n")

    naive = FixedTokens(TOKEN, OTHER)
    assert statuses(naive, stolen, kept, change=take_away) == [200, 200]
    tokens.write_text(f"one {digest_of(TOKEN)}\nthief {digest_of(OTHER)}\n")
    checked = TokenFiles(tokens)
    assert statuses(checked, stolen, change=lambda: None) == [200]
    assert statuses(checked, stolen, kept, change=take_away) == [401, 200]
    # All are taken away with the file; a line that is none takes away itself alone.
    assert statuses(checked, kept, change=lambda: tokens.unlink(missing_ok=True)) == [401]
    tokens.write_text(f"one {digest_of(TOKEN)}\ntwo short\n")
    tokens.write_text("a-token#with-a-sign-in-it\n")
    assert TokenFiles(tokens).caller("a-token#with-a-sign-in-it") is not None
    assert TokenFiles(tokens).caller("a-token") is None
    tokens.write_text(f"# note\none {TOKEN}\ntwo short\n")
    said: list[str] = []
    assert TokenFiles(tokens, said.append).names() == ("one",)
    assert "short" not in said[0]


def test_who_reads_the_tokens_of_an_executor_has_none(tmp_path: Path) -> None:
    kept = tmp_path / "tokens"
    kept.write_text(f"one {digest_of(TOKEN)}\n")
    read = [word for line in kept.read_text().splitlines() for word in line.split()]
    # A server that keeps tokens as they are gives them to who reads its disk.
    assert any(FixedTokens("one" * 6, digest_of(TOKEN)).caller(word) for word in read)
    checked = TokenFiles(kept)
    assert not any(checked.caller(word) for word in (*read, read[1].partition(":")[2]))
    caller = checked.caller(TOKEN)
    assert caller is not None
    assert TOKEN not in repr(caller)


def test_an_executor_is_not_sent_to_a_server_of_the_thief(tmp_path: Path) -> None:
    shown: list[str] = []

    def steal(asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        shown.append(headers["authorization"])
        return 200, {"jsonrpc": "2.0", "result": {"content": ""}, "id": asked["id"]}

    async def ask(url: str, token: str) -> None:
        await RpcClient(url, token).ask("core.readFile", {"path": "x"})

    with answering(steal) as thief:
        # The naive one has one token for every core, and asks where the call says.
        anyio.run(ask, thief, TOKEN)
        assert shown == [f"Bearer {TOKEN}"]
        for allowed in (
            ("http://core:8701/rpc",),
            ("http://*.cores.test:8701/rpc",),
            ("https://*/rpc",),
            (),
        ):
            with pytest.raises(RpcError, match="`core` names an address that"):
                CoreAddresses(allowed).of(thief, 0)
    wide = CoreAddresses(["http://*.cores.test/rpc"])
    for url in (
        "http://cores.test/rpc",
        "http://evilcores.test/rpc",
        "http://a.cores.test.evil/rpc",
        "http://a.cores.test@evil/rpc",
        "http://a.cores.test/rpc?x",
        "http://a.cores.test/other",
        "http://a.cores.test/rpc\r\nX: y",
        "https://a.cores.test/rpc",
        "file:///etc/passwd",
    ):
        with pytest.raises(RpcError):
            wide.of(url, 0)
    assert wide.of("http://a.cores.test:9/rpc", 0) == "http://a.cores.test:9/rpc"


def test_two_tokens_share_no_process(tmp_path: Path) -> None:
    spec = CellSpec(skill="one", digest="d", directory=tmp_path, language="python", entry="main.py")
    served = ServedTool(
        name="one:tool", tool="tool", spec=spec, description="", parameters={}, level="read"
    )
    # What a thief says of itself is what the core says whose token is not stolen.
    context = ServedCall(digest="d", permissions="default", meta={"userId": "mika"})

    def cell(name: str) -> CellSpec:
        CURRENT.set(RpcExchange(caller=TokenCaller(name=name, token=TOKEN)))
        return cell_for(served, context, None)

    def cell_of(name: str) -> CellSpec:
        return contextvars.copy_context().run(cell, name)

    assert cell_of("") == cell_of("")
    assert cell_of("one") != cell_of("thief")


# --- an executor, or something before it, that answers otherwise ---


def called(address: str, *, times: int = 1, **settings: Any) -> list[CellResult | str]:
    """Return what comes of calls at an executor: results, or why nothing was run."""
    spec = CellSpec(
        skill="one",
        digest="skilltree1:x",
        directory=Path("/nowhere"),
        language="python",
        entry="main.py",
    )

    async def scene() -> list[CellResult | str]:
        given = {"executor": address, "executor_token": "env:WORD", **settings}
        executor = ContainerExecutor(SkillCodeSettings(enabled=True, **given), {"WORD": TOKEN})
        found: list[CellResult | str] = []
        try:
            for _ in range(times):
                try:
                    found.append(
                        await executor.execute(spec, "tool", {}, meta={}, timeout=5.0, host=Core())
                    )
                except RpcError as error:
                    found.append(str(error))
        finally:
            await executor.close()
        return found

    return anyio.run(scene)


def test_the_answer_to_another_call_is_none(tmp_path: Path) -> None:
    first: list[Any] = []

    def mix_up(asked: dict[str, Any], _: dict[str, str]) -> tuple[int, Any]:
        answer = {
            "jsonrpc": "2.0",
            "result": {"success": True, "data": "of one"},
            "id": asked["id"],
        }
        first.append(answer)
        return 200, first[0]

    with answering(mix_up) as address:
        # The naive client counts its requests from 1: two cores have the same numbers.
        naive = {"jsonrpc": "2.0", "method": "tool.execute", "params": {}, "id": 1}
        port = int(address.split(":")[2].split("/")[0])
        answers = [posted(port, body=json.dumps(naive).encode()) for _ in range(2)]
        taken = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
        assert [answer["id"] == naive["id"] for answer in taken] == [True, True]
        first.clear()
        mine, other = called(address), called(address)
    assert [one.kind for one in (*mine, *other) if isinstance(one, CellResult)] == ["ok", "unknown"]
    assert isinstance(other[0], CellResult)
    assert "of one" not in f"{other[0].value}{other[0].error}"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 403, 429])
def test_a_balancer_promises_nothing_about_a_call_that_it_passed_on(status: int) -> None:
    begun: list[str] = []

    def pass_on(asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        begun.append(headers["skillhouse-call"])
        # A mark of another request, as from a cache or a clever neighbour.
        return status, {"not-begun": begun[0]}

    with answering(pass_on) as address:
        # The naive client takes a 503 for "not begun", and has the effect twice.
        port = int(address.split(":")[2].split("/")[0])
        for _ in range(2):
            if int(posted(port, "Skillhouse-Call: a").split()[1]) != 503:
                break
        assert len(begun) == (2 if status == 503 else 1)
        begun.clear()
        [found] = called(address)
    assert isinstance(found, CellResult)
    assert (found.kind, len(begun)) == ("unknown", 1)


def test_only_the_word_of_this_request_says_that_nothing_was_begun() -> None:
    calls: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            calls.append(self.headers["Skillhouse-Call"])
            self.send_response(503)
            # That of an earlier request: what it answered to that one may be known to anyone.
            self.send_header("Skillhouse-Not-Begun", calls[0])
            self.send_header("Retry-After", "999999999")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/rpc"
        # The first request has its own word: it is made once more, in bounded time, and that one
        # has the word of the first.
        [found] = called(address)
    finally:
        server.shutdown()
        server.server_close()
    assert isinstance(found, CellResult)
    assert (found.kind, len(calls)) == ("unknown", 2)


def test_an_executor_that_always_wants_the_code_gets_it_once(tmp_path: Path) -> None:
    seen: list[int] = []

    def wants(asked: dict[str, Any], _: dict[str, str]) -> tuple[int, Any]:
        seen.append(len(asked["archives"]))
        error = {"code": -32005, "message": "no", "data": {"reason": "code-missing"}}
        return 200, {"jsonrpc": "2.0", "error": error, "id": asked["id"]}

    skill = write_code(tmp_path / "one", "tools = {}", tool())

    async def scene(address: str) -> None:
        pool = ExecutorPool([RpcClient(address, TOKEN)])
        parcel = Parcel(digest=tree_digest(skill), directory=skill)
        with pytest.raises(RpcError, match="gets no code"):
            await pool.ask("tool.execute", {"context": {}}, parcel)

    with answering(wants) as address:
        anyio.run(scene, address)
    # The call, and our own small skill; the code of the skill was not sent.
    assert [bool(size) for size in seen] == [False, True]


# --- swapped code ---


def test_other_code_is_not_taken_under_a_digest(tmp_path: Path) -> None:
    good = write_code(tmp_path / "good/one", "tools = {}", tool())
    evil = write_code(tmp_path / "evil/one", "import os\ntools = {}", tool())
    digest = tree_digest(good)
    # The naive store keeps what is sent by the name that comes with it.
    naive = {digest: (evil / "main.py").read_text()}
    assert "import os" in naive[digest]
    store = CodeStore(tmp_path / "store", shared={})
    sent = tmp_path / "sent"
    sent.write_bytes(b"".join(archive_of(evil).parts()))
    with pytest.raises(SandboxError, match="what was sent as code is not what the call names"):
        store.take(sent, ServedCall(digest=digest))
    assert store.tools(digest) == ()
    sent.write_bytes(b"".join(archive_of(good).parts()))
    store.take(sent, ServedCall(digest=digest))
    assert [one.name for one in store.tools(digest)] == ["one:tool"]
    # Packages, likewise.
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "mod.py").write_text("A = 1")
    wanted = archive_of(packages).digest
    (packages / "mod.py").write_text("A = 2")
    call = ServedCall(digest=digest, packages="0" * 64, packages_digest=wanted)
    with sent.open("ab") as file:
        file.writelines(archive_of(packages).parts())
    with pytest.raises(SandboxError, match="what was sent as packages is not what the call names"):
        store.take(sent, call)
    assert store.packages(call) is None


def packed(*files: tuple[Any, bytes], digest: str | None = None) -> bytes:
    rows = [
        [path, False, len(data), digest or hashlib.sha256(data).hexdigest()] for path, data in files
    ]
    head = json.dumps(rows).encode()
    return struct.pack("!I", len(head)) + head + b"".join(data for _, data in files)


@pytest.mark.parametrize(
    "archive",
    [
        packed(("../outside", b"x")),
        packed(("a/../../outside", b"x")),
        packed(("/outside", b"x")),
        packed(("a", b"x"), ("a/outside", b"x")),
        packed(("a", b"x"), ("a", b"y")),
        packed((".", b"x")),
        packed(("a\0b", b"x")),
        packed((5, b"x")),
        packed(("a", b"x"), digest="0" * 64),
        packed(("a", b"xyz"))[:-1],
        struct.pack("!I", 1 << 31),
        struct.pack("!I", 4) + b"nope",
        struct.pack("!I", 27) + b'[["a", false, -1, "0000"]]  ',
        struct.pack("!I", 33) + b'[["a", false, 99999999999, "00"]]',
        b"",
    ],
)
def test_an_archive_writes_nothing_outside(tmp_path: Path, archive: bytes) -> None:
    if b"../outside" in archive:
        # The naive loader joins the names.
        naive = tmp_path / "naive/deep"
        (naive / "a").mkdir(parents=True)
        (length,) = struct.unpack("!I", archive[:4])
        [[name, *_]] = json.loads(archive[4 : 4 + length])
        (naive / name).write_bytes(b"x")
        assert (tmp_path / "naive/outside").exists()
    place = tmp_path / "deep/place"
    place.mkdir(parents=True)
    with pytest.raises(SandboxError, match="is not taken"):
        unpack(io.BytesIO(archive), place, max_bytes=1 << 20)
    assert not [path for path in tmp_path.rglob("outside") if "naive" not in path.parts]


# --- an executor that says more of itself than is true ---


class OwnProcess:
    """An executor as one writes it: what is sent is imported here. It says that it is `cgroup`."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, Any]] = {}
        self.ran: list[str] = []

    def __call__(self, asked: dict[str, Any], _: dict[str, str]) -> tuple[int, Any]:
        params, answer = asked["params"], {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["method"] == "health":
            return 200, {**answer, "result": {"status": "ok", "level": "cgroup"}}
        digest = params["context"]["digest"]
        if asked["archives"]:
            self.modules.setdefault(digest, self._imported(asked["archives"]))
        if digest not in self.modules:
            error = {"code": -32005, "message": "no", "data": {"reason": "code-missing"}}
            return 200, {**answer, "error": error}
        name = params["tool"]
        self.ran.append(name)
        value = self.modules[digest]["tools"][name.partition(":")[2]](params["args"], None)
        return 200, {**answer, "result": {"success": True, "data": value}}

    def _imported(self, archives: bytes) -> dict[str, Any]:
        (length,) = struct.unpack("!I", archives[:4])
        at = 4 + length
        module: dict[str, Any] = {"__file__": "/nowhere/main.py", "__name__": "main"}
        for path, _, size, _ in json.loads(archives[4:at]):
            if path == "main.py":
                exec(archives[at : at + size], module)
            at += size
        return module


@pytest.fixture
def left_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove what our small skill leaves where nothing holds it."""
    monkeypatch.chdir(tmp_path)
    yield
    for place in ("/tmp", "/dev/shm", "/var/tmp"):
        for path in Path(place).glob("proof-*"):
            path.unlink()


@pytest.mark.usefixtures("left_files")
def test_an_executor_that_isolates_nothing_gets_no_code_whatever_it_says(tmp_path: Path) -> None:
    skill = write_code(
        tmp_path / "one", "def tool(params, context):\n    return 1\ntools = {'tool': tool}", tool()
    )
    executor = OwnProcess()

    async def scene(address: str) -> str:
        client = RpcClient(address, TOKEN)
        # The naive core believes what the executor says of its level.
        assert (await client.ask("health", {}))["level"] == "cgroup"
        pool = ExecutorPool([client])
        parcel = Parcel(digest=tree_digest(skill), directory=skill)
        params = {"tool": "one:tool", "args": {}, "context": {"digest": parcel.digest}}
        with pytest.raises(NoAnswerError) as caught:
            await pool.ask("tool.execute", params, parcel)
        assert not caught.value.is_sent
        return str(caught.value)

    with answering(executor) as address:
        said = anyio.run(scene, address)
    assert "gets no code: code in it reached" in said
    assert "the network" in said
    assert set(executor.ran) == {"proof:tries"}


# --- balancers and names ---

ADDED = (
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: localhost",
    "Forwarded: for=127.0.0.1;proto=https",
    "X-Real-IP: 127.0.0.1",
    "X-Forwarded-Client-Cert: Subject=core",
    "X-Forwarded-User: core",
    "X-Original-URL: /readyz",
)


def test_what_a_balancer_adds_opens_nothing_and_closes_nothing() -> None:
    def naive(asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        is_near = headers.get("x-forwarded-for", "").startswith("127.")
        return (200 if is_near or "authorization" in headers else 401), {}

    with answering(naive) as address:
        port = int(address.split(":")[2].split("/")[0])
        assert int(posted(port, ADDED[0]).split()[1]) == 200
    good = f"Authorization: Bearer {TOKEN}"
    requests = [(), ADDED, (good, *ADDED), (good, "Origin: http://evil.test")]
    found = statuses(TOKEN, *requests, change=lambda: None)
    assert found == [401, 401, 200, 401]

    async def scene() -> Any:
        async with RpcServer({"health": ping}, token=TOKEN).listening("127.0.0.1", 0) as port:
            head = "".join(f"{line}\r\n" for line in ADDED).encode()
            balancer = Balancer([port], head=head)
            try:
                return await RpcClient(balancer.address, TOKEN).ask("health", {})
            finally:
                balancer.close()

    assert anyio.run(scene) == "pong"


@pytest.mark.parametrize(
    "bad",
    [
        "a-token-of-enough\r\nX-Admin: 1",
        "a-token-of-enough\nX-Admin: 1",
        "a-token-of-enough\x00letters",
        "a-token-of-enough X-Admin",
        "a-token-of-enough\u2028letters",
    ],
)
def test_no_name_or_token_becomes_a_header(tmp_path: Path, bad: str) -> None:
    naive = f"POST /rpc HTTP/1.1\r\nAuthorization: Bearer {bad}\r\n\r\n"
    if "\n" in bad:
        assert any(line.startswith("X-Admin") for line in naive.splitlines())
    with pytest.raises(ValueError, match="expected a token"):
        check_token(bad)
    with pytest.raises(ValueError, match="expected a token"):
        FixedTokens(bad)
    tokens = tmp_path / "tokens"
    tokens.write_bytes(f"one {TOKEN}\n{bad} {OTHER}\n".encode())
    # A line of one word is a token of the name "core".
    assert set(TokenFiles(tokens).names()) <= {"one", "core"}
    for url in (f"http://{bad}/rpc", f"http://core:1/{bad}", f"http://core:1/rpc?{bad}"):
        with pytest.raises(ValueError, match="expected an address"):
            RpcClient(url, TOKEN)


def test_the_word_of_a_request_comes_back_as_one_header(tmp_path: Path) -> None:
    async def full(params: Any) -> Any:
        raise NotBegunError(-32005, "full\r\nX-Admin: 1", reason="busy")

    async def scene() -> list[bytes]:
        async with RpcServer({"health": full}, token=TOKEN).listening("127.0.0.1", 0) as port:
            good = f"Authorization: Bearer {TOKEN}"
            words = (
                ("Skillhouse-Call: a", "Skillhouse-Call: b"),
                ("Skillhouse-Call: a\tX-Admin: 1",),
                ("Skillhouse-Call: \x7f\x01",),
                (),
            )
            return [await anyio.to_thread.run_sync(posted, port, good, *lines) for lines in words]

    for answer in anyio.run(scene):
        head = answer.partition(b"\r\n\r\n")[0]
        names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
        assert b"x-admin" not in names
        assert answer.split()[1] in (b"503", b"400")

"""Tests of signer/process.py and signer/__main__.py, with real processes."""

from __future__ import annotations

import hashlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from skillhouse.floor import system_clock
from skillhouse.store import STATE, Store
from skillhouse_signer import (
    STATE_FILE,
    KeyInfo,
    KeyKind,
    PasswordSource,
    Signature,
    SignerError,
    SignerProcess,
    new_request,
    terms_from,
    with_approval,
)
from skillhouse_signer.request import FRAME_MAX, LENGTH, Ask, SignerReply, framed, packed, unpacked
from tests.harness import ran
from tests.signer.places import PASSWORD, process

pytestmark = pytest.mark.slow

WAIT_SECONDS = 10.0
CANARY = hashlib.sha256(b"canary").digest()


async def hello(signer: SignerProcess, key: KeyInfo, approval: str = "yes") -> Signature:
    request = new_request(key, "message", b"hello", system_clock().wall_ms)
    return await signer.sign(with_approval(request, request.binding, approval))


async def test_another_process_signs(tmp_path: Path) -> None:
    with process(tmp_path) as signer:
        key = await signer.new_key("main", KeyKind.ED25519)
        signed = await hello(signer, key)
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public_key))
        public.verify(signed.signature, b"hello")
        assert signer.pid not in (None, os.getpid())
        assert await signer.open() == (key,)


async def test_every_request_has_its_verb(tmp_path: Path) -> None:
    terms = terms_from((f"eip155:1={2**60}/{2**61}", "message=1/1"))
    with process(tmp_path) as signer:
        key = await signer.new_key("main", KeyKind.ED25519)
        session = await signer.new_session("bot", KeyKind.ED25519, terms=terms, seconds=60)
        assert session.terms == terms
        assert (await signer.rotate_session("bot")).terms == terms
        assert (await signer.set_terms("main", terms)).terms == terms
        await signer.accept()
        assert (await signer.remove_key("main")).id == key.id
        with pytest.raises(SignerError, match="no key `main`; there are `bot`"):
            await hello(signer, key)


async def test_a_signer_that_was_killed_is_an_error_and_starts_again(tmp_path: Path) -> None:
    with process(tmp_path) as signer:
        key = await signer.new_key("main", KeyKind.ED25519)
        assert signer.pid is not None
        os.kill(signer.pid, signal.SIGKILL)
        with pytest.raises(SignerError) as caught:
            await hello(signer, key)
        assert caught.value.code == "signer-gone"
        await hello(signer, key, "second")


async def test_requests_at_once_get_their_own_answers(tmp_path: Path) -> None:
    found: dict[str, bool] = {}

    async def one(signer: SignerProcess, key: KeyInfo, number: int) -> None:
        text = f"message {number}".encode()
        request = new_request(key, "message", text, system_clock().wall_ms)
        signed = await signer.sign(with_approval(request, request.binding, str(number)))
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public_key))
        public.verify(signed.signature, text)
        found[str(number)] = True

    with process(tmp_path) as signer:
        key = await signer.new_key("main", KeyKind.ED25519)
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, signer, key, number)
    assert len(found) == 20


async def test_a_cancelled_request_does_not_spoil_the_next(tmp_path: Path) -> None:
    with process(tmp_path) as signer:
        key = await signer.new_key("main", KeyKind.ED25519)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await hello(signer, key, "first")
        await hello(signer, key, "second")


@pytest.mark.parametrize(
    ("source", "message"),
    [("env:SIGNER_TEST", "holds no password"), ("fd:987", "no open descriptor 987")],
)
async def test_a_password_that_is_not_there_is_an_error(
    tmp_path: Path, source: str, message: str
) -> None:
    signer = SignerProcess(
        tmp_path / "keys.json",
        tmp_path / "state.sqlite3",
        password=PasswordSource.parse(source),
        environment={},
    )
    with pytest.raises(SignerError, match=message):
        await signer.open()


@pytest.mark.parametrize("text", ["secret", "fd:", "fd:0", "fd:x", "env:", "tty", "fd:²"])
def test_a_password_itself_is_no_source(text: str) -> None:
    with pytest.raises(SignerError, match=r"expected `terminal`"):
        PasswordSource.parse(text)


def test_without_a_terminal_nobody_is_asked(tmp_path: Path) -> None:
    code = (
        "import anyio, os, sys; from pathlib import Path\n"
        "from skillhouse_signer import *\n"
        "signer = SignerProcess(Path('keys.json'), Path('s.sqlite3'), environment=os.environ)\n"
        "try: anyio.run(signer.new_key, 'main', KeyKind.ED25519)\n"
        "except SignerError as error: print(error.code)\n"
    )
    done = ran(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        timeout=60,
        start_new_session=True,
    )
    assert (done.stdout, done.stderr) == ("no-terminal\n", "")


HOUSE = """
import anyio, os, sys
from pathlib import Path
from skillhouse_signer import *
from skillhouse.floor import system_clock

async def main(base, number):
    signer = SignerProcess(base / "keys.json", base / "state.sqlite3", imported=number, cost=14,
        password=PasswordSource.parse("env:SIGNER_TEST"), environment=os.environ)
    key = await signer.new_key("main", KeyKind.ED25519, is_import=True)
    request = new_request(key, "message", b"hello", system_clock().wall_ms)
    await signer.sign(with_approval(request, request.binding, "yes"))
    loaded = [n for n in sys.modules if n.split(".")[0] in ("eth_account", "cryptography")]
    print(signer.pid, "skillhouse_signer.crypto" in sys.modules, loaded, flush=True)
    sys.stdin.read()

anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
"""


@contextmanager
def house(base: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Yield a house with a signer that imported `CANARY`, the signer's pid, and what is loaded."""
    theirs, ours = os.pipe()
    os.write(ours, CANARY.hex().encode())
    os.close(ours)
    started = subprocess.Popen(
        [sys.executable, "-c", HOUSE, str(base), str(theirs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(theirs,),
        env={"SIGNER_TEST": PASSWORD, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )
    os.close(theirs)
    try:
        assert started.stdout is not None
        pid, rest = started.stdout.readline().split(" ", 1)
        yield started, int(pid), rest.strip()
    finally:
        started.kill()
        started.communicate()


def memory_holds(pid: int, wanted: tuple[bytes, ...]) -> bool:
    """Whether a process has one of these bytes anywhere in what it can write."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if not found:
                continue
            start, end = (int(text, 16) for text in found.groups())
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, ValueError):
                continue
            if any(text in data for text in wanted):
                return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_house_never_has_a_private_key_in_its_memory(tmp_path: Path) -> None:
    forms = (CANARY, CANARY.hex().encode())
    with house(tmp_path) as (started, pid, loaded):
        assert loaded == "False []"
        assert not memory_holds(started.pid, forms)
        # Who may look into the signer finds it there, so the search would have; others may not.
        try:
            assert memory_holds(pid, forms)
        except PermissionError:
            assert os.geteuid() != 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_argument_and_no_variable_of_the_signer_is_the_password(tmp_path: Path) -> None:
    with house(tmp_path) as (_, pid, _loaded):
        assert PASSWORD.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        if os.geteuid() == 0:
            assert PASSWORD.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no pidfd")
def test_the_signer_ends_with_a_house_that_was_killed(tmp_path: Path) -> None:
    with house(tmp_path) as (started, pid, _):
        handle = os.pidfd_open(pid)
        try:
            started.kill()
            assert select.select([handle], [], [], WAIT_SECONDS)[0] == [handle]
        finally:
            os.close(handle)


@contextmanager
def bare() -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Yield the socket of a signer that was told nothing yet."""
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_SECONDS)
    started = subprocess.Popen(
        [sys.executable, "-I", "-m", "skillhouse_signer", str(theirs.fileno()), "-1", "-1"],
        pass_fds=(theirs.fileno(),),
        stderr=subprocess.DEVNULL,
    )
    theirs.close()
    try:
        yield ours, started
    finally:
        ours.close()
        started.wait(WAIT_SECONDS)


def answer(link: socket.socket) -> SignerReply:
    (length,) = LENGTH.unpack(link.recv(LENGTH.size, socket.MSG_WAITALL))
    return unpacked(link.recv(length, socket.MSG_WAITALL), SignerReply)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"[" * 200_000,
        b"{}",
        b'{"number": 1, "verb": "sign", "body": 7}',
        packed(Ask(number=1, verb="exec", body=b"{}")),
        packed(Ask(number=1, verb="__init__", body=b"{}")),
        packed(Ask(number=1, verb="sign", body=b"{}")),
        packed(Ask(number=1, verb="sign", body=b'{"a":' * 100_000)),
        packed(Ask(number=1, verb="accept", body=b'{"name": ""}')),
    ],
    ids=range(9),
)
def test_a_frame_that_makes_no_sense_is_answered_and_the_signer_goes_on(content: bytes) -> None:
    with bare() as (link, started):
        for _ in range(2):
            link.sendall(LENGTH.pack(len(content)) + content)
            assert answer(link).code in ("signer-failed", "unknown-key")
        assert started.poll() is None


@pytest.mark.parametrize("length", [0, FRAME_MAX + 1, 0xFFFFFFFF])
def test_a_length_out_of_bounds_ends_the_signer(length: int) -> None:
    with bare() as (link, started):
        link.sendall(LENGTH.pack(length))
        assert started.wait(WAIT_SECONDS) != 0


def test_a_signature_is_asked_of_an_opened_keystore_only() -> None:
    with bare() as (link, _):
        key = KeyInfo(id="x", name="x", kind=KeyKind.ED25519, public_key="", created_ms=0)
        request = new_request(key, "message", b"hello", 0)
        link.sendall(framed(Ask(number=1, verb="sign", body=packed(request))))
        assert answer(link).code == "unknown-key"


def test_a_signer_that_dies_has_counted_all_that_it_gave_out(tmp_path: Path) -> None:
    received = 0
    codes: list[str] = []

    async def one(signer: SignerProcess, key: KeyInfo, approval: str, kill_at: int) -> None:
        nonlocal received
        try:
            await hello(signer, key, approval)
        except SignerError as error:
            codes.append(error.code)
            return
        received += 1
        if received == kill_at and signer.pid is not None:
            os.kill(signer.pid, signal.SIGKILL)

    async def main() -> int:
        terms = terms_from(("message=1/1000",))
        with process(tmp_path) as signer:
            key = await signer.new_key("main", KeyKind.ED25519, terms=terms)
            for turn in range(1, 6):
                async with anyio.create_task_group() as tasks:
                    for number in range(6):
                        approval = f"{turn}-{number}"
                        tasks.start_soon(one, signer, key, approval, received + turn)
            return spent(tmp_path / STATE_FILE)

    counted = anyio.run(main)
    assert set(codes) == {"signer-gone"}
    # Each death can take one answer along that was counted already.
    assert received <= counted <= received + 5


def spent(state: Path) -> int:
    with Store(state, STATE) as store:
        return sum(int(amount) for (amount,) in store.rows("SELECT spent FROM sign_counter"))

"""The judge that stays: it answers one request a connection, and ends when it is not needed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from skillhouse.floor.paths import unix_address
from skillhouse.frontends.hooks import server as server_module
from skillhouse.frontends.hooks.judge import HookAnswer, HookRequest
from skillhouse.frontends.hooks.server import JudgeServer, request_of
from tests.frontends.hooks.hooked_home import HookedHome, effect_of
from tests.harness import until


@pytest.fixture
def home(tmp_path: Path) -> Iterator[HookedHome]:
    made = HookedHome(tmp_path)
    yield made
    made.end()


def test_a_request_is_five_words_and_an_event() -> None:
    found = request_of(b"codex\0watch\0before\0/w\0\0{\0}")
    assert found is not None
    assert (found.client, found.mode, found.moment, found.directory, found.project) == (
        "codex",
        "watch",
        "before",
        "/w",
        "",
    )
    assert found.event == b"{\0}"
    for data in (b"", b"a\0b\0c\0d\0e", b"x" * 70_000 + b"\0" * 5):
        assert request_of(data) is None


async def _served(home: HookedHome, *, idle: float) -> asyncio.Task[None]:
    server = JudgeServer(home.directory, home.judge, idle_seconds=idle)
    task = asyncio.create_task(server.serve())
    assert await asyncio.to_thread(until, (home.directory / "judge.sock").exists)
    return task


async def _asked(home: HookedHome, data: bytes) -> bytes:
    with unix_address(home.directory / "judge.sock") as address:
        reader, writer = await asyncio.open_unix_connection(address)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_it_answers_and_ends_when_no_hook_comes(home: HookedHome) -> None:
    task = await _served(home, idle=0.3)
    event = json.dumps(home.event("Bash", {"command": "git push"})).encode()
    head = b"\0".join((b"claude-code", b"enforce", b"before", os.fsencode(home.project), b""))
    answer = (await _asked(home, head + b"\0" + event)).split(b"\0")
    assert (answer[0], answer[2]) == (b"0", b"")
    assert effect_of(HookAnswer(output=answer[1].decode()))[0] == "deny"
    assert (await _asked(home, b"junk")).startswith(b"2\0\0")
    await asyncio.wait_for(task, 10)
    assert not (home.directory / "judge.sock").exists()


async def test_a_hook_waits_for_a_judge_that_is_slow_and_works(
    home: HookedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that is busy twenty hooks at once would else each judge by themselves, and none
    of them in time."""
    answer = home.judge.answer

    def work() -> None:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            pass

    async def slow(request: HookRequest) -> HookAnswer:
        await asyncio.to_thread(work)
        return await answer(request)

    monkeypatch.setattr(home.judge, "answer", slow)
    task = await _served(home, idle=0.3)
    line = home.line()
    # No hook can judge by itself, nor start another judge.
    (home.directory / "program").write_text("/bin/false")
    event = home.event("Bash", {"command": "git push"})
    done = await asyncio.to_thread(home.run, line, event)
    assert (done.returncode, done.stderr) == (0, b"")
    assert effect_of(HookAnswer(output=done.stdout.decode()))[0] == "deny"
    await asyncio.wait_for(task, 10)


async def test_it_ends_when_its_socket_is_gone(
    home: HookedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LOOK_SECONDS", 0.05)
    task = await _served(home, idle=600)
    (home.directory / "judge.sock").unlink()
    (home.directory / "judge.sock").write_text("another")
    await asyncio.wait_for(task, 10)
    assert (home.directory / "judge.sock").read_text() == "another"


async def test_only_its_own_user_is_answered(
    home: HookedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_is_own_user", lambda peer: not peer)
    task = await _served(home, idle=0.2)
    with suppress(ConnectionError):
        assert await _asked(home, b"a\0b\0c\0d\0e\0{}") == b""
    await asyncio.wait_for(task, 10)


def test_the_user_of_a_peer_is_the_kernels_word() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert server_module._is_own_user(ours)  # noqa: SLF001

"""Tests of calls under way over every transport: cancelled, told of, and of tools that come."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from skillhouse.audit import read_records
from tests.frontends.mcp_inside import ERAS
from tests.frontends.mcp_peer import (
    LEGACY,
    PATIENCE_SECONDS,
    Peer,
    connected,
    has_sandbox,
    place_of,
    running,
    text_of,
)
from tests.harness import Need
from tests.house.coded import best_sandbox, tool, write_code
from tests.sandbox.places import own

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

TRANSPORTS = ["stdio", "http"]
ALLOWED = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "sleep *"\n'
CODE = "[skill_code]\nenabled = true\n"


async def until(holds: Callable[[], bool]) -> None:
    """Wait for another process."""

    def waited() -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.02)

    await anyio.to_thread.run_sync(waited)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
def test_a_cancelled_call_leaves_no_process_and_has_an_outcome(
    peer: Peer, transport: str, mode: str, need: Need
) -> None:
    """By `notifications/cancelled`, and since 2026-07-28 over HTTP by closing the stream."""
    need(has_sandbox(), "bubblewrap that can make namespaces")
    peer.configure(ALLOWED)
    # Its own for each case: they run side by side, and all look through the process table.
    marked = own(86398)

    async def work(place: tuple[str, str]) -> None:
        async with connected(peer, place, mode) as client, anyio.create_task_group() as tasks:
            await client.list_tools()
            scope = anyio.CancelScope()

            async def call() -> None:
                with scope:
                    await client.call_tool("exec", {"command": "sleep", "params": [marked]})

            tasks.start_soon(call)
            await until(lambda: running(marked))
            scope.cancel()
            await until(lambda: not running(marked))
            # The connection goes on.
            assert "exec" in [tool.name for tool in (await client.list_tools()).tools]
            await until(lambda: read_records(peer.log)[0].outcome is not None)

    with place_of(peer, transport) as place:
        anyio.run(work, place)
    [entry] = [e for e in read_records(peer.log) if e.record.kind == "intent"]
    assert entry.outcome is not None
    assert (entry.status, entry.outcome.reason) == ("error", "cancelled")


TELLS = """
    import time

    def tool(params, context):
        for step in range(1, 5):
            context.progress(step / 4, f"step {step}")
            time.sleep(0.15)
        context.progress(0.1, "back")
        return {"done": True}

    tools = {"tool": tool}
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
def test_progress_reaches_a_client_that_asked_for_it(
    peer: Peer, transport: str, mode: str, need: Any
) -> None:
    best_sandbox(need)
    peer.configure(CODE)
    write_code(peer.home / ".agents/skills/slow-one", TELLS)
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async def work(place: tuple[str, str]) -> None:
        async with connected(peer, place, mode) as client:
            untold = await client.call_tool("slow-one__tool", {})
            assert not untold.is_error, untold
            assert told == []
            assert not (
                await client.call_tool("slow-one__tool", {}, progress_callback=hear)
            ).is_error

    with place_of(peer, transport) as place:
        anyio.run(work, place)
    amounts = [progress for progress, _, _ in told]
    assert amounts == sorted(set(amounts))
    assert told[-1] == (1.0, 1.0, "step 4")
    assert 1 < len(told) <= 4


ANY = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
WAITS = "echo up; while [ ! -e go ]; do sleep 0.05; done; echo down"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
def test_lines_of_a_command_reach_the_client_while_it_runs(
    peer: Peer, transport: str, mode: str, need: Callable[[object, str], None]
) -> None:
    need(has_sandbox(), "bubblewrap that can make namespaces")
    peer.configure(ANY)
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        # The command waits for it: a line that came with the result would hang this test.
        (peer.project / "go").touch()

    async def work(place: tuple[str, str]) -> None:
        async with connected(peer, place, mode) as client:
            given = {"command": f"sh -c '{WAITS}'"}
            result = await client.call_tool("exec", given, progress_callback=hear)
            assert (result.is_error, text_of(result)) == (False, "up\ndown\n")

    with place_of(peer, transport) as place:
        anyio.run(work, place)
    assert told == [(1.0, None, "up"), (2.0, None, "down")]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
def test_a_client_reads_and_ends_a_command_in_the_background(
    peer: Peer, transport: str, mode: str, need: Callable[[object, str], None]
) -> None:
    need(has_sandbox(), "bubblewrap that can make namespaces")
    peer.configure(ANY)
    marked = own(86397)

    async def work(place: tuple[str, str]) -> None:
        async with connected(peer, place, mode) as client:

            async def call(tool: str, **given: object) -> str:
                result = await client.call_tool(tool, given)
                assert not result.is_error, result
                return text_of(result)

            started = await call(
                "exec", command=f"sh -c '{WAITS}; exec sleep {marked}'", background=True
            )
            found = re.search(r"in the background as (\w+)", started)
            assert found, started
            name, text = found[1], ""
            while "up" not in text:
                text = await call("exec_output", id=name, wait_seconds=1)
            assert "down" not in text
            (peer.project / "go").touch()
            while "down" not in text:
                text = await call("exec_output", id=name, offset=3, wait_seconds=1)
            assert text.startswith("down\n")
            await until(lambda: running(marked))
            assert "by `exec_stop`" in await call("exec_stop", id=name)
            assert not running(marked)
            assert name in await call("exec_output")

    with place_of(peer, transport) as place:
        anyio.run(work, place)


PRICE = """
    def get_price(params, context):
        return {{"success": True, "price": {price}}}

    tools = {{"get_price": get_price}}
"""


@pytest.mark.parametrize("mode", ERAS)
def test_a_skills_tools_come_and_change_under_their_wire_names(
    peer: Peer, mode: str, need: Any
) -> None:
    best_sandbox(need)
    peer.configure(CODE)
    skill = peer.home / ".agents/skills/crypto-price"

    async def main() -> None:
        told = anyio.Event()

        async def handle(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                told.set()

        async with peer.client(mode, message_handler=handle) as client:

            async def changed(listening: Any) -> None:
                nonlocal told
                await anyio.to_thread.run_sync(peer.skillhouse, "reload")
                if mode == LEGACY:
                    await told.wait()
                    told = anyio.Event()
                else:
                    await anext(listening)

            async def price() -> str:
                result = await client.call_tool("crypto-price__get_price", {"coin": "bitcoin"})
                assert not result.is_error, result
                return text_of(result)

            async def play(listening: Any) -> None:
                write_code(skill, PRICE.format(price=1), tool("get_price"))
                await changed(listening)
                tools = {one.name: one for one in (await client.list_tools()).tools}
                assert tools["crypto-price__get_price"].description == "Does get_price."
                assert '"price": 1' in await price()
                source = textwrap.dedent(PRICE.format(price=2))
                (skill / "main.py").write_text(source)
                # Another process reloads; this one takes edited code with the next call.
                await anyio.to_thread.run_sync(peer.skillhouse, "reload")
                assert '"price": 2' in await price()
                (skill / "pyproject.toml").unlink()
                await changed(listening)
                names = [one.name for one in (await client.list_tools()).tools]
                assert "crypto-price__get_price" not in names

            names = [one.name for one in (await client.list_tools()).tools]
            assert "crypto-price__get_price" not in names
            if mode == LEGACY:
                await play(None)
            else:
                async with client.listen(tools_list_changed=True) as listening:
                    await play(aiter(listening))

    anyio.run(main)

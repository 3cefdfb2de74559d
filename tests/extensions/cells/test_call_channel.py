"""Tests of a call's conversation: cells/call_channel.py, without a cell."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import anyio
import pytest
from tests.extensions.cells.lab import Core

from skillhouse.extensions.cells import Capabilities
from skillhouse.extensions.cells.call_channel import BURST, TURN, CallChannel
from skillhouse.extensions.cells.rpc import framed, request_value, result_value

LOG = framed({"jsonrpc": "2.0", "method": "core.log", "params": {"text": "x"}})
ANSWER = framed(result_value("1", "done"))


async def turns_of_others(pieces: Sequence[bytes], kind: socket.SocketKind) -> int:
    """Return how often another task came to a turn while a call said all this and its answer."""
    capabilities = Capabilities()
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    with ours, theirs:
        ours.setblocking(False)
        for piece in (*pieces, ANSWER):
            theirs.send(piece)
        with capabilities.of(Core()) as token:
            dialogue = CallChannel(ours, capabilities=capabilities, token=token, number="1")
            dialogue.begin("tool.execute", {})
            task = asyncio.get_running_loop().create_task(other())
            answer = await dialogue.answer()
            task.cancel()
    assert answer.result == "done"
    return turns


@pytest.mark.parametrize("count", [BURST // 2, 2 * BURST])
def test_messages_that_are_there_already_leave_others_their_turns(count: int) -> None:
    assert anyio.run(turns_of_others, [LOG * count], socket.SOCK_STREAM) >= count // TURN // 2


def test_a_message_byte_by_byte_leaves_others_their_turns() -> None:
    # Each packet is read by itself, as from a sender that is as quick as the reader.
    data = framed(request_value("core.log", {"text": "x" * 100}, id=None))
    pieces = [data[place : place + 1] for place in range(len(data))]
    assert len(pieces) > 100
    assert anyio.run(turns_of_others, pieces, socket.SOCK_SEQPACKET) >= len(pieces) // TURN // 2

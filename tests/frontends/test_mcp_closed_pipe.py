"""Tests of the end of the MCP server when its client closes a pipe, at any moment."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.frontends.mcp.closed_pipe import ClosedPipeWatch
from tests.frontends.mcp_peer import PATIENCE_SECONDS, Peer, Pipe, has_sandbox, running
from tests.harness import Need
from tests.house.places import write_skill
from tests.sandbox.places import own

pytestmark = pytest.mark.slow

BOUND_SECONDS = 10
"""Generous, since other work may hold the machine: on an idle one it is 0.5."""


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    peer = Peer(tmp_path)
    for at in range(20):
        write_skill(peer.home / f".agents/skills/s{at}", f"Does thing {at}.")
    return peer


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """Give the ends of two pipes: stdin of a server and its client, then stdout and its client."""
    source, client_sink = os.pipe()
    client_source, sink = os.pipe()
    yield source, client_sink, sink, client_source
    for descriptor in (source, client_sink, sink, client_source):
        try:
            os.close(descriptor)
        except OSError:
            continue


def close(pipe: Pipe, which: str) -> None:
    streams = {"stdin": pipe.process.stdin, "stdout": pipe.process.stdout}
    for name, stream in streams.items():
        if which in (name, "both") and stream is not None:
            stream.close()
            setattr(pipe.process, name, None)


def ended(pipe: Pipe) -> float:
    """Wait for the regular end of a server, and return the seconds it took."""
    began = time.perf_counter()
    assert pipe.process.wait(PATIENCE_SECONDS) == 0
    assert pipe.process.stderr is not None
    assert pipe.process.stderr.read() == b""
    return time.perf_counter() - began


@pytest.mark.parametrize("which", ["stdin", "stdout", "both"])
def test_a_pipe_closed_at_any_moment_ends_the_server(peer: Peer, which: str) -> None:
    """From the spawn to when the SDK is there."""
    for at in range(5):
        close_at(peer, which, at * 0.25, talks=bool(at % 2))


@pytest.mark.heavy
def test_forty_random_moments_end_the_server_alike(peer: Peer) -> None:
    chance = random.Random(16)
    for _ in range(40):
        which = chance.choice(["stdin", "stdout", "both"])
        close_at(peer, which, chance.uniform(0, 2), talks=chance.random() < 0.7)


def close_at(peer: Peer, which: str, seconds: float, *, talks: bool) -> None:
    with Pipe(peer) as pipe:
        if talks:
            pipe.send("initialize", 0, **HELLO)
            pipe.send("notifications/initialized")
            pipe.send("tools/list", 1)
        # The moment itself is the subject here.
        time.sleep(seconds)
        close(pipe, which)
        assert ended(pipe) < BOUND_SECONDS


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "test", "version": "1"},
}


def test_a_closed_stdout_alone_ends_a_server_that_has_nothing_to_write(peer: Peer) -> None:
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        pipe.send("prompts/list", 1)
        pipe.receive()
        close(pipe, "stdout")
        assert ended(pipe) < BOUND_SECONDS


@pytest.mark.parametrize("which", ["stdin", "stdout", "both"])
def test_a_question_that_waits_does_not_hold_up_the_end(peer: Peer, which: str) -> None:
    with Pipe(peer) as pipe:
        pipe.send("initialize", 0, **HELLO)
        pipe.receive()
        pipe.send("notifications/initialized")
        pipe.send("tools/call", 1, name="write", arguments={"path": "a", "content": "b"})
        assert pipe.receive()["method"] == "elicitation/create"
        close(pipe, which)
        assert ended(pipe) < BOUND_SECONDS
    assert not (peer.project / "a").exists()


@pytest.mark.parametrize("which", ["stdout", "both"])
def test_a_command_ends_with_the_server_and_its_outcome_is_recorded(
    peer: Peer, which: str, need: Need
) -> None:
    need(has_sandbox(), "bubblewrap that can make namespaces")
    peer.configure('[[rules]]\neffect = "allow"\naction = "exec"\npattern = "sleep *"\n')
    marked = own(86398)
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        pipe.send("tools/call", 1, name="exec", arguments={"command": "sleep", "params": [marked]})
        while not running(marked):
            assert pipe.process.poll() is None
            time.sleep(0.02)
        close(pipe, which)
        assert ended(pipe) < BOUND_SECONDS
        assert not running(marked)
    text = peer.log.read_text()
    assert text.count('"kind":"intent"') == text.count('"kind":"outcome"') == 1


def watched(source: int, sink: int) -> tuple[ClosedPipeWatch, threading.Event]:
    left = threading.Event()
    watch = ClosedPipeWatch(source, sink, leave=lambda _: left.set())
    watch.start()
    return watch, left


def test_the_watch_leaves_unread_data_alone(pipes: tuple[int, int, int, int]) -> None:
    source, client_sink, sink, _ = pipes
    os.write(client_sink, b"unread")
    _, left = watched(source, sink)
    assert not left.wait(0.3)
    os.close(client_sink)
    assert left.wait(PATIENCE_SECONDS)
    assert os.read(source, 10) == b"unread"


def test_the_watch_sees_a_socket_whose_other_end_writes_no_more() -> None:
    """Node gives its children sockets as stdin and stdout."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        _, left = watched(ours.fileno(), ours.fileno())
        assert not left.wait(0.1)
        theirs.shutdown(socket.SHUT_WR)
        assert left.wait(PATIENCE_SECONDS)


def test_a_call_that_runs_is_waited_for(pipes: tuple[int, int, int, int]) -> None:
    source, _, sink, client_source = pipes
    asked, idle = threading.Event(), threading.Event()
    watch, left = watched(source, sink)
    watch.serving(asked.set, idle.is_set)
    os.close(client_source)
    assert asked.wait(PATIENCE_SECONDS)
    assert not left.wait(1)
    idle.set()
    assert left.wait(PATIENCE_SECONDS)


def test_the_end_of_a_file_ends_the_server_only_while_nothing_is_served(
    pipes: tuple[int, int, int, int],
) -> None:
    source, _, sink, _ = pipes
    watch, left = watched(source, sink)
    watch.serving(lambda: None, lambda: True)
    watch.source_is_read()
    watch.over()
    watch.source_is_read()
    assert not left.is_set()
    early, left = watched(source, sink)
    early.source_is_read()
    assert left.is_set()

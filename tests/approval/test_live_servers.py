"""Tests of approval/live_servers.py: who is alive by rows alone, as on two machines."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

from skillhouse.approval import Connections, LiveServers
from skillhouse.approval.live_servers import KEPT_SECONDS, LOST_SECONDS
from skillhouse.store import SERVERS_FILE
from tests.harness import Clock


def server(base: Path, clock: Clock, name: str) -> LiveServers:
    made = LiveServers(base, clock=clock)
    made.begin(name=name, version="1", token=f"token of {name}", beats=False)
    return made


def test_a_server_is_lost_without_beats_and_forgotten_later(tmp_path: Path) -> None:
    clock = Clock()
    first = server(tmp_path, clock, "first")
    clock.now += 1
    second = server(tmp_path, clock, "second")
    assert [(one.name, one.state) for one in second.all()] == [
        ("first", "ready"),
        ("second", "ready"),
    ]
    assert second.is_token("token of first")
    clock.now += LOST_SECONDS
    second.beat()
    assert [one.state for one in first.all()] == ["lost", "ready"]
    assert not second.is_token("token of first")
    first.drain()
    assert [one.state for one in second.all()] == ["draining", "ready"]
    clock.now += KEPT_SECONDS + 1
    third = server(tmp_path, clock, "third")
    assert [one.name for one in third.all()] == ["third"]
    third.close()
    assert first.all() == ()


def test_a_connection_of_another_machine_lives_as_long_as_its_server(tmp_path: Path) -> None:
    """Two machines share rows and no directory of locks."""
    clock = Clock()
    rows = tmp_path / "rows"
    rows.mkdir()
    here = Connections(tmp_path / "here", server(rows, clock, "here"))
    there = Connections(tmp_path / "there", server(rows, clock, "there"))
    there.hold("a")
    there.hold("b")
    assert (here.is_live("a"), here.is_live("b"), here.is_live("c")) == (True, True, False)
    there.end("a")
    assert (here.is_live("a"), here.is_live("b")) == (False, True)
    clock.now += LOST_SECONDS
    assert not here.is_live("b")
    there.servers.beat()
    assert here.is_live("b")
    there.close()
    assert not here.is_live("b")
    here.close()


@pytest.mark.file_state
def test_each_server_writes_its_part_of_a_lost_file_again(tmp_path: Path) -> None:
    clock = Clock()
    rows = tmp_path / "rows"
    rows.mkdir()
    here = Connections(tmp_path / "here", server(rows, clock, "here"))
    there = Connections(tmp_path / "there", server(rows, clock, "there"))
    there.hold("b")
    assert here.is_live("b")
    (rows / SERVERS_FILE).unlink()
    assert not here.is_live("b")
    there.servers.beat()
    assert here.is_live("b")
    there.close()
    here.close()


@pytest.mark.file_state
def test_who_is_no_server_leaves_no_rows(tmp_path: Path) -> None:
    alone = Connections(tmp_path)
    alone.hold("a")
    assert alone.is_live("a")
    assert not (tmp_path / SERVERS_FILE).exists()
    assert alone.servers.all() == ()
    alone.close()


def test_the_beats_end_with_what_refers_to_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a program that uses the library and closes nothing: it is lost some seconds later."""
    monkeypatch.setattr("skillhouse.approval.live_servers.BEAT_SECONDS", 0.01)
    before = set(threading.enumerate())
    servers = LiveServers(tmp_path)
    servers.begin(name="a", version="1")
    (thread,) = set(threading.enumerate()) - before
    del servers
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_one_that_was_closed_beats_again_once_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillhouse.approval.live_servers.BEAT_SECONDS", 0.01)
    beats = threading.Semaphore(0)
    monkeypatch.setattr(LiveServers, "try_beat", lambda _: beats.release())
    servers = LiveServers(tmp_path)
    for _ in range(2):
        servers.begin(name="a", version="1")
        assert beats.acquire(timeout=10)
        servers.close()
        while beats.acquire(blocking=False):
            pass
    # A process that asked, and serves from now on.
    before = set(threading.enumerate())
    servers.begin_process()
    (first,) = set(threading.enumerate()) - before
    servers.begin(name="a", version="1")
    first.join(10)
    assert not first.is_alive()
    servers.close()

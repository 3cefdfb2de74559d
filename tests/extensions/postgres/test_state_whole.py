"""A call that one machine asks about, answered on another: two homes, one state on a server."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.extensions.postgres.state_servers import served, url_of
from tests.frontends.mcp_peer import Peer, up
from tests.harness import ran
from tests.house.places import make_places
from tests.person_answers import approve
from tests.postgres import cluster, program, restart

from skillhouse import store
from skillhouse.floor import StateError
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.store import STATE, STATE_FILE, pooled

pytestmark = [pytest.mark.slow, pytest.mark.file_state]


def asked(address: str, token: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/v1{path}", data=data)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def on_server(base: Path, url: str) -> Peer:
    base.mkdir()
    peer = Peer(base)
    peer.configure(f'[state]\nurl = "{url}"\n')
    return peer


def test_a_call_is_asked_about_here_answered_elsewhere_and_runs_once(
    tmp_path: Path, state_url: str
) -> None:
    here = on_server(tmp_path / "here", state_url)
    call = {"tool": "write", "arguments": {"path": "made.txt", "content": "made"}}
    with up(here) as (address, token):
        first = asked(address, token, "/calls", call)
        assert first["status"] == "pending", first
        question = first["approval_id"]
        # Another process, with a directory of its own for a state: another machine.
        with served(tmp_path / "elsewhere", state_url):
            approve(tmp_path / "elsewhere", question)
        second = asked(address, token, "/calls", {**call, "approval_id": question})
        assert second["status"] == "ok", second
        assert (here.project / "made.txt").read_text() == "made"
    with psycopg.connect(state_url) as connection:
        rows = connection.execute("SELECT id, state, answered_channel FROM approval").fetchall()
    assert rows == [(question, "used", "page")]


def refused(peer: Peer, *arguments: str) -> str:
    done = ran(
        [sys.executable, "-m", "skillhouse", *arguments],
        env=peer.environment,
        cwd=peer.project,
        timeout=30,
    )
    assert done.returncode != 0
    return f"{done.stdout}{done.stderr}"


ALLOW = Layer(name="user", rules=(Rule(effect=Effect.ALLOW, action="*", pattern="*"),))


def test_a_server_that_is_restarted_under_load_costs_errors_and_no_row(
    tmp_path: Path, need: Callable[[object, str], None]
) -> None:
    need(program("initdb"), "no PostgreSQL server is installed")
    written: list[str] = []
    tried: list[str] = []
    faults: list[StateError] = []
    ends = threading.Event()
    path = tmp_path / STATE_FILE

    def write(name: str) -> None:
        number = 0
        while not ends.is_set():
            number += 1
            tried.append(f"{name} {number}")
            try:
                with pooled(path, STATE) as kept, kept.transaction() as connection:
                    connection.execute("INSERT INTO notice VALUES (?, '')", (f"{name} {number}",))
                written.append(f"{name} {number}")
            except StateError as error:
                faults.append(error)
                time.sleep(0.01)

    with cluster() as server, served(tmp_path, url_of(server, "postgres")):
        threads = [threading.Thread(target=write, args=(f"thread {at}",)) for at in range(4)]
        for thread in threads:
            thread.start()
        _until(lambda: len(written) > 40)
        restart(server)
        after = len(written)
        _until(lambda: len(written) > after + 40)
        ends.set()
        for thread in threads:
            thread.join()
        with pooled(path, STATE) as kept:
            rows = [name for (name,) in kept.rows("SELECT name FROM notice")]
    assert faults
    assert len(rows) == len(set(rows))
    # One whose answer was lost may have been kept; none that was answered is missing.
    assert set(written) <= set(rows) <= set(tried)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.01)


def test_a_house_without_its_server_refuses_every_effect_and_goes_on_with_it(
    tmp_path: Path, need: Callable[[object, str], None]
) -> None:
    need(program("initdb"), "no PostgreSQL server is installed")
    with cluster() as server:
        variables = {"SKILLHOUSE_STATE_URL": url_of(server, "postgres")}
        house = Skillhouse(configured(make_places(tmp_path, variables)), layers=(ALLOW,))
        path = house.config.state_directory / STATE_FILE
        write = {"path": "made.txt", "content": "before"}
        assert house.call_sync("write", write).status == "ok"
    try:
        refused = house.call_sync("write", {**write, "content": "without"})
        assert refused.status == "denied", refused
        assert "the state on the server cannot be used" in refused.content
        assert (tmp_path / "project/made.txt").read_text() == "before"
    finally:
        house.close()
        store.forget_state(path)


def test_a_project_and_a_password_in_the_file_name_no_state(tmp_path: Path) -> None:
    here = on_server(tmp_path / "here", "postgresql://a:secret@127.0.0.1/d")
    done = refused(here, "list")
    assert "expected no password in `url`" in done
    assert "secret" not in done
    here.configure("")
    (here.project / "skillhouse.toml").write_text('[state]\nurl = "postgresql://evil/d"\n')
    here.skillhouse("trust", "--yes")
    assert "key `state` cannot be set by a project" in refused(here, "config", "check")

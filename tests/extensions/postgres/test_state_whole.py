"""A call that one machine asks about, answered on another: two homes, one state on a server."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.answers import approve
from tests.extensions.postgres.state_servers import served
from tests.frontends.mcp_peer import Peer, up

pytestmark = pytest.mark.slow


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

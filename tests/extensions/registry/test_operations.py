"""Tests of operations.py: what an operator sees of a registry that serves."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.extensions.registry.hosting.servers import Server, package
from tests.harness import until

from skillhouse.extensions.registry import registry_app
from skillhouse.extensions.registry.hosting import HostedRepository, open_repository
from skillhouse.extensions.registry.operations import LogFile

pytestmark = pytest.mark.slow


def lines(server: Server, path: str) -> list[dict[str, Any]]:
    """Return the lines of the log about a path, once there are some."""

    def found() -> list[dict[str, Any]]:
        file = server.directory / "requests.jsonl"
        # A line is written once its answer is out, and the first one makes the file.
        text = file.read_text("ascii") if file.exists() else ""
        read = [json.loads(line) for line in text.splitlines()]
        return [one for one in read if one["path"] == path]

    return until(found)


def test_a_change_says_who_made_it_and_an_address_to_admins_alone(server: Server, place: Path):
    admin, token = server.token("admin"), server.token("publish:default/*", "yank:default/*")
    token_id = token.split("_")[1]
    assert server.publish(package(place, "whose"), "whose", "1.0.0", token).status == 201
    assert server.change("yank", "whose", "1.0.0", token).status == 200
    for asked, actor in (
        (admin, {"token": token_id, "claims": "", "address": "127.0.0.1"}),
        (token, {"token": token_id, "claims": ""}),
        ("", {"token": token_id, "claims": ""}),
    ):
        found = server.ask("/changes", token=asked).json["changes"]
        assert [one["actor"] for one in found if one["name"] == "whose"] == [actor, actor]


def test_each_request_is_one_line_of_the_log(server: Server):
    token = server.token("read")
    server.ask("/skills?q=pdf", token=token, headers={"User-Agent": "agent/1"})
    (line,) = lines(server, "/skills?q=pdf")
    assert line["ms"] > 0
    assert line["bytes"] > 0
    assert {key: line[key] for key in ("method", "status", "address", "token", "agent")} == {
        "method": "GET",
        "status": 200,
        "address": "127.0.0.1",
        "token": token.split("_")[1],
        "agent": "agent/1",
    }
    server.ask("/registry.json", token="skr_000000000000_" + "x" * 43)
    assert [(one["status"], one["token"]) for one in lines(server, "/registry.json")] == [(401, "")]
    assert (server.directory / "requests.jsonl").stat().st_mode & 0o777 == 0o600


def test_metrics_are_read_with_a_token_for_them(server: Server):
    assert server.ask("/metrics").code == "unauthorized"
    assert server.ask("/metrics", token=server.token("read", "publish:pdf")).code == "forbidden"
    server.ask("/skills/unknown-name")
    answer = server.ask("/metrics", token=server.token("metrics"))
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    sample = 'skillhouse_registry_answers_total{route="/skills/{name}",method="GET",status="404"} 1'
    assert sample in text.splitlines()
    assert "skillhouse_registry_free_bytes " in text
    assert server.ask("/metrics", token=server.token("admin")).status == 200


def test_a_registry_is_ready_while_its_database_answers_and_its_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository = open_repository(tmp_path)

    def asked() -> tuple[int, Any]:
        answer = asyncio.run(_asked(registry_app(repository), "/readyz"))
        return answer.status_code, answer.json()

    assert asked() == (200, {"status": "ready", "problems": []})
    monkeypatch.setattr(HostedRepository, "free_bytes", lambda _: 1 << 20)
    problem = "less than 200 MiB are free on the disk"
    assert asked() == (503, {"status": "not ready", "problems": [problem]})
    for file in tmp_path.glob("registry.sqlite3*"):
        file.write_bytes(b"no database" * 1000)
    repository.store.close()
    status, value = asked()
    assert (status, value["problems"][0]) == (503, "the database does not answer")


async def _asked(app: Any, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://registry") as client:
        return await client.get(path)


def test_a_log_has_one_file_before_it(tmp_path: Path):
    log = LogFile(tmp_path / "log", most=100)
    for number in range(25):
        log.write(f"{number:09}\n")
    log.close()
    assert (tmp_path / "log").read_text().splitlines() == [f"{n:09}" for n in range(20, 25)]
    assert (tmp_path / "log.1").read_text().splitlines() == [f"{n:09}" for n in range(10, 20)]


def test_two_servers_share_a_log(tmp_path: Path):
    logs = [LogFile(tmp_path / "log", most=100) for _ in range(2)]
    for number in range(15):
        logs[number % 2].write(f"{number:09}\n")
    kept = sum(path.read_text().count("\n") for path in tmp_path.iterdir())
    assert kept == 15
    for log in logs:
        log.close()


def test_a_line_that_cannot_be_written_is_counted(tmp_path: Path):
    log = LogFile(tmp_path / "none" / "log")
    log.write("line\n")
    assert log.lost == 1
    assert os.listdir(tmp_path) == []

"""Tests of several `skillhouse up` on one state, behind a round-robin without affinity."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import psycopg
import pytest
from mcp_types import Implementation
from tests.balanced import GUIDE
from tests.extensions.postgres.state_servers import new_database
from tests.frontends.mcp_peer import LEGACY, MODERN, http_client, text_of
from tests.harness import Need, until
from tests.postgres import cluster, program
from tests.replicas import Replica, RoundRobin, http, named_token, replicas

from skillhouse.house import AccessScope

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 60
CALL = {"tool": "write", "arguments": {"path": "a.txt", "content": "once\n"}}


class Place(NamedTuple):
    base: Path
    first: Replica
    second: Replica
    balancer: RoundRobin
    caller: str
    """A token that calls."""
    person: str
    """A token that reads and answers."""

    @property
    def log(self) -> Path:
        return self.base / "home/.local/state/skillhouse/audit.jsonl"

    @property
    def logs(self) -> list[Path]:
        """One of each home."""
        other = self.base / "other" / self.log.relative_to(self.base)
        return [log for log in (self.log, other) if log.exists()]

    def open_questions(self) -> list[dict[str, Any]]:
        found = http(self.second.address, "/api/v1/approvals", self.person).value
        return [one for one in found["approvals"] if one["state"] == "open"]

    def answer(self, server: Replica, approval: str = "", *, answer: str = "once") -> None:
        """Answer a question, or the one that is open, at a server."""
        for one in self.open_questions():
            if approval in ("", one["id"]):
                body = {"answer": answer, "content_digest": one["content_digest"]}
                path = f"/api/v1/approvals/{one['id']}/answer"
                assert http(server.address, path, self.person, body).status == 200


def _is_ready(place: Place, server: Replica) -> bool:
    return server.port in place.balancer.ready


def _is_out(server: Replica) -> bool:
    return http(server.address, "/readyz").status == 503


@contextmanager
def placed(
    base: Path, *, sticks: bool = False, config: str = "", state_url: str = ""
) -> Iterator[Place]:
    """Run two servers: of one home, or of two homes that have a state on a server."""
    with ExitStack() as stack:
        balancer = stack.enter_context(RoundRobin([], sticks=sticks))
        options = ("--allow-host", f"127.0.0.1:{balancer.port}")
        running = []
        for name in ("", "other") if state_url else ("", ""):
            file = base / name / "home/.config/skillhouse/config.toml"
            file.parent.mkdir(parents=True, exist_ok=True)
            text = config.replace("NAME", name or "first")
            file.write_text(f'{text}\n[state]\nurl = "{state_url}"\n' if state_url else text)
            home = str(base / name / "home")
            # The same project: a call is the same where its paths are.
            (one,) = stack.enter_context(replicas(base, 1, *options, HOME=home))
            running.append(one)
            balancer.add(one.address)
        assert until(lambda: len(balancer.ready) == 2)
        first, second = running
        caller, person = (
            http(first.address, "/api/v1/tokens", first.token, {"name": name, "scopes": scopes})
            for name, scopes in (("caller", ["call"]), ("person", ["read", "approve"]))
        )
        yield Place(base, first, second, balancer, caller.value["token"], person.value["token"])


@pytest.fixture(params=[pytest.param("file", marks=pytest.mark.file_state), "server"])
def state_url(request: pytest.FixtureRequest) -> str:
    """Return the address of a state on a server, or nothing for a file."""
    if request.param == "file":
        return ""
    return new_database(request.getfixturevalue("postgres_server"))


def test_a_call_asked_at_one_server_and_repeated_at_another_is_asked_once(
    tmp_path: Path, state_url: str
) -> None:
    with placed(tmp_path, state_url=state_url) as place:
        for number in range(6):
            call = {"tool": "write", "arguments": {"path": f"{number}.txt", "content": "x"}}
            asked = http(place.balancer.address, "/api/v1/calls", place.caller, call).value
            again = http(place.balancer.address, "/api/v1/calls", place.caller, call).value
            assert (asked["status"], again["status"]) == ("pending", "pending")
            assert again["approval_id"] == asked["approval_id"]
            place.answer((place.first, place.second)[number % 2], asked["approval_id"])
            done = http(place.balancer.address, "/api/v1/calls", place.caller, call).value
            assert done["status"] == "ok", done
            # It is used up at both.
            for server in (place.first, place.second):
                more = http(server.address, "/api/v1/calls", place.caller, call).value
                assert more["status"] == "pending"
            place.answer(place.first, answer="no")
        assert place.open_questions() == []
        assert len(set(place.balancer.sent)) == 2


async def _asked(address: str, token: str, number: int) -> str:
    info = Implementation(name="editor", version="1")
    async with http_client(address, token, MODERN, client_info=info) as client:
        found = await client.call_tool("write", {"path": f"m{number}.txt", "content": "x"})
        return text_of(found)


def test_a_client_of_mcp_without_sessions_is_one_client_at_each_server(
    tmp_path: Path, state_url: str
) -> None:
    with placed(tmp_path, state_url=state_url) as place:
        for number in range(3):
            for _ in range(2):
                said = anyio.run(_asked, place.balancer.address, place.caller, number)
                assert "not approved yet" in said
            assert len(place.open_questions()) == 1
            place.answer(place.second)
            said = anyio.run(_asked, place.balancer.address, place.caller, number)
            assert "not approved" not in said
            assert (tmp_path / f"project/m{number}.txt").read_text() == "x"
        assert place.open_questions() == []


def test_an_answer_at_one_server_wakes_who_waits_at_another(tmp_path: Path, state_url: str) -> None:
    """A call waits in a process of its own, as one of an older client does at server A."""
    with placed(tmp_path, state_url=state_url) as place:
        script = (
            "import sys, time\n"
            "from skillhouse import Skillhouse\n"
            "house = Skillhouse()\n"
            f"house.approvals.patience_seconds = {PATIENCE_SECONDS}\n"
            "house.approvals.subscribe(lambda event: None)\n"
            "for number in range(5):\n"
            "    done = house.call_sync('write', {'path': f'w{number}', 'content': 'x'})\n"
            "    print(time.time(), done.status, flush=True)\n"
        )
        command = [sys.executable, "-c", script]
        waits = []
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            cwd=place.first.start,
            env=place.first.environment,
        ) as waiting:
            assert waiting.stdout is not None
            for _ in range(5):
                assert until(place.open_questions, 30)
                time.sleep(0.25)
                answered = time.time()
                place.answer(place.second)
                woken, status = waiting.stdout.readline().split()
                assert status == "ok"
                waits.append(float(woken) - answered)
        # It was woken, and did not wait for as long as it could.
        assert max(waits) < PATIENCE_SECONDS / 2
        print(f"woken after {', '.join(f'{one * 1000:.0f}' for one in sorted(waits))} ms")


def test_a_call_with_a_key_that_runs_at_one_server_is_not_made_at_another(
    tmp_path: Path, state_url: str
) -> None:
    config = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
    with (
        placed(tmp_path, state_url=state_url, config=config) as place,
        ThreadPoolExecutor(1) as pool,
    ):
        call = {"tool": "exec", "arguments": {"command": "touch BEGUN; sleep 3; echo done"}}

        def made(server: Replica) -> Any:
            return http(
                server.address, "/api/v1/calls", place.caller, call, Idempotency_Key="order-1"
            )

        first = pool.submit(made, place.first)
        assert until((tmp_path / "project/BEGUN").exists, 30)
        meanwhile = made(place.second)
        assert (meanwhile.status, meanwhile.value["code"]) == (409, "in-progress")
        answer = first.result()
        assert answer.value["content"].strip() == "done", answer
        repeated = made(place.second)
        assert repeated.value == answer.value
        assert repeated.headers["idempotency-replayed"] == "true"


def test_a_page_opened_at_one_server_works_at_another(tmp_path: Path, state_url: str) -> None:
    with placed(tmp_path, state_url=state_url) as place:
        jar = CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        for one in (place.first, place.second):
            # Either address opens it, whichever server the balancer takes.
            with opener.open(f"{place.balancer.address}/?token={one.token}", timeout=20) as page:
                assert page.status == 200
        http(place.first.address, "/api/v1/calls", place.caller, CALL)
        (question,) = place.open_questions()
        for _ in range(2):
            with opener.open(
                f"{place.balancer.address}/approvals/{question['id']}", timeout=20
            ) as page:
                form = page.read().decode()
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
        body = urllib.parse.urlencode({**fields, "answer": "once"}).encode()
        request = urllib.request.Request(
            f"{place.balancer.address}/approvals/{question['id']}",
            data=body,
            headers={"Origin": place.balancer.address},
        )
        with opener.open(request, timeout=20) as answered:
            assert answered.status == 200
        assert place.open_questions() == []
        done = http(place.first.address, "/api/v1/calls", place.caller, CALL).value
        assert done["status"] == "ok"


def test_an_older_client_needs_affinity_and_recovers_without(tmp_path: Path) -> None:
    async def calls(address: str) -> int:
        async with http_client(address, place.caller, LEGACY) as client:
            return len((await client.list_tools()).tools)

    with placed(tmp_path, sticks=True) as place:
        for _ in range(4):
            assert anyio.run(calls, place.balancer.address) > 0
        init = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/list",
            "params": {},
        }
        # A session of another server: the client begins again (MCP 2025-11-25, "Session
        # Management": on 404 it MUST start a new one).
        lost = http(
            place.second.address,
            "/mcp",
            place.caller,
            init,
            Accept="application/json, text/event-stream",
            Mcp_Session_Id="0" * 32,
        )
        assert lost.status == 404


RUNS = """
[[rules]]
effect = "allow"
action = "exec"
pattern = "*"
"""
STOP_SECONDS = 1.0


def test_a_stop_is_one_row_that_every_server_obeys(tmp_path: Path, state_url: str) -> None:
    """The row alone, as another machine writes it: the file of a stop is of this machine."""
    with placed(tmp_path, state_url=state_url, config=RUNS) as place, ThreadPoolExecutor(4) as pool:
        state = tmp_path / "home/.local/state/skillhouse/state.sqlite3"

        def run(server: Replica) -> tuple[str, float]:
            call = {"tool": "exec", "arguments": {"command": "touch BEGUN; sleep 30"}}
            found = http(server.address, "/api/v1/calls", place.caller, call)
            return found.value["content"], time.time()

        waiting = [pool.submit(run, one) for one in (place.first, place.second)]
        assert until((tmp_path / "project/BEGUN").exists, 30)
        time.sleep(1)
        row = "INSERT INTO tier_stop VALUES (1, 0, 'anna', 'elsewhere')"
        if state_url:
            with psycopg.connect(state_url) as there:
                there.execute(row)
        else:
            with closing(sqlite3.connect(state, timeout=10)) as connection, connection:
                connection.execute(row)
        stopped = time.time()
        ended = [one.result(timeout=20) for one in waiting]
        assert all("stopped: elsewhere (by anna)" in text for text, _ in ended), ended
        assert max(at for _, at in ended) - stopped <= STOP_SECONDS
        for server in (place.first, place.second):
            call = {"tool": "exec", "arguments": {"command": "true"}}
            found = http(server.address, "/api/v1/calls", place.caller, call).value
            assert found["status"] == "denied"
            assert "elsewhere" in found["content"]


def test_a_stop_given_at_one_server_is_lifted_at_another(tmp_path: Path, state_url: str) -> None:
    with placed(tmp_path, state_url=state_url, config=RUNS) as place:
        call = {"tool": "exec", "arguments": {"command": "true"}}

        def answered(status: str) -> None:
            for one in (place.first, place.second):
                value = http(one.address, "/api/v1/calls", place.caller, call).value
                assert value["status"] == status, value

        first, second = place.first, place.second
        assert http(first.address, "/api/v1/stop", first.token, {"reason": "a drill"}).status == 200
        answered("denied")
        # Who may not lift it at one server may not at another.
        word = {"confirm": "resume"}
        assert http(second.address, "/api/v1/resume", place.person, word).status == 403
        lifted = http(second.address, "/api/v1/resume", second.token, word)
        assert (lifted.status, lifted.value) == (200, {"resumed": True})
        answered("ok")


@pytest.mark.file_state
def test_a_server_that_cannot_reach_the_state_refuses_all_but_reads(tmp_path: Path) -> None:
    with placed(tmp_path, config=RUNS) as place:
        state = tmp_path / "home/.local/state/skillhouse"
        (tmp_path / "project/here.txt").write_text("read me")

        def call(tool: str, **arguments: str) -> tuple[dict[str, Any], float]:
            began = time.monotonic()
            body = {"tool": tool, "arguments": arguments}
            found = http(place.first.address, "/api/v1/calls", place.first.token, body)
            return found.value, time.monotonic() - began

        assert call("exec", command="true")[0]["status"] == "ok"
        kept = state.with_name("kept")
        state.joinpath("state.sqlite3").rename(kept)
        for suffix in ("-wal", "-shm"):
            state.joinpath(f"state.sqlite3{suffix}").unlink(missing_ok=True)
        state.joinpath("state.sqlite3").mkdir()
        for name, arguments in (
            ("exec", {"command": "touch EFFECT"}),
            ("write", {"path": "EFFECT", "content": "x"}),
        ):
            found, seconds = call(name, **arguments)
            assert found["status"] == "denied", found
            assert "only reads go on" in found["content"]
            assert seconds < 1
        assert not (tmp_path / "project/EFFECT").exists()
        found, _ = call("read", path="here.txt")
        assert (found["status"], "read me" in found["content"]) == ("ok", True), found
        assert until(lambda: http(place.first.address, "/readyz").status == 503)
        assert http(place.first.address, "/readyz").value["reasons"] == ["state"]
        assert http(place.first.address, "/healthz").status == 200
        assert http(place.first.address, "/api/v1/status", place.caller).status == 503
        state.joinpath("state.sqlite3").rmdir()
        kept.rename(state / "state.sqlite3")
        assert until(lambda: http(place.first.address, "/readyz").status == 200)
        assert call("exec", command="true")[0]["status"] == "ok"


def test_a_job_of_a_killed_server_has_failed_at_the_other_one(
    tmp_path: Path, state_url: str
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        placed(tmp_path, state_url=state_url) as place,
    ):
        # Nothing answers there, so the job waits for what it fetches.
        source = f"http://127.0.0.1:{silent.getsockname()[1]}/skills/pdf"
        body = {"action": "install", "source": source}
        path = "/api/v1/changes/plan"
        begun = http(place.first.address, path, place.first.token, body)
        assert begun.status == 202, begun
        job = f"/api/v1/jobs/{begun.value['id']}"
        assert until(lambda: http(place.second.address, job, place.person).value["message"])
        with urllib.request.urlopen(events(place.second.address, place.person), timeout=30) as news:
            lines = iter(news.readline, b"")
            assert b"event: reset\n" in lines
            place.first.kill()
            killed = time.monotonic()
            # Another machine's server is lost once it has not been heard of for 10 seconds; without
            # news there is a comment each 15.
            data = next(one for one in lines if b"failed" in one or time.monotonic() - killed > 20)
        assert json.loads(data.removeprefix(b"data:"))["id"] == begun.value["id"]
        found = http(place.second.address, job, place.person).value
        assert (found["state"], found["problem"]["code"]) == ("failed", "job-lost")


def test_sigterm_lets_calls_end_and_keeps_questions(tmp_path: Path, state_url: str) -> None:
    with placed(tmp_path, state_url=state_url, config=RUNS) as place, ThreadPoolExecutor(2) as pool:
        first = place.first
        call = {"tool": "exec", "arguments": {"command": "touch BEGUN; sleep 2; echo done"}}
        running = pool.submit(http, first.address, "/api/v1/calls", place.caller, call)
        asked = http(first.address, "/api/v1/calls", place.caller, CALL).value
        assert asked["status"] == "pending"
        assert until((tmp_path / "project/BEGUN").exists, 20)
        with urllib.request.urlopen(events(first.address, place.person), timeout=20) as stream:
            assert stream.readline() == b"retry: 2000\n"
            first.process.send_signal(signal.SIGTERM)
            said = stream.read().decode()
            assert said.endswith("retry: 500\n: the service ends\n\n"), said
        ready = http(first.address, "/readyz")
        assert (ready.status, ready.value["reasons"]) == (503, ["draining"])
        assert http(first.address, "/healthz").status == 200
        # What comes before the balancer has heard of it is answered, and its connection ends.
        late = http(first.address, "/api/v1/skills", place.person)
        assert (late.status, late.headers["connection"]) == (200, "close")
        assert until(lambda: first.port not in place.balancer.ready)
        assert running.result().value["content"].strip() == "done"
        _, err = first.process.communicate(timeout=20)
        assert (first.process.returncode, err) == (0, "")
        # Answered and used at the other one.
        place.answer(place.second, asked["approval_id"])
        done = http(place.balancer.address, "/api/v1/calls", place.caller, CALL).value
        assert done["status"] == "ok"


def test_a_call_that_outlasts_the_drain_is_ended_with_its_record(tmp_path: Path) -> None:
    file = tmp_path / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(RUNS)
    with replicas(tmp_path, 1, "--drain", "1") as (server,), ThreadPoolExecutor(1) as pool:
        caller = named_token(tmp_path / "home", "caller", AccessScope.CALL)
        call = {"tool": "exec", "arguments": {"command": "touch BEGUN; sleep 60"}}
        lost = pool.submit(http, server.address, "/api/v1/calls", caller, call)
        assert until((tmp_path / "project/BEGUN").exists, 20)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=20)
        assert time.monotonic() - began < 8
        assert lost.exception(timeout=5) is not None
        log = tmp_path / "home/.local/state/skillhouse/audit.jsonl"
        assert [one["kind"] for one in lines_of(log, "exec")] == ["intent", "outcome"]


def lines_of(log: Path, tool: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [one for one in found if one["tool"] == tool]


def events(address: str, token: str, last_id: str = "") -> urllib.request.Request:
    request = urllib.request.Request(f"{address}/api/v1/events")
    request.add_header("Authorization", f"Bearer {token}")
    if last_id:
        request.add_header("Last-Event-ID", last_id)
    return request


CALLS_A_SECOND = 50
ROLLING_SECONDS = 20


@pytest.mark.heavy
def test_a_rolling_restart_loses_and_doubles_nothing(tmp_path: Path, state_url: str) -> None:
    """Two servers are replaced one after the other under calls with effects; nothing is retried."""
    config = '[[rules]]\neffect = "allow"\naction = "write"\npattern = "*"\n'
    with (
        placed(tmp_path, config=config, state_url=state_url) as place,
        ThreadPoolExecutor(40) as pool,
    ):
        stopped = threading.Event()
        times: list[float] = []

        def call(number: int) -> Any:
            began = time.monotonic()
            body = {
                "tool": "write",
                "arguments": {"path": f"n/{number}", "content": str(number)},
            }
            try:
                found = http(place.balancer.address, "/api/v1/calls", place.caller, body)
            except OSError as error:
                return number, repr(error)
            times.append(time.monotonic() - began)
            status = found.value["status"] if found.status == 200 else found.value
            return number, status

        def load() -> list[Any]:
            begun, number, calls = time.monotonic(), 0, []
            while not stopped.is_set():
                calls.append(pool.submit(call, number))
                number += 1
                time.sleep(max(0.0, begun + number / CALLS_A_SECOND - time.monotonic()))
            return [one.result() for one in calls]

        load_thread = ThreadPoolExecutor(1)
        results = load_thread.submit(load)
        options = ("--allow-host", f"127.0.0.1:{place.balancer.port}")
        fresh: list[Replica] = []
        began = time.monotonic()
        try:
            time.sleep(2)
            for old in (place.first, place.second):
                new = Replica(tmp_path, *options, HOME=old.environment["HOME"])
                fresh.append(new)
                place.balancer.add(new.address)
                assert until(partial(_is_ready, place, new), 20)
                code, said = old.end()
                assert (code, said) == (0, "")
                time.sleep(1)
            time.sleep(max(0, began + ROLLING_SECONDS - time.monotonic()))
            stopped.set()
            done = results.result(timeout=60)
        finally:
            stopped.set()
            load_thread.shutdown()
            for one in fresh:
                one.kill()
        lost = [one for one in done if one[1] != "ok"]
        assert not lost, lost[:5]
        records = [one for log in place.logs for one in lines_of(log, "write")]
        made = Counter(
            Path(one["arguments"]["path"]).name for one in records if one["kind"] == "intent"
        )
        assert set(made) == {str(number) for number, _ in done}
        assert set(made.values()) == {1}
        assert sum(one["kind"] == "outcome" for one in records) == len(done)
        each = sorted(times)
        print(
            f"{len(done)} calls in {time.monotonic() - began:.0f} s, 0 lost, 0 doubled; median "
            f"{each[len(each) // 2] * 1000:.0f} ms, longest {each[-1] * 1000:.0f} ms"
        )


def read_events(address: str, token: str, last_id: str, kinds: set[str]) -> list[dict[str, str]]:
    """Read a stream until each kind has come."""
    found: list[dict[str, str]] = []
    with urllib.request.urlopen(events(address, token, last_id), timeout=20) as stream:
        one: dict[str, str] = {}
        while not kinds <= {each.get("event") for each in found}:
            line = stream.readline().decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if line:
                one[name] = value
            elif "event" in one:
                found.append(one)
                one = {}
    return found


def test_a_reader_of_events_goes_on_at_another_server(tmp_path: Path, state_url: str) -> None:
    with placed(tmp_path, state_url=state_url) as place, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(
            read_events, place.first.address, place.person, "", {"reset", "question"}
        )
        time.sleep(1)
        http(place.second.address, "/api/v1/calls", place.caller, CALL)
        seen = reading.result(timeout=30)
        (asked,) = [one for one in seen if one["event"] == "question"]
        # While the reader is away, its question is answered; its next server has had no reader.
        time.sleep(2.5)
        place.answer(place.first)
        missed = read_events(place.second.address, place.person, asked["id"], {"answer"})
        assert "reset" not in {one["event"] for one in missed}
        assert json.loads(missed[-1]["data"])["id"] == json.loads(asked["data"])["id"]
        # Back at the first one, nothing is missed and nothing begins from the start.
        http(place.first.address, "/api/v1/calls", place.caller, CALL)
        more = read_events(place.first.address, place.person, missed[-1]["id"], {"call"})
        assert "reset" not in {one["event"] for one in more}
        forged = read_events(place.second.address, place.person, "x-1-2-3", {"reset"})
        assert forged[0]["event"] == "reset"


def test_each_server_shows_all_of_them(tmp_path: Path, state_url: str) -> None:
    with placed(tmp_path, state_url=state_url) as place:

        def states() -> list[tuple[str, str, bool]]:
            found = http(place.second.address, "/api/v1/servers", place.person).value
            return [(one["address"], one["state"], one["is_this"]) for one in found["servers"]]

        first, second = place.first.address, place.second.address
        assert states() == [(first, "ready", False), (second, "ready", True)]
        page = http(second, "/system", place.second.token).value
        assert page.count(first) >= 1
        assert "this one" in page
        place.first.process.send_signal(signal.SIGTERM)
        assert until(lambda: states()[0][1] == "draining", 5)
        place.first.process.communicate(timeout=20)
        assert states() == [(second, "ready", True)]
        assert http(second, "/api/v1/status", place.first.token).status == 401


def test_a_server_has_the_name_that_its_operator_gave_it_everywhere(tmp_path: Path) -> None:
    with placed(tmp_path, config='server_name = "core-a"\n') as place:
        here, person = place.second.address, place.person
        listed = http(here, "/api/v1/servers", person).value["servers"]
        assert [one["name"] for one in listed] == ["core-a", "core-a"]
        assert http(here, "/api/v1/status", person).value["instance"]["name"] == "core-a"
        assert "core-a" in http(here, "/system", place.second.token).value
        http(here, "/api/v1/calls", place.caller, CALL)

        def records(name: str) -> list[str]:
            found = http(here, f"/api/v1/audit/records?server={name}", person).value["records"]
            return [one["record"]["server"] for one in found]

        assert set(records("core-a")) == {"core-a"}
        assert records("core-b") == []
        pages = [
            http(here, f"/audit?server={name}", place.second.token).value
            for name in ("core-a", "core-b")
        ]
        assert ["a.txt" in page for page in pages] == [True, False]
        assert 'value="core-b"' in pages[1]


NAMED = 'server_name = "core-NAME"\n' + RUNS


def test_each_server_shows_the_logs_of_all(tmp_path: Path, postgres_server: str) -> None:
    url = new_database(postgres_server)
    with placed(tmp_path, config=NAMED, state_url=url) as place:
        for number, server in enumerate((place.first, place.second, place.first)):
            call = {"tool": "exec", "arguments": {"command": f"echo <b>{number}</b>"}}
            assert http(server.address, "/api/v1/calls", place.caller, call).status == 200

        def seen(server: Replica, query: str = "") -> dict[str, Any]:
            found = http(server.address, f"/api/v1/audit/all{query}", place.person)
            assert found.status == 200, found.value
            return dict(found.value)

        def servers(found: dict[str, Any]) -> list[tuple[str, str]]:
            return [(one["name"], one["state"]) for one in found["servers"]]

        both = [("core-first", "answered"), ("core-other", "answered")]
        assert until(lambda: servers(seen(place.second)) == both, 10)
        for server in (place.first, place.second):
            found = seen(server, "?tool=exec")
            assert [one["server"] for one in found["records"]] == [
                *("core-first", "core-other", "core-first")
            ]
            assert {one["standing"] for one in found["records"]} <= {"verified", "new"}
            assert found["is_whole"]
        # One page after the other is the whole, whichever server is asked for which.
        paged, query = list[str](), "?tool=exec&limit=1"
        for server in (place.first, place.second, place.first):
            found = seen(server, query)
            paged += [one["record"]["id"] for one in found["records"]]
            query = f"?tool=exec&limit=1&before={found['next']}"
        assert paged == [one["record"]["id"] for one in seen(place.first, "?tool=exec")["records"]]
        only = seen(place.first, "?server=core-other&tool=exec")["records"]
        assert [one["server"] for one in only] == ["core-other"]
        page = http(place.first.address, "/audit/all", place.first.token).value
        assert "core-other" in page
        assert "&lt;b&gt;1&lt;/b&gt;" in page
        assert "<b>1" not in page
        system = http(place.first.address, "/system", place.first.token).value
        assert "record 1" in system or "record 2" in system or "none" in system
        place.second.kill()
        began = time.monotonic()
        found = seen(place.first)
        assert time.monotonic() - began < 5
        assert servers(found) == [("core-first", "answered"), ("core-other", "silent")]
        assert not found["is_whole"]
        assert until(lambda: servers(seen(place.first))[1] == ("core-other", "lost"), 15)


def test_the_commands_of_the_guide_show_the_logs_of_all(
    tmp_path: Path, postgres_server: str
) -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    [block] = re.findall(
        r"<!-- run by: tests/extensions/server/test_replicas.py -->\n```bash\n(.*?)```",
        guide,
        re.DOTALL,
    )
    url = new_database(postgres_server)
    with placed(tmp_path, config=NAMED, state_url=url) as place:
        for server in (place.first, place.second):
            call = {"tool": "exec", "arguments": {"command": f"echo {server.port}"}}
            assert http(server.address, "/api/v1/calls", place.caller, call).status == 200
        said = []
        for line in block.strip().replace("core-b", "core-other").splitlines():
            command = [sys.executable, "-m", *line.split()]
            done = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                cwd=place.first.start,
                env=place.first.environment,
                timeout=60,
            )
            said.append(done.stdout)
        assert ["core-first" in one for one in said] == [True, False]
        assert all("core-other" in one for one in said)


def test_a_killed_server_is_lost_after_some_beats(tmp_path: Path, state_url: str) -> None:
    with placed(tmp_path, state_url=state_url) as place:
        place.first.kill()

        def state() -> str:
            found = http(place.second.address, "/api/v1/servers", place.person).value
            return str(found["servers"][0]["state"])

        assert state() == "ready"
        assert until(lambda: state() == "lost", 15)
        assert http(place.second.address, "/api/v1/status", place.first.token).status == 401


def test_servers_whose_database_goes_away_refuse_all_but_reads_at_once(
    tmp_path: Path, need: Need
) -> None:
    need(program("initdb") and program("pg_ctl"), "no PostgreSQL server is installed")
    with ExitStack() as database, ExitStack() as servers:
        url = new_database(database.enter_context(cluster()))
        place = servers.enter_context(placed(tmp_path, config=RUNS, state_url=url))
        (tmp_path / "project/here.txt").write_text("read me")

        def call(server: Replica, tool: str, **arguments: str) -> tuple[str, str, float]:
            began = time.monotonic()
            body = {"tool": tool, "arguments": arguments}
            found = http(server.address, "/api/v1/calls", server.token, body).value
            assert "content" in found, found
            return str(found["status"]), found["content"], time.monotonic() - began

        for server in (place.first, place.second):
            assert call(server, "exec", command="true")[0] == "ok"
        database.close()
        for server in (place.first, place.second):
            status, content, seconds = call(server, "exec", command="touch EFFECT")
            assert (status, "only reads go on" in content) == ("denied", True), content
            assert seconds < 1
            assert call(server, "read", path="here.txt")[0] == "ok"
            assert until(partial(_is_out, server))
        assert not (tmp_path / "project/EFFECT").exists()

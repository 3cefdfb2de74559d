"""deploy/compose-replicas.yaml in a container engine.

As tests/test_engine.py: one test, whose parts are subtests, in the order of CHECKS. PostgreSQL and
HAProxy are of Debian; the cluster of PostgreSQL is made without a locale, as one easily is there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.containers import ROOT
from tests.engine import BASE, Composed, Engine, composers, until
from tests.house.coded import tool, write_code
from tests.test_engine import SECONDS, running

__all__ = ["running"]

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
EXECUTORS = 3
CORES = ("core-a", "core-b")
STANDINS = ROOT / "tests/data/engine"
MORE = """services:
  postgres:
    image: skillhouse-test/postgres
  balancer:
    image: skillhouse-test/haproxy
"""
CODE = """
import os, time

def echo(params, context):
    return params.get("text", "")

def wait(params, context):
    time.sleep(params["seconds"])
    return os.uname().nodename

tools = {"echo": echo, "change": echo, "wait": wait}
"""
OWN = "own"
"""In the place of scopes: the token that `core-b` printed at its start."""
HOST = {"Host": "127.0.0.1:8600"}
"""As a client sends it: the test publishes another port, so that it may run twice."""
SEND = """
import json, sys, urllib.request
method, path, token, body = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
asked = urllib.request.Request(
    "http://127.0.0.1:8600" + path, body.encode() or None, headers, method=method
)
print(urllib.request.urlopen(asked, timeout=60).read().decode())
"""
"""Sends a request from inside a replica to that replica itself."""


class Replicated(Composed):
    NAME = "compose-replicas.yaml"
    READY: Mapping[str, str] = {
        "core-a": "/?token=", "core-b": "/?token=", "skill-executor": '"listening"',
    }  # fmt: skip

    def __init__(self, engine: Engine, base: Path, compose: list[str]) -> None:
        super().__init__(engine, base, compose)
        secrets = base / "deploy/secrets"
        (secrets / "state-password").write_text("e" * 32)
        (secrets / "state-password").chmod(0o644)
        (secrets / "state-url").write_text(
            f"postgresql://skillhouse:{'e' * 32}@postgres/skillhouse"
        )
        os.chown(secrets / "state-url", 65534, 65534)
        (secrets / "state-url").chmod(0o400)
        (base / "more.yaml").write_text(MORE)
        write_code(
            base / "workspace/skills/echo",
            CODE,
            tool("echo"),
            tool("change", "write"),
            tool("wait"),
        )
        self.tokens: dict[str, str] = {}

    def in_core(self, core: str, *words: str) -> Any:
        """Return what a verb of skillhouse says as JSON in a replica."""
        done = self.inside(core, "skillhouse", *words, "--json", check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def token(self, *scopes: str) -> str:
        """Return a token of the state that has some scopes."""
        name = "-".join(scopes)
        if name == OWN:
            logs = self.compose("logs", "--no-color", "core-b").stdout
            return str(re.findall(r"token=([\w-]+)", logs)[-1])
        if name not in self.tokens:
            words = [word for scope in scopes for word in ("--scope", scope)]
            done = self.inside("core-a", "skillhouse", "tokens", "new", name, *words)
            self.tokens[name] = done.stdout.strip().splitlines()[-1]
        return self.tokens[name]

    def sent(self, core: str, path: str, *scopes: str, body: Any = None) -> Any:
        """Return what one replica answers to a request, past the balancer."""
        method, text = ("GET", "") if body is None else ("POST", json.dumps(body))
        argv = ("python", "-c", SEND, method, path, self.token(*scopes), text)
        return json.loads(self.inside(core, *argv).stdout)

    def by_balancer(self, path: str, *scopes: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {**HOST, "Authorization": f"Bearer {self.token(*scopes)}"}
        headers["Content-Type"] = "application/json"
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.urlopen(asked, timeout=60) as found:
            return json.loads(found.read())

    def servers_by_balancer(self, times: int = 8) -> list[str]:
        """Return the names of the servers that answered one request after the other."""
        names = (self.by_balancer("/api/v1/status", "read") for _ in range(times))
        return [one["instance"]["name"] for one in names]

    def verified(self) -> Any:
        """Return what `audit verify --all` says of the logs of both replicas."""
        words = ("audit", "verify", "--all", "/logs", "--json")
        done = self.compose("run", "--rm", "audit", *words, check=False)
        assert done.stdout.strip(), done.stderr
        return json.loads(done.stdout)

    def executors(self) -> list[str]:
        """Return the containers of the executors that run."""
        return self.compose("ps", "-q", "skill-executor").stdout.split()

    def fetched(self, path: str) -> int:
        """Return the status of an answer by the balancer."""
        try:
            asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=HOST)
            with urllib.request.urlopen(asked, timeout=10) as found:
                return int(found.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


def test_the_composition_of_replicas_runs(running: Engine, tmp_path: Path, subtests: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)
    for target in ("core", "skill-executor"):
        running.build(target)
    for target in ("postgres", "haproxy"):
        running.run(
            *("docker", "build", f"--build-arg=BASE={BASE}", "--network", "host"),
            *("--target", target, "--tag", f"skillhouse-test/{target}", str(STANDINS)),
        )
    command = next(iter(composers().values()))
    place = Replicated(running, tmp_path, command)
    with place.running():
        until(
            lambda: place.fetched("/balancer") == 200,
            seconds=60,
            otherwise=lambda: place.compose("logs", "--no-color", "balancer").stdout,
        )
        for check in CHECKS:
            with subtests.test(check.__name__):
                check(place)


def both_replicas_are_ready_behind_the_balancer(place: Replicated) -> None:
    until(
        lambda: set(place.servers_by_balancer()) == set(CORES),
        seconds=30,
        otherwise=lambda: place.compose("logs", "--no-color").stdout[-3000:],
    )
    assert place.fetched("/readyz") == 200
    found = place.by_balancer("/api/v1/servers", "read")["servers"]
    # One that was killed is among them for a while, under the name of the one after it.
    assert {one["name"] for one in found if one["state"] == "ready"} == set(CORES)


def calls_reach_every_executor(place: Replicated) -> None:
    assert len(place.executors()) == EXECUTORS
    for number in range(EXECUTORS):
        for core in CORES:
            body = {"tool": "echo:echo", "arguments": {"text": f"{core}-{number}"}}
            found = place.sent(core, "/api/v1/calls", "call", body=body)
            assert found["status"] == "ok", found
            assert f"{core}-{number}" in json.dumps(found)
    hosts = waited(place, "core-a", *[0.5] * EXECUTORS)
    assert set(hosts) == {container[:12] for container in place.executors()}


def waited(
    place: Replicated, core: str, *seconds: float, meanwhile: Callable[[], object] = lambda: None
) -> list[str]:
    """Make calls at once at one replica; return who ran each, or how it ended otherwise."""

    def call(one: float) -> str:
        body = {"tool": "echo:wait", "arguments": {"seconds": one}}
        try:
            found = place.sent(core, "/api/v1/calls", "call", body=body)
        except AssertionError:
            return "no answer"
        if found["status"] != "ok":
            return f"{found['status']}: {found['content']}"
        return str(found["content"])

    place.token("call")
    with ThreadPoolExecutor(len(seconds)) as threads:
        calls = [threads.submit(call, one) for one in seconds]
        meanwhile()
        return [one.result() for one in calls]


def wait_until_begun(place: Replicated, core: str, calls: int) -> None:
    """Wait until so many calls at a replica have an intent and no outcome, and are with their
    executors: on a busy machine a request takes seconds to get there."""

    def begun() -> int:
        return len(place.in_core(core, "audit", "list", "--status", "unknown")["records"])

    until(lambda: begun() >= calls, seconds=30, otherwise=lambda: f"{begun()} calls have begun")
    time.sleep(1)


def a_question_of_one_replica_is_answered_at_the_other(place: Replicated) -> None:
    body = {"tool": "echo:change", "arguments": {"text": "once"}}
    asked = place.sent("core-a", "/api/v1/calls", "call", body=body)
    assert asked["status"] == "pending", asked
    assert place.sent("core-b", "/api/v1/calls", "call", body=body)["status"] == "pending"
    listed = place.sent("core-b", "/api/v1/approvals", "read", "approve")["approvals"]
    (question,) = [one for one in listed if one["state"] == "open"]
    assert question["id"] == asked["approval_id"]
    answer = {"answer": "once", "content_digest": question["content_digest"]}
    path = f"/api/v1/approvals/{question['id']}/answer"
    place.sent("core-b", path, "read", "approve", body=answer)
    done = place.sent("core-a", "/api/v1/calls", "call", body=body)
    assert done["status"] == "ok", done
    # It is used up, at both.
    again = place.sent("core-b", "/api/v1/calls", "call", body=body)
    assert again["status"] == "pending"
    assert again["approval_id"] != asked["approval_id"]


def a_stop_at_one_replica_ends_what_runs_at_the_other(place: Replicated) -> None:
    took: list[float] = []

    def stop() -> None:
        wait_until_begun(place, "core-b", 1)
        assert place.inside("core-a", "skillhouse", "stop").returncode == 0
        took.append(time.monotonic())

    (ended,) = waited(place, "core-b", 50, meanwhile=stop)
    assert ended.startswith(("emergency-stopped", "stopped", "denied", "error")), ended
    # Much less than the call would have taken; a second of it is the stop's.
    assert time.monotonic() - took[0] < 5
    for core in CORES:
        body = {"tool": "echo:echo", "arguments": {"text": "x"}}
        assert place.sent(core, "/api/v1/calls", "call", body=body)["status"] != "ok"
    # Only the owner's own key lifts it, or a person at a terminal; where it was given a file of
    # that server stops it too, and is lifted there.
    for core in ("core-b", "core-a"):
        place.sent(core, "/api/v1/resume", OWN, body={"confirm": "resume"})
    for core in CORES:
        assert place.sent(core, "/api/v1/calls", "call", body=body)["status"] == "ok"


def executors_see_neither_the_database_nor_the_balancer(place: Replicated) -> None:
    reach = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    container = place.executors()[0]
    for host, port in (("postgres", "5432"), ("balancer", "8600")):
        argv = ("docker", "exec", container, "python", "-c", reach, host, port)
        assert place.engine.run(*argv, check=False).returncode != 0
    assert place.inside("core-a", "python", "-c", reach, "postgres", "5432").returncode == 0


def both_logs_are_whole_and_the_state_has_their_heads(place: Replicated) -> None:
    found = place.verified()
    assert [one["file"] for one in found["logs"]] == [f"{core}/state/audit.jsonl" for core in CORES]
    for core, one in zip(CORES, found["logs"], strict=True):
        assert (one["ok"], one["servers"], one["problems"]) == (True, [core], []), one
        assert one["heads"] > 0
    assert (found["ok"], found["is_compared"], found["absent"]) == (True, True, [])


def one_killed_executor_costs_the_call_on_it(place: Replicated) -> None:
    killed: list[str] = []

    def kill() -> None:
        wait_until_begun(place, "core-a", EXECUTORS)
        killed.append(place.executors()[0])
        place.engine.run("docker", "kill", killed[0])

    found = waited(place, "core-a", *[25] * EXECUTORS, meanwhile=kill)
    lost = [one for one in found if not re.fullmatch("[0-9a-f]{12}", one)]
    assert len(lost) == 1, found
    assert "may have had its effect" in lost[0]
    assert killed[0][:12] not in found
    listed = place.in_core("core-a", "audit", "list", "--status", "unknown")["records"]
    assert [one["record"]["tool"] for one in listed] == ["echo__wait"]
    for _ in range(EXECUTORS):
        for core in CORES:
            body = {"tool": "echo:echo", "arguments": {"text": "x"}}
            assert place.sent(core, "/api/v1/calls", "call", body=body)["status"] == "ok"


def one_killed_replica_costs_the_call_on_it(place: Replicated) -> None:
    answered: list[list[str]] = []

    def kill() -> None:
        # The one of the executor that was killed before is without an outcome, too.
        wait_until_begun(place, "core-a", 2)
        place.engine.run("docker", "kill", place.container("core-a"))
        until(
            lambda: place.fetched("/api/v1/status") == 401,
            seconds=5,
            otherwise=lambda: place.compose("logs", "--no-color", "balancer").stdout,
        )
        time.sleep(1.5)
        answered.append(place.servers_by_balancer())

    assert waited(place, "core-a", 60, meanwhile=kill) == ["no answer"]
    assert answered == [["core-b"] * 8]
    place.compose("start", "core-a")
    place.wait_for("core-a", "/?token=", times=2)
    both_replicas_are_ready_behind_the_balancer(place)
    for one in place.verified()["logs"]:
        assert one["problems"] == [], one
    # The call that was on it has no outcome, and says so.
    listed = place.in_core("core-a", "audit", "list", "--status", "unknown")["records"]
    assert [one["record"]["tool"] for one in listed] == ["echo__wait"] * 2


def the_balancer_goes_on_while_one_replica_is_restarted(place: Replicated) -> None:
    place.compose("stop", "--timeout", "70", "core-a")
    # Each is answered, and by the other one.
    assert place.servers_by_balancer(20) == ["core-b"] * 20
    place.compose("start", "core-a")
    place.wait_for("core-a", "/?token=", times=3)


def without_the_database_only_reading_goes_on(place: Replicated) -> None:
    place.compose("stop", "--timeout", "30", "postgres")
    refused = place.inside(
        "core-b", "skillhouse", "call", "echo:change", "--args", "{}", check=False
    )
    assert refused.returncode != 0
    place.compose("start", "postgres")

    def is_back() -> bool:
        found = place.inside(
            "core-b", "skillhouse", "call", "echo:echo", "--args", "{}", check=False
        )
        return found.returncode == 0

    until(is_back, seconds=60, otherwise=lambda: place.compose("logs", "core-b").stdout)


def each_record_has_the_name_of_its_server(place: Replicated) -> None:
    for core in CORES:
        listed = place.inside(core, "skillhouse", "audit", "list", "--json").stdout
        assert set(re.findall(r'"server": ?"([^"]*)"', listed)) == {core}
    for one in place.verified()["logs"]:
        assert one["problems"] == [], one


CHECKS: tuple[Callable[[Replicated], None], ...] = (
    both_replicas_are_ready_behind_the_balancer,
    calls_reach_every_executor,
    a_question_of_one_replica_is_answered_at_the_other,
    a_stop_at_one_replica_ends_what_runs_at_the_other,
    executors_see_neither_the_database_nor_the_balancer,
    both_logs_are_whole_and_the_state_has_their_heads,
    one_killed_executor_costs_the_call_on_it,
    one_killed_replica_costs_the_call_on_it,
    the_balancer_goes_on_while_one_replica_is_restarted,
    without_the_database_only_reading_goes_on,
    each_record_has_the_name_of_its_server,
)

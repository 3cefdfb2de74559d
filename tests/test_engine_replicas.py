"""deploy/compose-replicas.yaml in a container engine.

As tests/test_engine.py: one test, whose parts are subtests. It runs once the configuration has a
state by address; until then tests/test_deploy.py holds what the file says.
"""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house.config.config_values import Settings
from tests.containers import ROOT
from tests.engine import BASE, Composed, Engine, composers, engine, until
from tests.house.coded import tool, write_code

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
SECONDS = 1_800
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
def echo(params, context):
    return params.get("text", "")

tools = {"echo": echo, "change": echo}
"""


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
        write_code(base / "workspace/skills/echo", CODE, tool("echo"), tool("change", "write"))

    def in_core(self, core: str, *words: str) -> Any:
        """Return what a verb of skillhouse says as JSON in a replica."""
        done = self.inside(core, "skillhouse", *words, "--json", check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def called(self, core: str, name: str, **arguments: Any) -> Any:
        return self.in_core(core, "call", name, "--args", json.dumps(arguments))

    def executors(self) -> list[str]:
        """Return the containers of the executors that run."""
        return self.compose("ps", "-q", "skill-executor").stdout.split()

    def fetched(self, path: str) -> int:
        """Return the status of an answer by the balancer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as found:
                return int(found.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture
def running(need: Any) -> Iterator[Engine]:
    if "state" not in Settings.__struct_fields__:
        pytest.skip("this version keeps no state by address")
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)
    with engine() as found:
        if isinstance(found, str):
            need(not found.startswith("not installed"), found)
            pytest.skip(f"no container engine can run here: {found}")
        yield found
        signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)


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


def calls_reach_every_executor(place: Replicated) -> None:
    assert len(place.executors()) == EXECUTORS
    for number in range(EXECUTORS * 4):
        for core in CORES:
            found = place.called(core, "echo:echo", text=f"{core}-{number}")
            assert (found["status"], found["content"]) == ("ok", f"{core}-{number}"), found
    for container in place.executors():
        logs = place.engine.run("docker", "logs", container)
        assert "echo:echo" in logs.stdout + logs.stderr


def a_question_of_one_replica_is_in_the_inbox_of_the_other(place: Replicated) -> None:
    asked = place.called("core-a", "echo:change", text="x")
    assert asked["status"] == "pending"
    listed = json.dumps(place.in_core("core-b", "approvals", "list"))
    assert asked["approval_id"] in listed


def a_stop_on_one_replica_holds_on_the_other(place: Replicated) -> None:
    assert place.inside("core-a", "skillhouse", "stop").returncode == 0
    assert place.called("core-b", "echo:change", text="x")["status"] in ("denied", "error")
    assert place.inside("core-b", "skillhouse", "resume").returncode == 0
    assert place.called("core-a", "echo:echo", text="x")["status"] == "ok"


def executors_see_neither_the_database_nor_the_balancer(place: Replicated) -> None:
    reach = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    container = place.executors()[0]
    for host, port in (("postgres", "5432"), ("balancer", "8600")):
        argv = ("docker", "exec", container, "python", "-c", reach, host, port)
        assert place.engine.run(*argv, check=False).returncode != 0
    assert place.inside("core-a", "python", "-c", reach, "postgres", "5432").returncode == 0


def one_killed_executor_costs_no_later_call(place: Replicated) -> None:
    place.engine.run("docker", "kill", place.executors()[0])
    for number in range(EXECUTORS * 2):
        assert place.called("core-a", "echo:echo", text=str(number))["status"] == "ok"


def the_balancer_goes_on_with_one_replica(place: Replicated) -> None:
    place.compose("stop", "--timeout", "70", "core-a")
    for _ in range(20):
        # Without a token, but by a replica.
        assert place.fetched("/api/v1/status") == 401
    place.compose("start", "core-a")
    place.wait_for("core-a", "/?token=", times=2)


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


def each_replica_has_a_whole_log_of_its_own_name(place: Replicated) -> None:
    for core in CORES:
        assert place.inside(core, "skillhouse", "audit", "verify").returncode == 0
        listed = place.inside(core, "skillhouse", "audit", "list", "--json").stdout
        assert set(re.findall(r'"server": ?"([^"]*)"', listed)) == {core}


CHECKS: tuple[Callable[[Replicated], None], ...] = (
    calls_reach_every_executor,
    a_question_of_one_replica_is_in_the_inbox_of_the_other,
    a_stop_on_one_replica_holds_on_the_other,
    executors_see_neither_the_database_nor_the_balancer,
    one_killed_executor_costs_no_later_call,
    the_balancer_goes_on_with_one_replica,
    without_the_database_only_reading_goes_on,
    each_replica_has_a_whole_log_of_its_own_name,
)

"""Sixteen processes on two hosts use one state: network namespaces, of which the second has a clock
that is wrong and is cut off for a while."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from tests.approval.questions import question, said
from tests.extensions.postgres.state_servers import (
    database_of,
    new_database,
    served,
    workers,
)
from tests.extensions.postgres.test_state_server import ANSWERS, REDEEMS
from tests.extensions.postgres.two_hosts import ADDRESSES, TwoHosts, two_hosts
from tests.frontends.mcp_peer import Peer
from tests.harness import Need, ran, until
from tests.postgres import cluster, program

from skillhouse.approval import Answer, ApprovalBroker, ApprovalSettings, ApprovalState

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.file_state]

PROCESSES = 16
DAY_USD, AMOUNT, HOURLY = 200, 7, 2
"""Of the tests' tier policy: what a day may cost, and how often `gas__refuel` succeeds an hour."""
WORK_SECONDS, CUT_AFTER, CUT_SECONDS, AFTER_SECONDS = 100.0, 4.0, 25.0, 12.0
"""The cut lasts longer than any answer is waited for: who asked before it hears an error in it."""
BACK_SECONDS = 8.0
"""After which a host that was cut off has to be back."""

LATE = """
from tests.approval.questions import said
from skillhouse.approval import ApprovalBroker, ApprovalError
broker = ApprovalBroker(base / name)
print(len(broker.pending()), end=" ")
[approval] = broker.latest(1)
try:
    said(broker, approval.id)
    print("answered")
except ApprovalError as error:
    print(error.code)
"""
SPENDS = f"""
from decimal import Decimal
from skillhouse.permission import Effect
from skillhouse.tiers import TierEngine, TierLevel, TierOutcome
from tests.tiers.engine import EVERYWHERE, policy_of
tiers = TierEngine(policy_of(), base / name / STATE_FILE)
clock = lambda: round(time.time() - (OFFSET if int(name) % 2 else 0), 2)
end = time.monotonic() + SECONDS
turn = 0
while time.monotonic() < end and not (base / "ends").exists():
    turn += 1
    tool = "gas__refuel" if turn % 3 == 0 else "transfer__send"
    amount = {{"amount_usd": {AMOUNT}}} if tool == "transfer__send" else {{}}
    began = clock()
    verdict = tiers.judge(tool, "mika", level=TierLevel.WRITE, is_vouched=True, arguments=amount,
                          reachable=EVERYWHERE)
    why = verdict.reason
    if verdict.reservation:
        is_ok = verdict.effect is Effect.ALLOW
        why = "begun" if is_ok and not tiers.begin(verdict.reservation) else f"not {{why}}"
        done = TierOutcome.SUCCESS if why == "begun" else TierOutcome.WITHDRAWN
        try:
            tiers.settle(verdict.reservation, done)
        except Exception as error:
            assert type(error).__name__ == "StateError", error
    print(began, clock(), tool, why, flush=True)
    time.sleep(PAUSE)
"""


@pytest.fixture(scope="module")
def hosts(need: Need) -> Iterator[tuple[TwoHosts, str]]:
    """Two hosts, of which the first has a PostgreSQL, and its address as this process has it."""
    need(program("initdb"), "no PostgreSQL server is installed")
    with (
        two_hosts(need) as found,
        cluster(prefix=found.first.prefix, listens=ADDRESSES[0]) as server,
    ):
        yield found, server


class Shared(NamedTuple):
    """A state that two hosts use."""

    hosts: TwoHosts
    base: Path
    local: str
    """Its URL for the test, by a socket."""
    url: str
    """Its URL by the network of the hosts."""

    def run(self, work: str, **more: object) -> list[str]:
        """Run a piece of work in every process of both hosts."""
        named = "".join(f"{key} = {value!r}\n" for key, value in more.items() if key.isupper())
        rest = {key: value for key, value in more.items() if not key.isupper()}
        return workers(
            self.base,
            self.url,
            PROCESSES,
            named + work,
            prefix_of=lambda at: self.hosts.host_of(at).prefix,
            **rest,  # type: ignore[arg-type] # What `meanwhile` does.
        )


@pytest.fixture(params=[90 * 60, -90 * 60], ids=["ahead", "behind"])
def shared(
    request: pytest.FixtureRequest, hosts: tuple[TwoHosts, str], tmp_path: Path
) -> Iterator[Shared]:
    found, server = hosts
    found.set_clock(request.param, tmp_path)
    local = new_database(server)
    with served(tmp_path, local):
        url = f"postgresql://tests@{ADDRESSES[0]}/{database_of(local)}"
        yield Shared(found, tmp_path, local, url)


def test_the_clocks_of_the_hosts_differ(shared: Shared) -> None:
    code = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))"
    times = [
        [float(one) for one in ran([*host.prefix, sys.executable, "-c", code]).stdout.split()]
        for host in (shared.hosts.first, shared.hosts.second)
    ]
    assert abs(times[1][0] - times[0][0] - shared.hosts.offset) < 30
    assert times[1][1] - times[0][1] > 300_000


def test_one_answers_first_one_uses_it_and_expiry_is_by_the_databases_clock(
    shared: Shared,
) -> None:
    broker = ApprovalBroker(shared.base)
    broker.open(question())
    # Which lasts an hour, and the second host is an hour and a half off.
    answered = shared.run(ANSWERS)
    assert (answered.count("first"), len(set(answered))) == (1, 2), answered
    approved = broker.open(question("/w/other"))
    said(broker, approved.id, Answer.ONCE)
    used = shared.run(REDEEMS)
    assert (used.count("True"), len(set(used))) == (1, 2), used
    brief = ApprovalBroker(shared.base, settings=ApprovalSettings(expires_seconds=1))
    late = brief.open(question("/w/late"))
    assert until(lambda: brief.get(late.id).state is ApprovalState.EXPIRED)
    assert shared.run(LATE) == ["0 expired"] * PROCESSES


def test_sums_and_counters_of_both_hosts_are_one(shared: Shared) -> None:
    lines = spent(shared.run(SPENDS, SECONDS=5.0, PAUSE=0.0, OFFSET=shared.hosts.offset))
    check_limits(shared, lines)
    # Each host had its part, and reached the limits.
    assert {line.host for line in lines if line.why == "begun"} == {0, 1}
    assert {line.why for line in lines} >= {"begun", "cooldown-hour", "not daily-limit-exceeded"}


class Line(NamedTuple):
    host: int
    began: float
    ended: float
    tool: str
    why: str


def spent(found: list[str]) -> list[Line]:
    lines = []
    for number, text in enumerate(found):
        for line in text.splitlines():
            began, ended, tool, why = line.split(" ", 3)
            lines.append(Line(number % 2, float(began), float(ended), tool, why))
    return lines


def check_limits(shared: Shared, lines: list[Line]) -> None:
    begun = Counter(line.tool for line in lines if line.why == "begun")
    with psycopg.connect(shared.local) as connection:
        rows = connection.execute(
            # What is beyond the limit is held while a person would be asked, and stays so where
            # its process was cut off amid that.
            "SELECT tool, count(*), sum(usd::numeric) FROM tier_use WHERE state <> 'held' "
            "GROUP BY tool"
        ).fetchall()
    kept = {tool: (count, usd) for tool, count, usd in rows}
    # One whose end was cut off counts, and its process does not know that.
    assert begun["transfer__send"] <= kept["transfer__send"][0], (begun, kept)
    assert kept["transfer__send"][1] <= DAY_USD, kept
    assert begun["gas__refuel"] <= HOURLY, (begun, kept)


def test_a_host_that_is_cut_off_refuses_and_comes_back(shared: Shared) -> None:
    times: list[float] = []
    codes: list[tuple[int, str]] = []
    (shared.base / "cut").mkdir()
    peer = Peer(shared.base / "cut")
    rule = 'effect = "allow"\naction = "write"\npattern = "*"'
    peer.configure(f'[state]\nurl = "{shared.url}"\n[[rules]]\n{rule}\n')
    assert called(shared, peer, "before")[0] == 0

    def cut() -> None:
        time.sleep(CUT_AFTER)
        with shared.hosts.cut():
            times.append(time.time())
            codes.append(called(shared, peer, "during"))
            time.sleep(max(0.0, CUT_SECONDS - (time.time() - times[0])))
            times.append(time.time())
        time.sleep(AFTER_SECONDS)
        (shared.base / "ends").touch()

    more = {"SECONDS": WORK_SECONDS, "PAUSE": 0.1, "OFFSET": shared.hosts.offset}
    lines = spent(shared.run(SPENDS, meanwhile=cut, **more))
    check_limits(shared, lines)
    down, up = times
    # What was judged before the cut may be settled amid it, and says what it was judged.
    during = [line for line in lines if down + 0.2 < line.began and line.ended < up]
    here, away = ([line for line in during if line.host == host] for host in (0, 1))
    # Nothing goes on there, and the host of the server is held up for a while at most.
    assert away
    assert {line.why for line in away} == {"state-unreadable"}
    assert any(line.why != "state-unreadable" for line in here)
    # It says so in time, and comes back by itself.
    assert max(line.ended - line.began for line in lines) < 25
    later = [line for line in lines if line.host == 1 and line.began > up + BACK_SECONDS]
    assert later
    assert "state-unreadable" not in {line.why for line in later}
    [(code, text)] = codes
    assert code != 0
    assert re.search("cannot be used|does not answer", text), text
    assert not (peer.project / "during").exists()
    assert called(shared, peer, "after")[0] == 0
    assert (peer.project / "after").exists()


def called(shared: Shared, peer: Peer, name: str) -> tuple[int, str]:
    """Write a file by a call on the second host; return the exit code and what it says."""
    words = ("call", "write", "--args", json.dumps({"path": name, "content": "text"}))
    command = [*shared.hosts.second.prefix, sys.executable, "-m", "skillhouse", *words]
    done = ran(command, env=peer.environment, cwd=peer.project, timeout=60)
    return done.returncode, done.stdout + done.stderr

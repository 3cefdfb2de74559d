"""Calls of several servers while what they run on is broken, and what must be true afterwards.

`python -m tests.chaos SECONDS [SEED]` runs it by hand, and prints what happened. The seed gives the
faults, their moments and what callers do; threads and processes still interleave as they like.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos_checks import ChaosReport, Sent, check
from tests.chaos_parts import HANG, MUTE, PASS, REFUSE
from tests.chaos_place import ASKED, ChaosLimits, ChaosPlace, Core
from tests.harness import ran, until
from tests.replicas import http

CALLERS = 6
CALL_SECONDS = 25.0
KINDS = ("mark", "mark", "mark", "spend", "rare", "asked", "asked", "asked")
RESUME_SECONDS = 5.0
"""How often the owner lets tools go on that wait after refusals in a row."""


class Fault(NamedTuple):
    after: float
    """Seconds since the one before ended."""
    what: str
    target: int
    seconds: float


def schedule(seed: int, seconds: float, *, has_disk: bool) -> list[Fault]:
    """Return the faults of a seed, one after the other: each kind before any comes again.

    >>> schedule(1, 30, has_disk=True) == schedule(1, 30, has_disk=True)
    True
    """
    choice = random.Random(seed)
    kinds = [name for name in FAULTS if has_disk or name not in OF_DISKS]
    found: list[Fault] = []
    spent = 0.0
    while spent < seconds:
        choice.shuffle(kinds)
        for what in kinds:
            fault = Fault(
                choice.uniform(0.3, 1.5), what, choice.randrange(3), choice.uniform(0.5, 3.5)
            )
            found.append(fault)
            spent += fault.after + fault.seconds
            if spent >= seconds:
                break
    return found


def _kill_core(place: ChaosPlace, fault: Fault) -> None:
    core = place.cores[fault.target]
    core.kill()
    time.sleep(fault.seconds / 3)
    core.start_again()


def _stop_core(place: ChaosPlace, fault: Fault) -> None:
    running = place.cores[fault.target].running
    assert running is not None
    running.process.send_signal(signal.SIGSTOP)
    # Longer than the server allows a transaction to stand still, at times.
    time.sleep(fault.seconds * 2.5)
    running.process.send_signal(signal.SIGCONT)


def _kill_executor(place: ChaosPlace, fault: Fault) -> None:
    place.workers[fault.target].kill()
    time.sleep(fault.seconds / 3)
    place.restart_worker(fault.target)


def _stop_executor(place: ChaosPlace, fault: Fault) -> None:
    process = place.workers[fault.target].process
    process.send_signal(signal.SIGSTOP)
    time.sleep(fault.seconds)
    process.send_signal(signal.SIGCONT)


def _cut(what: str, mode: str) -> Callable[[ChaosPlace, Fault], None]:
    def cut(place: ChaosPlace, fault: Fault) -> None:
        core = place.cores[fault.target]
        cuts = {
            "executor": [place.executor_cuts[fault.target]],
            "state": list(core.cuts.values()),
            "callers": [core.front],
        }[what]
        for one in cuts:
            one.set(mode)
        time.sleep(fault.seconds)
        for one in cuts:
            one.set(PASS)

    return cut


def _stop_database(place: ChaosPlace, fault: Fault) -> None:
    with place.database.stopped():
        # Longer than a look waits, at times.
        time.sleep(fault.seconds * 1.5)


def _fill_disk(place: ChaosPlace, fault: Fault) -> None:
    core = next(one for one in place.cores if one.disk)
    assert core.disk is not None
    began = time.time()
    core.disk.fill()
    time.sleep(fault.seconds)
    core.disk.empty()
    core.is_full_at.append((began, time.time()))


def _fill_database(place: ChaosPlace, fault: Fault) -> None:
    with place.database.full():
        time.sleep(fault.seconds * 1.5)


FAULTS: dict[str, Callable[[ChaosPlace, Fault], None]] = {
    "kill server": _kill_core,
    "stop server": _stop_core,
    "server's network refuses": _cut("callers", REFUSE),
    "server's network hangs": _cut("callers", HANG),
    "server's answers are lost": _cut("callers", MUTE),
    "kill executor": _kill_executor,
    "stop executor": _stop_executor,
    "executor's network refuses": _cut("executor", REFUSE),
    "executor's network hangs": _cut("executor", HANG),
    "executor's answers are lost": _cut("executor", MUTE),
    "state's network refuses": _cut("state", REFUSE),
    "state's network hangs": _cut("state", HANG),
    "state's answers are lost": _cut("state", MUTE),
    "database crashes": lambda place, _: place.database.restart("immediate"),
    "database restarts": lambda place, _: place.database.restart("fast"),
    "database fails over": lambda place, _: place.database.fail_over(),
    "stop database": _stop_database,
    "full disk": _fill_disk,
    "database's full disk": _fill_database,
}
OF_DISKS = ("full disk", "database's full disk")
"""They need a disk of their own."""


class Callers:
    """Threads that call and answer until they are to end."""

    def __init__(self, place: ChaosPlace, seed: int) -> None:
        self._place = place
        self._seed = seed
        self._is_over = threading.Event()
        self.sent: list[Sent] = []
        self.answers: Counter[str] = Counter()
        self.refused: set[str] = set()
        """Words that the person refused each time that they answered."""
        self.faults: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(CALLERS)
        ]
        self._threads.append(threading.Thread(target=self._resume, daemon=True))
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(CALL_SECONDS * 4)
        assert not any(thread.is_alive() for thread in self._threads)
        if self.faults:
            raise self.faults[0]

    def _run(self, number: int) -> None:
        choice = random.Random(f"{self._seed}/{number}")
        try:
            while not self._is_over.wait(choice.uniform(0.02, 0.2)):
                kind, word = choice.choice(KINDS), f"{choice.getrandbits(64):016x}"
                found = self._call(choice, kind, word)
                if kind == "asked" and found.seen == "pending":
                    self._go_on(choice, word)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it.
            self.faults.append(error)

    def _go_on(self, choice: random.Random, word: str) -> None:
        """Answer a question at any server, then repeat its call at two others at once."""
        given = "once" if choice.random() < 0.85 else "no"
        if given == "no":
            self.refused.add(word)
        for _ in range(3):
            if self._answer(choice, word, given):
                break
            time.sleep(0.5)
        seeds = [choice.getrandbits(32) for _ in range(2)]
        twins = [
            threading.Thread(target=self._call, args=(random.Random(seed), "asked", word))
            for seed in seeds
        ]
        for twin in twins:
            twin.start()
        for twin in twins:
            twin.join()
        if choice.random() < 0.3:
            self._call(choice, "asked", word)

    def _answer(self, choice: random.Random, word: str, given: str) -> bool:
        core = choice.choice(self._place.cores)
        try:
            address = core.address
            listed = http(address, "/api/v1/approvals", self._place.person, seconds=8)
            if listed.status != 200:
                self.answers[f"list {listed.status}"] += 1
                return False
            for one in listed.value["approvals"]:
                if one["state"] == "open" and word in json.dumps(one):
                    path = f"/api/v1/approvals/{one['id']}/answer"
                    body = {"answer": given, "content_digest": one["content_digest"]}
                    status = http(address, path, self._place.person, body, seconds=8).status
                    self.answers[f"answer {status}"] += 1
                    return status == 200
        except (OSError, ValueError):
            self.answers["lost"] += 1
            return False
        self.answers["not found"] += 1
        return False

    def _resume(self) -> None:
        choice = random.Random(f"{self._seed}/owner")
        while not self._is_over.wait(RESUME_SECONDS):
            running = choice.choice(self._place.cores).running
            assert running is not None
            try:
                body = {"confirm": "resume"}
                status = http(running.address, "/api/v1/resume", running.token, body, seconds=8)[0]
                self.answers[f"resume {status}"] += 1
            except (OSError, ValueError):
                self.answers["resume lost"] += 1

    def _call(self, choice: random.Random, kind: str, word: str) -> Sent:
        call = f"c{choice.getrandbits(80):020x}"
        arguments: dict[str, Any] = {
            "word": word,
            "kind": kind,
            # How long an effect takes, in milliseconds: faults come in the middle of it.
            "wait": choice.choice((0, 0, 50, 400)) if kind != "asked" else 100,
            "counter": f"http://127.0.0.1:{self._place.counter.port}",
        }
        if kind == "spend":
            arguments["amount_usd"] = 1
        name = ASKED[int(word, 16) % len(ASKED)] if kind == "asked" else kind
        body = {"tool": f"chaos__{name}", "arguments": arguments, "call_id": call}
        address = self._place.balancer.address
        try:
            found = http(address, "/api/v1/calls", self._place.caller, body, seconds=CALL_SECONDS)
        except (OSError, ValueError) as error:
            sent = Sent(call, kind, word, "lost", type(error).__name__)
        else:
            value = found.value if isinstance(found.value, dict) else {}
            seen = str(value.get("status")) if found.status == 200 else "refused"
            text = str(value.get("content") or found.value)[:300]
            sent = Sent(call, kind, word, seen, f"{found.status} {text}")
        self.sent.append(sent)
        return sent


def run_chaos(base: Path, seconds: float, seed: int, *, has_disk: bool) -> ChaosReport:
    """Call, break and heal for some seconds, then compare logs, files and state."""
    report = ChaosReport(seed)
    with ExitStack() as kept:
        place = ChaosPlace(base, kept, ChaosLimits.of(seconds), has_disk=has_disk)
        callers = Callers(place, seed)
        end = time.monotonic() + seconds
        for fault in schedule(seed, seconds, has_disk=has_disk):
            time.sleep(fault.after)
            if time.monotonic() > end:
                break
            FAULTS[fault.what](place, fault)
            report.faults[fault.what] += 1
        # All is whole again: what goes on must do so by itself.
        ready = until(lambda: len(place.balancer.ready) == len(place.cores), 60)
        if not ready:
            report.wrong += [f"not ready again: {_standing(core)}" for core in place.cores]
        began = len(callers.sent)
        time.sleep(5)
        callers.end()
        late = Counter(one.seen for one in callers.sent[began:])
        report.facts["calls once all is whole"] = dict(late)
        if not late["ok"]:
            report.wrong.append(f"no call works once all is whole: {dict(late)}")
        report.facts["answers"] = dict(callers.answers)
        check(place, callers.sent, callers.refused, report)
    return report


def _standing(core: Core) -> str:
    assert core.running is not None
    try:
        found: object = http(core.running.address, "/readyz", seconds=5)[:2]
    except OSError as error:
        found = repr(error)
    code, said = core.running.process.poll(), core.said.read_text()[-300:]
    return f"{core.name}: {found}, exit code {code}, said {said!r}"


def can_mount() -> bool:
    """Whether a disk of a test's own can be mounted, by the superuser."""
    return os.geteuid() == 0 and ran(["unshare", "--mount", "true"]).returncode == 0


def _main(seconds: float, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="skh-chaos-") as base:
        report = run_chaos(Path(base), seconds, seed, has_disk=can_mount())
        print(report)
        if report.wrong:
            kept = Path(tempfile.mkdtemp(prefix="skh-chaos-kept-"))
            names = ("collected", "effects", *(f"core-{name}/said" for name in "abc"))
            subprocess.run(["cp", "-a", "--parents", *names, kept], cwd=base, check=False)
            print(f"kept: {kept}")
    return bool(report.wrong)


if __name__ == "__main__":
    sys.exit(_main(float(sys.argv[1]), int((sys.argv[2:] or [str(time.time_ns() % 10**6)])[0])))

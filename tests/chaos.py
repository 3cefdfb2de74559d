"""Calls of several servers while what they run on is broken, and what must be true afterwards.

`python -m tests.chaos SECONDS [SEED]` runs it by hand, and prints what happened. The seed gives the
faults, their moments and what callers do; threads and processes still interleave as they like.
"""

from __future__ import annotations

import json
import os
import random
import re
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

from skillhouse.audit import AuditRecord, read_records
from tests.chaos_parts import HANG, MUTE, PASS, REFUSE, Cut, DatabasePair, EffectCounter, SmallDisk
from tests.executors import RunningWorker, worker
from tests.extensions.postgres.state_servers import database_of, new_database
from tests.harness import ran, until
from tests.house.coded import tool, write_code
from tests.replicas import Replica, RoundRobin, http

CALLERS = 6
DAY_USD, RARE_MAX = 25, 15
"""What the tier policy allows in a day: dollars of `spend`, and successes of `rare`."""
CALL_SECONDS = 25.0
KINDS = ("mark", "mark", "mark", "spend", "rare", "asked", "asked")
SKILL = """
def run(params, context):
    # One line of the counter, outside of all that is broken here.
    parts = (params["counter"], params["kind"], params["word"], str(params["wait"]))
    return context.fetch("/".join(parts)).text()

tools = {"mark": run, "spend": run, "rare": run, "asked": run}
"""
CONFIG = """
server_name = "core-{name}"
roots = ["{base}/skills"]

[state]
url = "{state}"

[approvals]
open_max = 80000
user_open_max = 80000
user_rate = 80000

[net]
hosts = ["GET http://127.0.0.1:{counter}"]
private = ["127.0.0.1/32"]

[skill_code]
enabled = true
executor_token = "file:{base}/token"
callback = "127.0.0.1:0"

[skill_code.executors]
python = [{executors}]

[[rules]]
effect = "ask"
action = "skill_tool"
pattern = "chaos:asked"

[[rules]]
effect = "allow"
action = "skill_tool"
patterns = ["chaos:mark", "chaos:spend", "chaos:rare"]
"""
POLICY = f"""
version: "1"
thresholds: {{tier3MaxUsd: 5, tier2MaxUsd: 50, tier2DailyUsd: {DAY_USD}}}
tools:
  chaos__mark: {{tier: 3}}
  chaos__asked: {{tier: 3}}
  fetch: {{tier: 3}}
  chaos__spend: {{tier: 2}}
  chaos__rare: {{tier: 3, cooldown: {{maxPerHour: {RARE_MAX}}}}}
fallback: {{tier: 1}}
"""
TOKEN = "c" * 64
FULL = "the audit log cannot be written"
"""Then nothing is done, and the refusal cannot be recorded."""
REFUSED_LATER = "a person refused it; no call waited for the answer"
"""Of a record about an answer, beside that of the call, which ended before it came."""


class Sent(NamedTuple):
    """A call as its caller saw it."""

    call: str
    """Id of the call, which the records have."""
    kind: str
    word: str
    seen: str
    """Status of the result; `lost` without one, `refused` where the server did not take it."""
    said: str


class Core:
    """A server with a home, a network to the database and a chain of its own."""

    def __init__(self, place: ChaosPlace, name: str, disk: SmallDisk | None) -> None:
        self.name = name
        self.disk = disk
        self.cuts = {one: Cut(place.database.socket_of(one)) for one in "ab"}
        self._place = place
        self._home = place.base / f"core-{name}" / "home"
        file = self._home / ".config/skillhouse/config.toml"
        file.parent.mkdir(parents=True)
        hosts = ",".join(f"127.0.0.1:{self.cuts[one].port}" for one in "ab")
        address = f"postgresql://tests@{hosts}/{place.database_name}"
        executors = ", ".join(f'"http://127.0.0.1:{one.port}/rpc"' for one in place.executor_cuts)
        file.write_text(
            CONFIG.format(
                name=name,
                base=place.base,
                state=f"{address}?target_session_attrs=read-write",
                counter=place.counter.port,
                executors=executors,
            )
        )
        (file.parent / "policy.yml").write_text(POLICY)
        self.running: Replica | None = None
        self.ended_at: list[float] = []
        """When one of its processes was killed; what it ran then has no outcome."""
        self.is_full_at: list[tuple[float, float]] = []

    @property
    def said(self) -> Path:
        """File of what it writes to stderr."""
        return self._home.parent / "said"

    @property
    def state(self) -> Path:
        return self.disk.directory if self.disk else self._home / ".local/state/skillhouse"

    def start(self) -> None:
        options = ("--allow-host", f"127.0.0.1:{self._place.balancer.port}")
        prefix = self.disk.prefix if self.disk else ()
        if self.disk:
            prefix = (*prefix, str(self._place.base / "project"))
        # A pipe that is read at the end alone would fill, and hold the server up.
        prefix = (*prefix, "sh", "-c", 'exec "$@" 2>> "$0"', str(self.said))
        before = self.running
        self.running = Replica(self._place.base, *options, prefix=prefix, HOME=str(self._home))
        if before is None:
            self._place.balancer.add(self.running.address)
        else:
            self._place.balancer.replace(before.address, self.running.address)

    def start_again(self) -> None:
        """Start it, and again where it could not: the state may be away just then."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.start()
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.ended_at.append(time.time())

    def close(self) -> None:
        if self.running is not None:
            self.running.kill()


class ChaosPlace:
    """Everything that runs, and what breaks it."""

    def __init__(self, base: Path, kept: ExitStack, *, has_disk: bool) -> None:
        self.base = base
        self.database = DatabasePair()
        kept.callback(self.database.close)
        self.state_url = new_database(self.database.server())
        self.database_name = database_of(self.state_url)
        self.counter = EffectCounter(base / "effects")
        kept.callback(self.counter.close)
        tools = [
            tool(name, "write", parameters={"type": "object", "additionalProperties": True})
            for name in ("mark", "spend", "rare", "asked")
        ]
        write_code(base / "skills/chaos", SKILL, *tools)
        (base / "token").write_text(TOKEN)
        self._kept = kept
        self.workers: list[RunningWorker] = []
        self.executor_cuts: list[Cut] = []
        for number in range(3):
            self.workers.append(self._worker(number, 0))
            self.executor_cuts.append(Cut(self.workers[number].port))
            kept.callback(self.executor_cuts[number].close)
        self.balancer = kept.enter_context(RoundRobin([]))
        self.cores: list[Core] = []
        for name in "abc":
            home = base / f"core-{name}/home/.local/state/skillhouse"
            disk = None
            if has_disk and name == "c":
                disk = SmallDisk(home)
                kept.callback(disk.close)
            core = Core(self, name, disk)
            for cut in core.cuts.values():
                kept.callback(cut.close)
            self.cores.append(core)
            core.start()
            kept.callback(core.close)
        assert until(lambda: len(self.balancer.ready) == len(self.cores), 30)
        self.caller = self._token("caller", "call")
        self.person = self._token("person", "read", "approve")
        self._workers_started = 0

    def _worker(self, number: int, start: int) -> RunningWorker:
        place = self.base / f"executor-{number}-{start}"
        place.mkdir()
        (place / "known").write_text(f"cores {TOKEN}\n")
        words = ("--core", "http://127.0.0.1:9/rpc", "--core", "http://*/rpc")
        return self._kept.enter_context(
            worker(place, *words, token=("--tokens", str(place / "known")))
        )

    def restart_worker(self, number: int) -> None:
        self._workers_started += 1
        self.workers[number] = self._worker(number, self._workers_started)
        self.executor_cuts[number].target = self.workers[number].port

    def _token(self, name: str, *scopes: str) -> str:
        first = self.cores[0].running
        assert first is not None
        body = {"name": name, "scopes": list(scopes)}
        return str(http(first.address, "/api/v1/tokens", first.token, body).value["token"])


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
    kinds = [name for name in FAULTS if has_disk or name != "full disk"]
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


def _cut_executor(mode: str) -> Callable[[ChaosPlace, Fault], None]:
    def cut(place: ChaosPlace, fault: Fault) -> None:
        place.executor_cuts[fault.target].set(mode)
        time.sleep(fault.seconds)
        place.executor_cuts[fault.target].set(PASS)

    return cut


def _cut_state(mode: str) -> Callable[[ChaosPlace, Fault], None]:
    def cut(place: ChaosPlace, fault: Fault) -> None:
        for one in place.cores[fault.target].cuts.values():
            one.set(mode)
        time.sleep(fault.seconds)
        for one in place.cores[fault.target].cuts.values():
            one.set(PASS)

    return cut


def _fill_disk(place: ChaosPlace, fault: Fault) -> None:
    core = next(one for one in place.cores if one.disk)
    assert core.disk is not None
    began = time.time()
    core.disk.fill()
    time.sleep(fault.seconds)
    core.disk.empty()
    core.is_full_at.append((began, time.time()))


FAULTS: dict[str, Callable[[ChaosPlace, Fault], None]] = {
    "kill server": _kill_core,
    "stop server": _stop_core,
    "kill executor": _kill_executor,
    "stop executor": _stop_executor,
    "executor's network refuses": _cut_executor(REFUSE),
    "executor's network hangs": _cut_executor(HANG),
    "executor's answers are lost": _cut_executor(MUTE),
    "state's network refuses": _cut_state(REFUSE),
    "state's network hangs": _cut_state(HANG),
    "state's answers are lost": _cut_state(MUTE),
    "database crashes": lambda place, _: place.database.crash(),
    "database fails over": lambda place, _: place.database.fail_over(),
    "full disk": _fill_disk,
}


class Callers:
    """Threads that call and answer until they are to end."""

    def __init__(self, place: ChaosPlace, seed: int) -> None:
        self._place = place
        self._seed = seed
        self._is_over = threading.Event()
        self.sent: list[Sent] = []
        self.answers: Counter[str] = Counter()
        self.faults: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(CALLERS)
        ]
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
        assert core.running is not None
        try:
            address = core.running.address
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
        except OSError:
            self.answers["lost"] += 1
            return False
        self.answers["not found"] += 1
        return False

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
        body = {"tool": f"chaos__{kind}", "arguments": arguments, "call_id": call}
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


class ChaosReport:
    """What came of a run: `wrong` is empty where everything that must be true is."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.faults: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.recorded: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.examples: dict[str, str] = {}
        self.facts: dict[str, Any] = {}

    def __str__(self) -> str:
        parts = {
            "faults": dict(self.faults),
            "calls as callers saw them": dict(self.seen),
            "calls as recorded": dict(self.recorded),
            "effects": dict(self.effects),
            **self.facts,
        }
        lines = [f"chaos: seed {self.seed}", *(f"  {name}: {what}" for name, what in parts.items())]
        lines += [
            f"  e.g. {name.partition(':')[0]}: {text}" for name, text in self.examples.items()
        ]
        return "\n".join([*lines, *(f"  WRONG: {one}" for one in self.wrong[:40])])


def run_chaos(base: Path, seconds: float, seed: int, *, has_disk: bool) -> ChaosReport:
    """Call, break and heal for some seconds, then compare logs, files and state."""
    report = ChaosReport(seed)
    with ExitStack() as kept:
        place = ChaosPlace(base, kept, has_disk=has_disk)
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
        _check(place, callers, report)
    return report


def _standing(core: Core) -> str:
    assert core.running is not None
    try:
        found: object = http(core.running.address, "/readyz", seconds=5)[:2]
    except OSError as error:
        found = repr(error)
    code, said = core.running.process.poll(), core.said.read_text()[-300:]
    return f"{core.name}: {found}, exit code {code}, said {said!r}"


def _check(place: ChaosPlace, callers: Callers, report: ChaosReport) -> None:
    collected = place.base / "collected"
    for core in place.cores:
        assert core.running is not None
        code, _ = core.running.end(60)
        if code != 0:
            report.wrong.append(f"{core.name} ended with {code}: {core.said.read_text()[-500:]}")
        (collected / f"core-{core.name}").mkdir(parents=True)
        for file in core.state.glob("audit*"):
            target = collected / f"core-{core.name}" / file.name
            subprocess.run(["cp", "-a", str(file), str(target)], check=True)
    report.facts["answers"] = dict(callers.answers)
    for one in callers.sent:
        report.seen[one.seen] += 1
        if one.seen not in ("ok", "pending"):
            said = re.sub(r"`[^`]*`|\d+", "…", one.said)[4:]
            report.examples.setdefault(f"{one.seen}: {said[:50]}", said)
    records = {
        core.name: [
            record
            for entry in read_records(collected / f"core-{core.name}/audit.jsonl")
            for record in (entry.record, entry.outcome)
            if record is not None and record.reason != REFUSED_LATER
        ]
        for core in place.cores
    }
    _check_calls(callers.sent, records, place, report)
    _check_approvals(place, records, report)
    _check_chains(place, collected, records, report)


def _check_calls(
    sent: list[Sent],
    records: dict[str, list[AuditRecord]],
    place: ChaosPlace,
    report: ChaosReport,
) -> None:
    by_call: dict[str, list[AuditRecord]] = {}
    for found in records.values():
        for record in found:
            if record.tool.startswith("chaos__"):
                by_call.setdefault(record.call, []).append(record)
    asked = {
        str(record.arguments.get("word"))
        for found in by_call.values()
        for record in found
        if record.status == "pending"
    }
    begun: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for one in sent:
        mine = by_call.get(one.call, [])
        kinds = Counter(record.kind for record in mine)
        ends = [record.status for record in mine if record.kind != "intent"]
        if kinds["intent"] > 1 or len(ends) > 1 or kinds["outcome"] > kinds["intent"]:
            report.wrong.append(f"{one} has records {[(r.kind, r.status) for r in mine]}")
        begun[one.word] += kinds["intent"]
        status = ends[0] if ends else "no outcome" if kinds["intent"] else "no record"
        report.recorded[status] += 1
        is_silent = one.seen in ("lost", "refused") or FULL in one.said
        # A repeated call finds the question open, which has the record of the one that asked.
        is_silent = is_silent or (one.seen == "pending" and one.word in asked)
        if status == "no record" and not is_silent:
            report.wrong.append(f"{one} has no record")
        if kinds["intent"] and status in ("ok", "unknown", "no outcome"):
            counted[one.kind] += 1
        fits = {
            "ok": ("ok", "no outcome"),
            "error": ("error", "unknown", "no outcome", "no record"),
            "pending": ("pending", "escalated", "no record"),
            "denied": ("denied", "timeout", "emergency-stopped", "no record"),
        }
        if one.seen in fits and status not in fits[one.seen]:
            report.wrong.append(f"{one} is recorded as {status}")
    for kind in set(KINDS):
        for word, times in place.counter.words(kind).items():
            report.effects[kind] += times
            if times > 1:
                report.wrong.append(f"{kind} {word} was executed {times} times")
            if not begun[word]:
                report.wrong.append(f"{kind} {word} was executed, and has no intent")
    for kind, most in (("spend", DAY_USD), ("rare", RARE_MAX)):
        if counted[kind] > most:
            report.wrong.append(f"{counted[kind]} of `{kind}` count, {most} are allowed")
    if report.effects["spend"] > DAY_USD:
        report.wrong.append(f"{report.effects['spend']} dollars were spent of {DAY_USD}")


def _check_approvals(
    place: ChaosPlace, records: dict[str, list[AuditRecord]], report: ChaosReport
) -> None:
    used: Counter[str] = Counter()
    for found in records.values():
        for record in found:
            approval = record.detail.get("approval")
            if record.kind == "intent" and approval:
                used[str(approval)] += 1
    report.facts["approvals used"] = len(used)
    report.wrong += [f"approval {one} was used {n} times" for one, n in used.items() if n > 1]


def _check_chains(
    place: ChaosPlace,
    collected: Path,
    records: dict[str, list[AuditRecord]],
    report: ChaosReport,
) -> None:
    first = place.cores[0]
    assert first.running is not None
    found = ran(
        [sys.executable, "-m", "skillhouse", "audit", "verify", "--all", str(collected), "--json"],
        env=first.running.environment,
        cwd=first.running.start,
    )
    verified = json.loads(found.stdout)
    for one in verified["logs"]:
        report.wrong += [f"{one['file']}: {problem}" for problem in one["problems"]]
        if not one["heads"]:
            report.wrong.append(f"{one['file']}: the state has no head of it")
    report.wrong += [f"the state knows a log that is gone: {one}" for one in verified["absent"]]
    if not verified["is_compared"]:
        report.wrong.append("no heads were compared")
    report.facts["heads compared"] = sum(one["heads"] for one in verified["logs"])
    unknown = {record["id"] for one in verified["logs"] for record in one["unknown"]}
    left: Counter[str] = Counter()
    for core in place.cores:
        mine = records[core.name]
        ended = {record.intent for record in mine if record.kind == "outcome"}
        for record in mine:
            if record.kind == "intent" and record.id not in ended:
                left[core.name] += 1
                if record.id not in unknown:
                    report.wrong.append(f"verify does not say that {record.id} has no outcome")
                if not core.ended_at and not core.is_full_at:
                    report.wrong.append(f"no outcome of {record.tool} {record.ts} at {core.name}")
    report.facts["intents without an outcome"] = dict(left)
    report.facts["records"] = {name: len(found) for name, found in records.items()}


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

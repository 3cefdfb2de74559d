"""What must be true after a chaos test: what callers saw, what is recorded, what the state has, and
what a counter has seen that is outside of all that was broken, fit each other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from skillhouse.audit import AuditRecord, read_records
from tests.chaos_place import ChaosPlace, Core
from tests.harness import ran

KILL_SECONDS = 40.0
"""How long before a kill a call began at most that has no outcome for it."""
FULL = "the audit log cannot be written"
"""Then nothing is done, and the refusal cannot be recorded."""
REFUSED_LATER = "a person refused it; no call waited for the answer"
"""Of a record about an answer, beside that of the call, which ended before it came."""
ENDS = {
    "ok": ("ok", "no outcome"),
    "error": ("error", "unknown", "no outcome", "no record"),
    "pending": ("pending", "escalated", "no record"),
    "denied": ("denied", "timeout", "emergency-stopped", "no record"),
}
"""What a caller may see, and what is recorded of such a call."""
NOTHING = re.compile(r"\bnothing (was|is) (done|run)\b|\bdenied: ")
"""Says that the call had no effect."""


class Sent(NamedTuple):
    """A call as its caller saw it."""

    call: str
    """Id of the call, which the records have."""
    kind: str
    word: str
    seen: str
    """Status of the result; `lost` without one, `refused` where the server did not take it."""
    said: str


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


def check(place: ChaosPlace, sent: list[Sent], refused: set[str], report: ChaosReport) -> None:
    """Compare everything, once nothing is broken any more.

    Args:
        refused: The words of calls that the person answered with a refusal only.
    """
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
    for one in sent:
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
    _check_calls(sent, records, place, report)
    _check_effects(sent, refused, place, report)
    _check_state(place, records, report)
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
        if one.seen in ENDS and status not in ENDS[one.seen]:
            report.wrong.append(f"{one} is recorded as {status}")
        is_unserved = one.seen == "refused" and one.said.startswith("503")
        if one.seen not in (*ENDS, "lost") and not is_unserved:
            report.wrong.append(f"{one} is no end of a call")
    for kind in ("mark", "spend", "rare", "asked"):
        for word, times in place.counter.words(kind).items():
            report.effects[kind] += times
            if times > 1:
                report.wrong.append(f"{kind} {word} was executed {times} times")
            if not begun[word]:
                report.wrong.append(f"{kind} {word} was executed, and has no intent")
    limits = place.limits
    for kind, most in (("spend", limits.day_usd), ("rare", limits.rare_max)):
        report.facts[f"`{kind}` of its limit"] = f"{counted[kind]} of {most}"
        if max(counted[kind], report.effects[kind]) > most:
            report.wrong.append(f"{counted[kind]} of `{kind}` count, {most} are allowed")


def _check_effects(
    sent: list[Sent], refused: set[str], place: ChaosPlace, report: ChaosReport
) -> None:
    """Hold what callers were told against what was done: each word but those of questions is of
    one call."""
    done = Counter[str]()
    for kind in ("mark", "spend", "rare", "asked"):
        done += place.counter.words(kind)
    report.wrong += [
        f"{word} was refused by the person, and done" for word in refused & done.keys()
    ]
    seen: dict[str, list[Sent]] = {}
    for one in sent:
        seen.setdefault(one.word, []).append(one)
    for word, calls in seen.items():
        if any(one.seen == "ok" for one in calls) and not done[word]:
            report.wrong.append(f"{word} is ok for its caller, and was not done: {calls}")
        says_nothing = [one.seen == "denied" or NOTHING.search(one.said) for one in calls]
        if all(says_nothing) and done[word]:
            report.wrong.append(f"{word} was done, and its caller hears that it was not: {calls}")


def _check_state(
    place: ChaosPlace, records: dict[str, list[AuditRecord]], report: ChaosReport
) -> None:
    """Hold the approvals and sums that the state has against what was recorded and done."""
    used: Counter[str] = Counter()
    for found in records.values():
        for record in found:
            approval = record.detail.get("approval")
            if record.kind == "intent" and approval:
                used[str(approval)] += 1
    report.facts["approvals used"] = len(used)
    report.wrong += [f"approval {one} was used {n} times" for one, n in used.items() if n > 1]
    address = f"{place.database.server().rpartition(' ')[0]} dbname={place.database_name}"
    with psycopg.connect(address) as connection:
        approvals = connection.execute("SELECT id, state, answer FROM approval").fetchall()
        spent = connection.execute("SELECT tool, usd, state FROM tier_use").fetchall()
    known = {one: (state, answer) for one, state, answer in approvals}
    report.facts["questions in the state"] = dict(Counter(state for _, state, _ in approvals))
    for one in used:
        if known.get(one) != ("used", "once"):
            report.wrong.append(f"approval {one} was used, and the state has {known.get(one)}")
    usd = sum((Decimal(usd) for _, usd, state in spent if state != "withdrawn"), Decimal())
    report.facts["dollars in the state"] = str(usd)
    report.facts["uses in the state"] = dict(Counter(state for _, _, state in spent))
    if not report.effects["spend"] <= usd <= place.limits.day_usd:
        report.wrong.append(f"the state counts {usd} dollars, {report.effects['spend']} were spent")


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
                if not _may_lack_outcome(core, record):
                    report.wrong.append(f"no outcome of {record.tool} {record.ts} at {core.name}")
    report.facts["intents without an outcome"] = dict(left)
    report.facts["records"] = {name: len(found) for name, found in records.items()}


def _may_lack_outcome(core: Core, record: AuditRecord) -> bool:
    """Whether the server was killed while the call ran, or its log had no room."""
    at = datetime.fromisoformat(record.ts).timestamp()
    was_killed = any(0 <= end - at <= KILL_SECONDS for end in core.ended_at)
    return was_killed or any(
        since - KILL_SECONDS <= at <= until + 1 for since, until in core.is_full_at
    )

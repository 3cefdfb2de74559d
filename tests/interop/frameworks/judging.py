"""What a run of a framework shows: pure functions, each returning what is wrong.

No single trace is enough: what the model was sent, the disk and the log have to say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.interop.agents.protocols import texts
from tests.interop.frameworks.scenes import APPROVED, DENIED, LAST, REFUSED, TEXT, Seen


def judged(seen: Seen) -> dict[str, tuple[str, ...]]:
    """Return what is wrong, for each column."""
    return {name: tuple(judge(seen)) for name, (_, judge) in COLUMNS.items()}


def _results(seen: Seen) -> tuple[str, ...]:
    """Return the tool results of the longest conversation."""
    return max((one.speech.results(one.body) for one in seen.asked), key=len, default=())


def _lists(seen: Seen) -> list[str]:
    if not seen.asked:
        return [f"the model was asked nothing: {seen.said[-400:]}"]
    first = texts(seen.asked[0].body)
    faults = [] if seen.marker in first else ["the first request does not name the skill"]
    if seen.secret in first:
        faults.append("the body was there before anything loaded it")
    return faults


def _loads(seen: Seen) -> list[str]:
    faults = []
    if not any(seen.secret in one for one in _results(seen)):
        faults.append(f"no result holds the body: {_short(_results(seen))}")
    if _statuses(seen, "skill") != ["ok"]:
        faults.append(f"expected one `skill` that ran, got {_statuses(seen, 'skill')}")
    return faults


def _runs(seen: Seen) -> list[str]:
    faults = []
    if not seen.questions:
        faults.append("nobody was asked")
    if APPROVED in seen.early:
        faults.append("it was written before the answer")
    if seen.files.get(APPROVED) != TEXT:
        faults.append(f"expected the file, got {seen.files.get(APPROVED)!r}")
    ran = [one for one in _of(seen, "write", APPROVED) if one["status"] == "ok"]
    if len(ran) != 1:
        faults.append(f"expected one `write` that ran, got {len(ran)}")
    if not all(one["record"]["detail"].get("approval") for one in ran):
        faults.append("the log has no approval of it")
    return faults


def _refuses(seen: Seen) -> list[str]:
    faults = []
    if len(seen.questions) != 2:
        faults.append(f"expected two questions, got {seen.questions}")
    if REFUSED in seen.files:
        faults.append("it was written though the person denied it")
    ran = [one for one in _of(seen, "write", REFUSED) if one["status"] == "ok"]
    if ran:
        faults.append("the log has it as run")
    return faults


def _denies(seen: Seen) -> list[str]:
    faults = []
    if DENIED in seen.files:
        faults.append("it was written though a rule denies it")
    if not any(seen.reason in one for one in _results(seen)):
        faults.append(f"no result has the rule's reason: {_short(_results(seen))}")
    statuses = {one["status"] for one in _of(seen, "write", DENIED)}
    if statuses != {"denied"}:
        faults.append(f"expected `denied` in the log, got {sorted(statuses)}")
    return faults


def _ends(seen: Seen) -> list[str]:
    faults = []
    if seen.code or LAST not in seen.said:
        faults.append(f"it ended with {seen.code}: {seen.said[-400:]}")
    if not seen.is_log_whole:
        faults.append("the audit log is not whole")
    return faults


COLUMNS: Mapping[str, tuple[str, Callable[[Seen], list[str]]]] = {
    "lists": ("lists skills", _lists),
    "loads": ("loads a skill", _loads),
    "runs": ("asked, approved: runs once", _runs),
    "refuses": ("asked, denied: does not run", _refuses),
    "denies": ("denied by a rule, reason shown", _denies),
    "ends": ("goes on to its end", _ends),
}
"""Name, title, and what judges it."""


def _of(seen: Seen, tool: str, path: str) -> list[Mapping[str, Any]]:
    return [
        one
        for one in seen.records
        if one["record"]["tool"] == tool
        and str(one["record"]["arguments"].get("path", "")).endswith(path)
    ]


def _statuses(seen: Seen, tool: str) -> list[str]:
    return [one["status"] for one in seen.records if one["record"]["tool"] == tool]


def _short(values: Sequence[str]) -> str:
    return ", ".join(repr(value[:160]) for value in values) or "nothing"

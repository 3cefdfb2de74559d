"""What the traces of a run of real work show; pure functions that return what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.interop.agents.judging import PENDING, Transcript

TO_MODEL_MAX = 30_000
"""Characters of one result that go to a model."""
SUBSET = frozenset({"skill", "search_skills"})
"""What `--tools skills` offers."""
HIDDEN = "owl-behind-the-vault"
"""A word of a skill that a rule denies."""
LONG_LAST = 2_500
"""The number of the last line of the long result."""
LONG_LINE = "line %.0f is one of many lines of a long report"
"""What `seq` makes of a number; all of them are some 120,000 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is left of one run."""

    transcript: Transcript
    steps: tuple[str, ...]
    """The script, by the names of its steps."""
    results: Mapping[str, str]
    """The result of each step, as the last request to the model held it."""
    records: Sequence[Mapping[str, Any]] = ()
    """What `audit list --json` prints."""
    is_log_whole: bool = False
    """What `audit verify` says."""
    questions: tuple[str, ...] = ()
    """Ids that a person approved in another process, in this order."""
    before: tuple[Mapping[str, str], ...] = ()
    """The files of the workspace when each of them was."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Those at the end."""
    first: Mapping[str, str] = field(default_factory=dict)
    """Those at the start."""
    skill: str = ""
    """The skill's directory."""
    unit: str = ""
    """A random word that only the skill's resource holds."""
    tally: str = ""
    """What its script prints of that resource and the numbers of the workspace."""

    def status(self, tool: str) -> list[str]:
        """Return the status of each call of a tool, oldest first, a repeated pending one once.

        A client of protocol 2026-07-28 repeats a pending call by itself, to answer its question.
        """
        found = sorted(
            (one for one in self.records if one["record"]["tool"] == tool),
            key=lambda one: int(one["record"]["seq"]),
        )
        said = [
            (one["status"], one["record"]["detail"].get("approval") if _waits(one) else None)
            for one in found
        ]
        return [
            status
            for n, (status, approval) in enumerate(said)
            if n == 0 or approval is None or said[n - 1] != (status, approval)
        ]


def _waits(one: Mapping[str, Any]) -> bool:
    return bool(one["status"] == "pending")


Faults = list[str]


def offers(work: Work) -> Faults:
    """Judge whether exactly the subset is offered."""
    found = work.transcript.offered
    more = [f"`{name}` is offered" for name in sorted(found - SUBSET)]
    return more + [f"`{name}` is not offered" for name in sorted(SUBSET - found)]


def loads(work: Work) -> Faults:
    """Judge the loaded skill: its text, and the directory that its paths are relative to."""
    result = work.results.get("load", "")
    faults = _lacks(result, "scripts/tally.py FILE", work.skill)
    if "relative" not in result:
        faults.append("it does not say what its paths are relative to")
    if "hidden" in work.steps:
        return faults + _asked(work, 0, "ask-load", "skill")
    return faults + _ran(work, "skill", ["ok"])


def hidden(work: Work) -> Faults:
    """Judge the skill that a rule denies: the model gets nothing of it, though it asks."""
    faults = [] if work.results.get("hidden") else ["the call was not answered"]
    if any(HIDDEN in text for text in (*work.results.values(), work.transcript.words)):
        faults.append("something of it arrived")
    return faults + [f"it has run: {s}" for s in work.status("skill")[2:] if s == "ok"]


def reads(work: Work) -> Faults:
    """Judge the resource: its word arrives by our tool, and was not there before."""
    faults = _lacks(work.results.get("read", ""), work.unit)
    if work.unit in work.transcript.own_words or work.unit in work.results.get("load", ""):
        faults.append("the resource was there before it was read")
    return faults + _ran(work, "read", ["ok", "denied", "ok"])


def corrects(work: Work) -> Faults:
    """Judge the script's relative path: refused with the right one, and nobody was asked."""
    result = work.results.get("relative", "")
    faults = _lacks(result, f"{work.skill}/scripts/tally.py")
    return faults + (["a person was asked about it"] if PENDING in result else [])


def runs(work: Work) -> Faults:
    """Judge the script: asked about, answered elsewhere, and run once with what lies beside it."""
    faults = _asked(work, 0, "ask", "exec")
    faults += _lacks(work.results.get("run", ""), work.tally)
    if work.before and "runs.log" in work.before[0]:
        faults.append("it ran before it was approved")
    if work.files.get("runs.log") != "ran\n":
        faults.append(f"it did not run once: {work.files.get('runs.log')!r}")
    return faults + _ran(work, "exec", ["error", "pending", "ok", "denied", "ok"])


def writes(work: Work) -> Faults:
    """Judge the file that a rule allows."""
    faults = [] if PENDING not in work.results.get("write", PENDING) else ["it was not written"]
    if work.files.get("out/report.md") != "The tally is written.\n":
        faults.append(f"the file holds {work.files.get('out/report.md')!r}")
    return faults + _ran(work, "write", ["ok", "pending", "ok"])


def asks(work: Work) -> Faults:
    """Judge the file that a person is asked about."""
    faults = _asked(work, 1, "ask-write", "write")
    if "summary.md" in (work.before[1] if len(work.before) > 1 else ()):
        faults.append("it was written before it was approved")
    if work.files.get("summary.md") != "A person agreed to this.\n":
        faults.append(f"the file holds {work.files.get('summary.md')!r}")
    return faults


def denied(work: Work) -> Faults:
    """Judge the denied command: the model reads the rule, and the file is as it was."""
    result = work.results.get("deny", "")
    faults = _lacks(result, "denied", "rule `exec rm *`", "a person deletes files")
    if work.files.get("numbers.txt") != work.first.get("numbers.txt"):
        faults.append("the numbers are not as they were")
    return faults


def denied_read(work: Work) -> Faults:
    """Judge the denied file of the skill: the model reads the rule, and nothing of the file."""
    result = work.results.get("deny-read", "")
    faults = _lacks(result, "denied", f"rule `read {work.skill}/private/*`", "keys stay unread")
    return faults + (["its text arrived"] if "hidden-key" in result else [])


def continues(work: Work) -> Faults:
    """Judge the long result: bounded, with head and tail, and read on where it says."""
    long, rest = work.results.get("long", ""), work.results.get("rest", "")
    lines = [LONG_LINE.replace("%.0f", str(number)) for number in range(1, LONG_LAST + 1)]
    faults = _lacks(long, *lines[:3], lines[-1])
    if len(long) > TO_MODEL_MAX + 1_000:
        faults.append(f"{len(long):,} characters arrived")
    missing = [line for line in lines if line not in long]
    if not missing:
        faults.append("nothing was left out")
    elif missing[0] not in rest:
        faults.append(f"reading on did not go on at {missing[0]!r}: {rest[:120]!r}")
    return faults


def own_read(work: Work) -> Faults:
    """Judge the resource that the client's own shell reads."""
    return _lacks(work.results.get("own-read", ""), work.unit) + _ran(work, "read", [])


def own_run(work: Work) -> Faults:
    """Judge the script that the client's own shell runs."""
    faults = _lacks(work.results.get("own-run", ""), work.tally)
    if work.files.get("runs.log") != "ran\n":
        faults.append(f"it did not run once: {work.files.get('runs.log')!r}")
    return faults + _ran(work, "exec", [])


def own_write(work: Work) -> Faults:
    """Judge the file that the client's own shell writes."""
    found = work.files.get("own.md")
    faults = [] if found == "written\n" else [f"the file holds {found!r}"]
    return faults + _ran(work, "write", [])


WITH_ALL: Mapping[str, tuple[str, Callable[[Work], Faults]]] = {
    "loads": ("loads a skill", loads),
    "reads": ("reads a resource", reads),
    "corrects": ("relative path: refused with the right one", corrects),
    "runs": ("script: asked, answered elsewhere, run", runs),
    "writes": ("file: written by a rule", writes),
    "asks": ("file: asked, answered elsewhere, written", asks),
    "denied": ("command denied, rule named", denied),
    "denied_read": ("resource denied, rule named", denied_read),
    "continues": ("long result, read on", continues),
}
WITH_SKILLS: Mapping[str, tuple[str, Callable[[Work], Faults]]] = {
    "offers": ("only these tools", offers),
    "loads": ("skill: asked, answered elsewhere, loaded", loads),
    "hidden": ("denied skill: not shown, not loaded", hidden),
    "own_read": ("its own shell reads a resource", own_read),
    "own_run": ("its own shell runs the script", own_run),
    "own_write": ("its own shell writes", own_write),
}
"""The columns of a table: title and judge."""


def judged(
    work: Work, columns: Mapping[str, tuple[str, Callable[[Work], Faults]]]
) -> dict[str, tuple[str, ...]]:
    """Return what is wrong, for each column."""
    channels = {one["record"]["channel"] for one in work.records if one["record"]["tool"] in _OURS}
    common = [] if work.is_log_whole else ["the audit log is not whole"]
    if channels - {"mcp"}:
        common.append(f"calls came by another way than MCP: {sorted(channels)}")
    return {name: (*common, *judge(work)) for name, (_, judge) in columns.items()}


_OURS = frozenset({"skill", "read", "exec", "write"})


def _asked(work: Work, number: int, step: str, tool: str) -> Faults:
    """Judge a question: pending by its id, then run by the answer of another process."""
    if len(work.questions) <= number:
        return ["no question was answered"]
    approval = work.questions[number]
    faults = _lacks(work.results.get(step, ""), PENDING, approval)
    details = [
        (one["record"]["detail"].get("approval"), one["record"]["detail"].get("answered_on"))
        for one in work.records
        if one["record"]["tool"] == tool and one["status"] == "ok"
    ]
    if (approval, "cli") not in details:
        faults.append(f"it did not run by the other process's answer: {details}")
    return faults


def _lacks(text: str, *parts: str) -> Faults:
    return [f"{part!r} is not in {text[:300]!r}" for part in parts if part not in text]


def _ran(work: Work, tool: str, expected: list[str]) -> Faults:
    found = work.status(tool)
    return [] if found == expected else [f"expected `{tool}` {expected}, got {found}"]

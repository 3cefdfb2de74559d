"""What a collector asks for: counts of this service and of calls, in the format of Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from skillhouse.audit import AuditEntry, AuditError, Query, entries_of, timestamp

if TYPE_CHECKING:
    from skillhouse.answers.doctor import InstanceAnswer
    from skillhouse.audit import AuditLog

BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0)
"""Upper ends in seconds of the spans by which the times of calls are counted."""
UNFINISHED_SECONDS = 3_600
"""A call without an outcome is counted as unknown after this time."""
_UPKEEP = ("repair", "rotation", "event")
"""Kinds of records that are no calls."""


class CallCounts:
    """Counts the calls of the log since a moment, of every process that shares it.

    Each look reads what is new. A call that has no outcome yet is counted once it has one.
    """

    def __init__(self, log: AuditLog, started: float) -> None:
        """`started` is in seconds since 1970."""
        self._log = log
        self._since = timestamp(int(started * 1000))
        self._lock = threading.Lock()
        self._mark = ""
        """Id of a record up to which all are counted; ids rise with time."""
        self._counted: set[str] = set()
        self.by_status: Counter[str] = Counter()
        self.denials: Counter[str] = Counter()
        self.questions: Counter[str] = Counter()
        self.spans: Counter[float] = Counter()
        self.timed = 0
        self.seconds = 0.0

    def look(self, now: float) -> None:
        """Count what has come since the look before; `now` is in seconds since 1970."""
        early = timestamp(int((now - UNFINISHED_SECONDS) * 1000))
        with self._lock:
            unfinished = ""
            found = entries_of(self._log.path, Query(since=self._since), key=self._log.key)
            try:
                for entry in found:
                    one = entry.record
                    if one.id <= self._mark:
                        break
                    if one.kind in _UPKEEP or one.id in self._counted:
                        continue
                    has_none = one.kind == "intent" and entry.outcome is None
                    if has_none and entry.status == "unknown" and one.ts > early:
                        unfinished = one.id
                        continue
                    self._counted.add(one.id)
                    self._count(entry)
            except AuditError:
                # What is wrong with the log is in the status; the rest is counted at the next look.
                return
            before = (one for one in self._counted if not unfinished or one < unfinished)
            self._mark = max(before, default=self._mark)
            self._counted = {one for one in self._counted if one > self._mark}

    def _count(self, entry: AuditEntry) -> None:
        record, after = entry.record, entry.outcome or entry.record
        asked = after.confirmation or record.confirmation
        self.by_status[entry.status] += 1
        if asked is not None and asked.requested_at:
            answers = {True: "approved", False: "denied", None: "none"}
            self.questions[answers[asked.approved]] += 1
        if entry.status == "denied":
            self.denials["rule" if asked is None or asked.approved is None else "person"] += 1
        if entry.outcome is not None:
            seconds = entry.outcome.duration_ms / 1000
            self.timed += 1
            self.seconds += seconds
            self.spans.update(end for end in BUCKETS if seconds <= end)


def metrics_text(
    own: InstanceAnswer,
    calls: CallCounts,
    gauges: Mapping[str, tuple[str, float]],
    answered: Mapping[int, int],
) -> str:
    """Return the counts (text format 0.0.4); no name of a skill, tool or client is among them.

    A gauge is what it is, in words, and its value; `answered` counts answers by status.
    """
    labels = {"id": own.id, "host": own.host, "name": own.name, "version": own.version}
    lines = (
        *metric_lines("instance_info", "gauge", "Which service this is.", [(labels, 1)]),
        *(
            line
            for name, (what, value) in gauges.items()
            for line in metric_lines(name, "gauge", what, [({}, value)])
        ),
        *counted_lines("api_answers_total", "Answers of the API.", "status", answered),
        *counted_lines(
            "calls_total", "Calls since the start, by result.", "status", calls.by_status
        ),
        *counted_lines("denials_total", "Calls that were denied, by whom.", "by", calls.denials),
        *counted_lines("questions_total", "Questions, by answer.", "answer", calls.questions),
        *metric_lines(
            "call_duration_seconds",
            "histogram",
            "How long calls took.",
            [
                *((("_bucket", {"le": f"{end:g}"}), calls.spans[end]) for end in BUCKETS),
                (("_bucket", {"le": "+Inf"}), calls.timed),
                (("_sum", {}), round(calls.seconds, 3)),
                (("_count", {}), calls.timed),
            ],
        ),
    )
    return "\n".join(lines) + "\n"


_Labels = Mapping[str, object]


def counted_lines(
    name: str, what: str, label: str, counts: Mapping[str, int] | Mapping[int, int]
) -> Iterator[str]:
    found = sorted((str(value), count) for value, count in counts.items())
    return metric_lines(name, "counter", what, [({label: value}, count) for value, count in found])


def metric_lines(
    name: str,
    kind: str,
    what: str,
    samples: Iterable[tuple[_Labels | tuple[str, _Labels], float]],
) -> Iterator[str]:
    """Yield the lines of one metric; a sample may have an ending of the name beside its labels."""
    yield f"# HELP skillhouse_{name} {what}"
    yield f"# TYPE skillhouse_{name} {kind}"
    for about, value in samples:
        ending, labels = about if isinstance(about, tuple) else ("", about)
        inside = ",".join(f'{key}="{_escaped(str(one))}"' for key, one in labels.items())
        yield f"skillhouse_{name}{ending}{f'{{{inside}}}' if inside else ''} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

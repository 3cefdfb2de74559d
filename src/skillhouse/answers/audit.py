"""Calls as the audit log has them, with what it keeps of a skill's code, and how it was checked."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import field

from skillhouse import audit
from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.audit import AuditRecord, LogProblem, Trouble
from skillhouse.floor import structs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skillhouse.audit import AuditEntry, AuditLog, Stats, Verification
    from skillhouse.audit.peer_pages import SeenEntry
    from skillhouse.audit.series import Series
    from skillhouse.audit.server_logs import ServerLogs
    from skillhouse.house import AllLogsPage, SeenServer


class AuditEntryAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A call as the log has it, and what it was about."""

    record: AuditRecord
    outcome: AuditRecord | None
    status: str
    about: str


class ListedRecord(AuditRecord, frozen=True, kw_only=True):
    """A record without the fields of what signs where nothing is signed (decision 0387)."""


class ListedEntryAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A call as a list has it."""

    record: ListedRecord
    outcome: ListedRecord | None
    status: str
    about: str


class VerificationAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Whether a byte of the log was changed; the members are those of `Verification`."""

    records: Count
    problems: tuple[LogProblem, ...]
    notes: tuple[LogProblem, ...]
    unknown: tuple[AuditRecord, ...]
    head: str
    removed: Count
    summaries: Count
    archives: Count
    checkpoints: Count
    ok: bool


class ServerLogAnswer(VerificationAnswer, frozen=True, kw_only=True):
    """One log of several, and what the state knows of it."""

    file: str
    """Below the folder that was asked for."""
    servers: tuple[str, ...]
    heads: Count


class AbsentLogAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A log that the state knows and the folder has not."""

    server: str
    records: Count


class AllLogsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The logs of several servers."""

    logs: tuple[ServerLogAnswer, ...]
    absent: tuple[AbsentLogAnswer, ...]
    is_compared: bool
    """Whether a state had heads to compare them with."""
    ok: bool


class SeenEntryAnswer(ListedEntryAnswer, frozen=True, kw_only=True):
    """A call in the log of one of several servers."""

    server: str
    """Name of the server that answered for it."""
    log: str
    """Name of the key of that server's log."""
    standing: Literal["verified", "new", "unchecked", "changed", "doubtful"]


class SeenServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    """One server, and what became of asking it for its log."""

    name: str
    log: str
    version: str
    state: Literal["answered", "empty", "silent", "lost", "refused"]
    said: str
    """Why it did not answer, or what is wrong with its log."""
    check: Literal["whole", "changed", "unchecked"] | None
    """What it found of its own log; null where it did not answer."""
    records: Count
    head: Count
    """The newest record that a head in the state covers."""
    is_this: bool


class SeenLogsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The newest calls of all servers of a state, and which of them answered."""

    records: tuple[SeenEntryAnswer, ...]
    servers: tuple[SeenServerAnswer, ...]
    next: str | None
    """Given as `before`, it continues the list."""
    is_cut: bool
    """Whether a server has older records that it did not look at."""
    is_whole: bool
    """Whether every server that is known answered, and no log is changed or doubtful."""
    listed: Literal["records"] = field(default="records", name="list")


class StatsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How many calls there were, by what they were, and what is wrong with the log."""

    total: Count
    first: str
    last: str
    by_status: dict[str, int]
    by_tool: dict[str, int]
    by_user: dict[str, int]
    by_agent: dict[str, int]
    by_client: dict[str, int]
    by_tier: dict[str, int]
    by_day: dict[str, int]
    denied_by_tool: dict[str, int]
    outages: Count
    refused: Count
    dropped: Count
    troubles: tuple[Trouble, ...]


class BucketAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The calls of one span of time."""

    start: str
    calls: Count
    by_status: dict[str, int]
    by_verdict: dict[str, int]
    p50_ms: Count | None
    p95_ms: Count | None
    max_ms: Count


class SeriesAnswer(JsonAnswer, frozen=True, kw_only=True):
    since: str
    until: str
    width_seconds: Count
    total: Count
    is_cut: bool
    buckets: tuple[BucketAnswer, ...]
    listed: Literal["buckets"] = field(default="buckets", name="list")


def stats_answer(found: Stats, troubles: Sequence[Trouble]) -> StatsAnswer:
    return copied(StatsAnswer, found, troubles=tuple(troubles))


def series_answer(found: Series) -> SeriesAnswer:
    return copied(
        SeriesAnswer, found, buckets=tuple(copied(BucketAnswer, one) for one in found.buckets)
    )


def entry_answer(entry: AuditEntry) -> AuditEntryAnswer:
    return AuditEntryAnswer(
        record=entry.record, outcome=entry.outcome, status=entry.status, about=subject_of(entry)
    )


def listed_entry(entry: AuditEntry) -> ListedEntryAnswer:
    """Return the same for a list: without the fields of what signs where nothing is signed."""
    outcome = None if entry.outcome is None else _listed(entry.outcome)
    return ListedEntryAnswer(
        record=_listed(entry.record), outcome=outcome, status=entry.status, about=subject_of(entry)
    )


def seen_entry(seen: SeenEntry) -> SeenEntryAnswer:
    listed = listed_entry(seen.entry)
    return copied(SeenEntryAnswer, listed, server=seen.server, log=seen.log, standing=seen.standing)


def seen_logs(found: AllLogsPage) -> SeenLogsAnswer:
    return SeenLogsAnswer(
        records=tuple(map(seen_entry, found.entries)),
        servers=tuple(map(_seen_server, found.servers)),
        next=found.following or None,
        is_cut=found.is_cut,
        is_whole=found.is_whole,
    )


def _seen_server(one: SeenServer) -> SeenServerAnswer:
    check = one.check
    return copied(
        SeenServerAnswer,
        one,
        check=None if check is None else check.state,
        records=0 if check is None else check.records,
        head=0 if check is None else check.head_seq,
    )


def _listed(found: AuditRecord) -> ListedRecord:
    return ListedRecord(**{name: getattr(found, name) for name in structs.field_names(found)})


def verification_answer(found: Verification) -> VerificationAnswer:
    return copied(VerificationAnswer, found, ok=not found.problems)


def all_logs_answer(found: ServerLogs, folder: Path) -> AllLogsAnswer:
    logs = [
        copied(ServerLogAnswer, one, file=str(path.relative_to(folder)), ok=not one.problems)
        for path, one in found.logs
    ]
    absent = [AbsentLogAnswer(server=head.server, records=head.seq) for head in found.absent]
    return AllLogsAnswer(
        logs=tuple(logs),
        absent=tuple(absent),
        is_compared=not found.is_alone,
        ok=not absent and all(one.ok for one in logs),
    )


class AcceptedServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A server whose new log this machine has accepted."""

    server: str
    log: str
    """Name of the log that has the server's name from now on."""
    given_up: list[str]
    """Names of the logs that had it before."""


_LOOKED_AT = 500
"""Records, from the newest, among which a call that has just ended is looked for."""
PARTS = ("frames", "log", "output")
"""The lists of a record's detail."""


def recorded_call(log: AuditLog, request: str) -> AuditEntry | None:
    """Return the newest entry of the call with that request id; None where none can be read."""
    try:
        entries = audit.entries_of(log.path, audit.Query(), key=log.key)
        newest = itertools.islice(entries, _LOOKED_AT)
        return next((entry for entry in newest if entry.record.request == request), None)
    except audit.AuditError:
        # The call has its result, and `audit verify` says what is wrong with the log.
        return None


def subject_of(entry: AuditEntry) -> str:
    """Return what a record was about, in its words and in one line; not made safe to show."""
    record = entry.record
    asked = ", ".join(f"{one.action} {one.resource}".rstrip() for one in record.permissions)
    said = asked or ", ".join((*_subjects(record), *filter(None, [record.reason])))
    kind, _, name = record.tool.partition(":")
    if name and kind in ("manage", "system"):
        said = f"{name}: {said}" if said else name
    fault = entry.outcome.error if entry.outcome is not None else record.error
    said = said or record.tool
    return " ".join((said if fault in said else f"{said}; {fault}").split())


def command_of(record: AuditRecord) -> str:
    """Return the command of a call as one types it; empty for a call of anything else.

    >>> command_of(AuditRecord(kind="refusal", tool="exec", arguments={"command": "rm -r a"}))
    'rm -r a'
    """
    command, words = record.arguments.get("command"), record.arguments.get("params", [])
    if not isinstance(command, str) or not isinstance(words, list):
        return ""
    return shlex.join([command, *map(str, words)]) if words else command


def _subjects(record: AuditRecord) -> Iterator[str]:
    """Yield the values of arguments, those that say what it is about first."""
    rest = dict(record.arguments)
    if command := command_of(record):
        yield command
        rest = {name: rest[name] for name in rest if name not in ("command", "params")}
    if all(isinstance(rest.get(name), str) for name in _RULE):
        yield " ".join(str(rest.pop(name)) for name in _RULE)
    for name, word in _PLAIN.items():
        value = rest.pop(name, "")
        if isinstance(value, str) and value:
            yield f"{word} {value}".strip()
    path = rest.pop("path", "")
    for name, other in rest.items():
        if isinstance(other, list):
            # Each is in the record; there may be room for the first.
            first = other[0] if other else ""
            first = first.get("path", "") if isinstance(first, dict) else first
            noun = name.removesuffix("s") if len(other) == 1 else name
            yield f"{len(other)} {noun}: {first}" if first else f"{len(other)} {noun}"
        elif other not in ("", None) and not isinstance(other, dict) and name != "count":
            yield f"{name} {other}"
    if path:
        yield f"at {path}"


_RULE = ("effect", "action", "pattern")
_PLAIN = {
    "name": "",
    "id": "",
    "policy": "",
    "label": "",
    "source": "",
    "resolved": "from",
    "tree_digest": "",
}
"""Arguments whose values say enough by themselves, or after a word, in this order."""


def detail_of(entry: AuditEntry | None) -> Mapping[str, object]:
    if entry is None:
        return {}
    return entry.record.detail if entry.outcome is None else entry.outcome.detail


def code_lists(detail: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the frames, the log and the output of a call, each if there is any.

    >>> code_lists({"log": [], "output": ["hello"], "kind": "ok"})
    {'output': ['hello']}
    """
    found = {name: _texts(detail.get(name)) for name in PARTS}
    return {name: lines for name, lines in found.items() if lines}


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        # Records of earlier versions have the log as one text.
        return value.splitlines()
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []

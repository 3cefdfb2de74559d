"""Tests of archives: the chain goes on across files, crashes in between, and old records go."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.audit import (
    AuditDraft,
    AuditError,
    AuditLog,
    Retention,
    TransactionEntry,
    entries,
    find_record,
    read_records,
    retention,
    verify_log,
)
from skillhouse.audit.archives import (
    Archive,
    archive_directory,
    archive_lines,
    archives_of,
    pack_archive,
)
from skillhouse.audit.log_files import open_file, open_lines
from skillhouse.audit.retention import tidy
from skillhouse.floor import structs
from tests.audit.logs import START, finished, in_process, intent, keys_of, outcome, refusal
from tests.harness import Clock

pytestmark = pytest.mark.slow

DAY = 86_400


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


def log_of(path: Path, clock: Clock, **options: object) -> AuditLog:
    return AuditLog(path, clock=clock, **options)  # type: ignore[arg-type]


def call(log: AuditLog, tool: str = "exec", **fields: Any) -> str:
    """Record a call with its outcome; return the intent's id."""
    draft = structs.replace(intent(tool), **fields)
    begun = log.append(draft, durable=False)
    done = structs.replace(outcome(begun.id, tool=tool), **fields)
    log.append(done, durable=False)
    return begun.id


def names(path: Path) -> list[str]:
    return [archive.path.name for archive in archives_of(path)]


def whole(path: Path, records: int) -> None:
    found = verify_log(path)
    assert (found.problems, found.records) == ((), records)


@pytest.mark.req("S000-125")
def test_a_file_is_closed_at_its_size_and_the_next_goes_on(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    with log_of(path, clock, max_bytes=4_000) as log:
        ids = [call(log) for _ in range(10)]
    assert names(path)[:2] == [
        "audit-2026-01-01-000001.jsonl.gz",
        "audit-2026-01-01-000002.jsonl.gz",
    ]
    count = len(names(path))
    whole(path, 20 + 2 * count)
    assert verify_log(path).archives == count
    # Each file but the first begins with a record of where the one before ended.
    before, lines = (
        [json.loads(line) for line in open_lines(one.path)] for one in archives_of(path)[:2]
    )
    assert (before[-1]["kind"], before[-1]["detail"]["event"]) == ("rotation", "closed")
    assert lines[0]["detail"] == {
        "after": "audit-2026-01-01-000001.jsonl",
        "event": "opened",
        "last_hash": before[-1]["hash"],
        "last_seq": before[-1]["seq"],
    }
    calls = [entry.record.id for entry in read_records(path, tool="exec", newest_first=False)]
    assert calls == ids
    entry = find_record(path, ids[0])
    assert entry is not None
    assert entry.status == "ok"


def test_a_file_that_is_closed_while_others_are_packed_is_packed_too(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    looked, go_on = threading.Event(), threading.Event()

    def slow(log: Path) -> tuple[Archive, ...]:
        found = archives_of(log)
        looked.set()
        assert go_on.wait(20)
        return found

    monkeypatch.setattr(retention, "archives_of", slow)
    with log_of(path, clock, max_bytes=4_000) as log:
        while not archives_of(path):
            call(log)
        assert looked.wait(20)
        while len(archives_of(path)) < 2:
            call(log)
        go_on.set()
    assert [name.endswith(".gz") for name in names(path)] == [True, True]


@pytest.mark.req("S000-125", "S000-128")
def test_a_day_has_files_of_its_own(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    log = log_of(path, clock)
    first = call(log)
    clock.now += DAY
    call(log, "read")
    log.close()
    # The next process sees from the file which day it is of.
    clock.now += DAY
    with log_of(path, clock) as log:
        call(log, "write")
    assert names(path) == [
        "audit-2026-01-01-000001.jsonl.gz",
        "audit-2026-01-02-000002.jsonl.gz",
    ]
    whole(path, 10)
    assert [entry.record.id for entry in read_records(path, tool="exec")] == [first]
    calls = ["write", "read"]
    assert [e.record.tool for e in read_records(path, since="2026-01-02") if e.outcome] == calls
    assert [e.record.tool for e in read_records(path, until="2026-01-01") if e.outcome] == ["exec"]


STOPS = "closed renamed opened-empty opened-torn packing packed-twice".split()


@pytest.mark.parametrize("stop", STOPS)
def test_a_crash_in_a_rotation_leaves_a_log_that_goes_on(
    tmp_path: Path, clock: Clock, stop: str
) -> None:
    path = tmp_path / "audit.jsonl"
    log = log_of(path, clock)
    call(log)
    told = log._pending(refusal())  # noqa: SLF001 - what is stopped has no public name.
    chain = log._chain  # noqa: SLF001
    clock.now += DAY
    with pytest.MonkeyPatch.context() as patched:
        if stop == "closed":
            patched.setattr(os, "rename", crash)
        else:
            patched.setattr(type(chain), "open_next", crash)
        if stop in ("closed", "renamed", "opened-empty", "opened-torn"):
            with pytest.raises(KeyboardInterrupt):
                log.append(refusal(), durable=True)
    assert told.milliseconds
    if stop == "renamed":
        path.unlink(missing_ok=True)
    elif stop == "opened-torn":
        path.write_bytes(b'{"id":"01')
    elif stop in ("packing", "packed-twice"):
        log.append(refusal(), durable=True)
        log.close()
        (archive,) = archives_of(path)
        plain = archive.path.with_suffix("")
        data = b"".join(open_lines(archive.path))
        plain.write_bytes(data)
        if stop == "packing":
            archive.path.unlink()
            (plain.parent / f"{plain.name}.gz.new").write_bytes(b"half")
    with log_of(path, clock) as again:
        again.append(refusal(), durable=True)
    found = verify_log(path)
    assert found.problems == ()
    assert found.records >= 5
    assert all(name.endswith(".gz") for name in names(path))


def crash(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


KILLED = """
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditLog
log = AuditLog(Path(sys.argv[1]), max_bytes=3_000)
print("ready", flush=True)
while True:
    log.append(AuditDraft(kind="refusal", tool="t", status="denied"), durable=False)
"""


def test_processes_killed_while_they_rotate_leave_a_log_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(6):
        process = in_process(KILLED, path)
        assert process.stdout is not None
        process.stdout.readline()
        before = len(names(path))
        while len(names(path)) < before + 4:
            pass
        process.kill()
        process.communicate()
        assert {problem.code for problem in verify_log(path).problems} <= {"torn"}
    AuditLog(path).append(refusal(), durable=True)
    assert verify_log(path).problems == ()


TOGETHER = """
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditLog
with AuditLog(Path(sys.argv[1]), max_bytes=5_000) as log:
    for number in range(150):
        log.append(AuditDraft(kind="refusal", tool=sys.argv[2], status="denied"),
                   durable=number % 20 == 0)
"""


def test_processes_that_rotate_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for process in [in_process(TOGETHER, path, name) for name in "abcd"]:
        finished(process)
    found = verify_log(path)
    assert found.problems == ()
    for name in "abcd":
        assert len(read_records(path, tool=name)) == 150


def test_a_file_that_cannot_be_moved_is_gone_on_with(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    log = log_of(path, clock)
    call(log)
    clock.now += DAY

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    call(log)
    assert log.warnings == ("the log cannot be archived (Permission denied)",)
    assert names(path) == []
    whole(path, 5)


def some_days(path: Path, clock: Clock, days: int = 3) -> None:
    """Write a log of so many days, all but the last archived, with a torn tail in between."""
    for day in range(days):
        log = log_of(path, clock)
        call(log)
        if day == 0:
            log.close()
            with path.open("ab") as file:
                file.write(b'{"torn')
            log = log_of(path, clock)
        log.append(refusal(), durable=True)
        log.close()
        clock.now += DAY


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archived")
    some_days(directory / "audit.jsonl", Clock(START))
    whole(directory / "audit.jsonl", 14)
    return directory


def test_uses_since_a_day_read_no_archive_of_the_days_before(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archived / "audit.jsonl"
    days = sorted({one.day for one in archives_of(path)})
    read: list[str] = []

    def seen(one: Archive, keys: Any) -> Any:
        read.append(one.day)
        return archive_lines(one, keys)

    monkeypatch.setattr(entries, "archive_lines", seen)
    entries.last_uses(path, since=f"{days[-1]}T00:00:00")
    assert set(read) == {days[-1]}
    entries.last_uses(path)
    assert set(read) == set(days)
    assert len(days) > 1


@given(data=st.data())
def test_any_one_byte_change_of_any_file_is_found(archived: Path, data: st.DataObject) -> None:
    """Of the log, its archives and its checkpoints; the side file has a test of its own."""
    places = sorted(
        place
        for place in archived.rglob("*")
        if place.is_file() and not place.name.endswith((".head", ".key", "lock"))
    )
    place = data.draw(st.sampled_from(places))
    before = place.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    change = data.draw(st.integers(1, 255))
    try:
        place.write_bytes(before[:at] + bytes([before[at] ^ change]) + before[at + 1 :])
        assert verify_log(archived / "audit.jsonl").problems != ()
    finally:
        place.write_bytes(before)


def test_one_changed_byte_anywhere_in_an_archive_is_found(archived: Path) -> None:
    archive = archives_of(archived / "audit.jsonl")[0].path
    before, missed = archive.read_bytes(), []
    try:
        for at in range(len(before)):
            archive.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
            if not verify_log(archived / "audit.jsonl").problems:
                missed.append(at)
    finally:
        archive.write_bytes(before)
    assert missed == []


@pytest.mark.parametrize("attack", ["remove", "swap", "repeat", "append", "replace"])
def test_what_is_done_to_whole_archives_is_found(
    tmp_path: Path, archived: Path, attack: str
) -> None:
    shutil.copytree(archived, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "audit.jsonl"
    one, two = (archive.path for archive in archives_of(path))
    if attack == "remove":
        one.unlink()
    elif attack == "swap":
        data = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(data)
    elif attack == "repeat":
        shutil.copy(two, two.with_name("audit-2026-01-02-000003.jsonl.gz"))
    elif attack == "append":
        two.write_bytes(two.read_bytes() + gzip.compress(b"{}\n"))
    else:
        # Packed anew: every record is there, but not the bytes that were packed.
        data = b"".join(open_lines(one))
        one.write_bytes(gzip.compress(data))
    assert verify_log(path).problems != ()


def test_an_archive_that_unpacks_without_end_is_refused_in_bounded_time(
    tmp_path: Path, archived: Path
) -> None:
    shutil.copytree(archived, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "audit.jsonl"
    one = archives_of(path)[0].path
    one.write_bytes(gzip.compress(bytes(64 << 20)))
    assert verify_log(path).problems != ()
    assert read_records(path) != ()


def test_the_archives_are_read_by_the_usual_tools(archived: Path) -> None:
    path = archives_of(archived / "audit.jsonl")[0].path
    assert gzip.decompress(path.read_bytes()) == b"".join(open_lines(path))


PERMANENT: dict[str, dict[str, Any]] = {
    "tier one": {"tier": "1"},
    "escalated to one": {"tier": "2", "effective_tier": "1"},
    "signing": {"security_level": "sign"},
    "transaction": {"transaction": TransactionEntry(tx_hash="0x" + "0f" * 32)},
}


def aged(path: Path, clock: Clock) -> dict[str, str]:
    """Write a log whose first day has a record of each class, and more days after it."""
    log = log_of(path, clock)
    ids = {name: call(log, **fields) for name, fields in PERMANENT.items()}
    ids["ordinary"] = call(log, arguments={"command": "git status", "cwd": "x"})
    for name, draft in {
        "denied sign": structs.replace(refusal("sign"), tier="2"),
        "denied": refusal(),
        "emergency": AuditDraft(kind="event", tool="system:emergency-stop"),
        "stopped": AuditDraft(kind="refusal", tool="t", status="emergency-stopped"),
        "policy": AuditDraft(kind="event", tool="system:policy-change"),
    }.items():
        ids[name] = log.append(draft, durable=True).id
    # An outcome in the file after that of its intent.
    over = log.append(intent("late"), durable=True)
    clock.now += DAY
    sent = TransactionEntry(tx_hash="0x1")
    log.append(structs.replace(outcome(over.id, tool="late"), transaction=sent), durable=True)
    ids["late"] = over.id
    clock.now += DAY
    call(log)
    log.close()
    return ids


def shorten(path: Path, clock: Clock, days: int) -> tuple[AuditDraft, ...]:
    """Tidy as if records had come on each of so many days."""
    clock.now += days * DAY
    log = log_of(path, clock, retention=Retention(summary_days=10_000, keep_days=10_000))
    call(log)
    clock.now += DAY
    call(log)
    log.close()
    return tidy(path, keys_of(path), Retention(), now=round(clock.now * 1_000))


@pytest.mark.req("S000-127")
def test_after_thirty_days_arguments_go_and_the_chain_holds(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    ids = aged(path, clock)
    before = verify_log(path)
    said = shorten(path, clock, 35)
    assert [draft.detail["event"] for draft in said] == ["summary", "summary", "summary"]
    found = verify_log(path)
    assert (found.problems, found.removed) == ((), 0)
    assert found.records > before.records
    assert found.summaries > 0
    entry = find_record(path, ids["ordinary"])
    assert entry is not None
    assert entry.record.arguments == {
        "_summary": True,
        "_hash": entry.record.argument_digest,
        "_keys": ["command", "cwd"],
    }
    assert entry.record.argument_bytes > 0
    assert (entry.record.is_summary, entry.record.tool, entry.status) == (True, "exec", "ok")
    kept = find_record(path, ids["tier one"])
    assert kept is not None
    assert kept.record.arguments == {"command": "git status"}


@pytest.mark.req("S000-126")
def test_after_ninety_days_only_what_is_permanent_stays(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    ids = aged(path, clock)
    for days in (35, 60):
        shorten(path, clock, days)
    found = verify_log(path)
    assert found.problems == ()
    assert found.removed >= 3
    there = {name for name, record_id in ids.items() if find_record(path, record_id)}
    assert there == set(ids) - {"ordinary", "denied"}
    for name in PERMANENT:
        entry = find_record(path, ids[name])
        assert entry is not None
        assert (entry.status, entry.record.is_summary) == ("ok", False)


def test_an_archive_is_shortened_on_the_day_after_its_time_and_not_before(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "audit.jsonl"
    began = clock.now
    aged(path, clock)

    def said_on(day: int) -> list[object]:
        now = round((began + day * DAY) * 1_000)
        return [draft.detail["event"] for draft in tidy(path, keys_of(path), Retention(), now=now)]

    assert (said_on(30), said_on(31)) == ([], ["summary"])
    # Records up to the 90th day, so that the clock counts as right.
    assert "kept" not in [draft.detail["event"] for draft in shorten(path, clock, 87)]
    assert said_on(91) == ["kept"]


@pytest.mark.parametrize("days", [35, 95])
def test_one_changed_byte_of_a_shortened_archive_is_found(
    tmp_path: Path, clock: Clock, days: int
) -> None:
    path = tmp_path / "audit.jsonl"
    some_days(path, clock)
    shorten(path, clock, days)
    archive = archives_of(path)[0].path
    assert archive.name.endswith((".summary.jsonl.gz", ".kept.jsonl.gz"))
    before, missed = archive.read_bytes(), []
    for at in range(0, len(before), 3):
        archive.write_bytes(before[:at] + bytes([before[at] ^ 4]) + before[at + 1 :])
        if not verify_log(path).problems:
            missed.append(at)
    assert missed == []


def test_who_has_no_key_can_take_nothing_out_as_retention_does(
    tmp_path: Path, archived: Path
) -> None:
    shutil.copytree(archived, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "audit.jsonl"
    whole_line = path.read_bytes().splitlines()[1]
    end = whole_line.index(b',"arguments"')
    swapped = whole_line[:end] + b',"is_summary":true,"arguments":{},"detail":{}}'
    path.write_bytes(path.read_bytes().replace(whole_line, swapped))
    assert [problem.code for problem in verify_log(path).problems][:1] == ["record-changed"]
    one = archives_of(path)[0].path
    one.rename(one.with_name("audit-2026-01-01-000001.kept.jsonl.gz"))
    assert "archive-changed" in {problem.code for problem in verify_log(path).problems}


def test_a_changed_archive_is_not_shortened_and_so_made_right(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    some_days(path, clock)
    archive = archives_of(path)[0]
    lines = [line.replace(b"denied by", b"allowed b") for line in open_lines(archive.path)]
    archive.path.unlink()
    archive.path.with_suffix("").write_bytes(b"".join(lines))
    pack_archive(archives_of(path)[0])
    with pytest.raises(AuditError) as caught:
        shorten(path, clock, 40)
    assert caught.value.code == "archive-changed"
    assert archive.path.exists()


def test_a_clock_that_was_set_far_ahead_does_not_cost_the_log(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    some_days(path, clock)
    before = names(path)
    later = round((clock.now + 400 * DAY) * 1_000)
    assert tidy(path, keys_of(path), Retention(), now=later) == ()
    assert names(path) == before


def test_tidying_says_in_the_log_what_it_did(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(4):
        with log_of(path, clock) as log:
            call(log)
        clock.now += 20 * DAY
    whole(path, verify_log(path).records)
    events = [
        entry.record.detail["event"]
        for entry in read_records(path, tool="audit")
        if entry.record.kind == "rotation"
    ]
    assert "summary" in events


def test_an_archive_of_directories_and_links_is_not_followed(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.jsonl"
    log = log_of(path, clock)
    call(log)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    archive_directory(path).symlink_to(elsewhere)
    clock.now += DAY
    with pytest.raises(AuditError) as caught:
        log.append(refusal(), durable=True)
    assert caught.value.code == "log-link"
    assert list(elsewhere.iterdir()) == []


def test_reading_and_verifying_while_others_rotate_miss_and_repeat_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    process = in_process(KILLED, path)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        for _ in range(30):
            before = verify_log(path)
            entries = read_records(path)
            after = verify_log(path)
            assert (before.problems, after.problems) == ((), ())
            places = [entry.record.seq for entry in entries]
            assert places == list(range(len(places), 0, -1))
            assert before.records <= len(places) <= after.records
    finally:
        process.kill()
        process.communicate()


def test_a_record_after_a_look_between_two_files_is_not_taken_for_a_lost_one(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    log = log_of(path, clock)
    log.append(refusal(), durable=True)
    opened: list[Path] = []

    def opens(file: Path, flags: int) -> int:
        opened.append(file)
        if opened.count(path) != 1 or file != path:
            return open_file(file, flags)
        # As a rotation: the file is away for a moment, and then a writer goes on.
        aside = path.rename(tmp_path / "aside")
        try:
            return open_file(file, flags)
        finally:
            aside.rename(path)
            log.append(refusal(), durable=True)

    monkeypatch.setattr("skillhouse.audit.archives.open_file", opens)
    found = verify_log(path)
    assert (found.problems, found.records, opened.count(path)) == ((), 2, 2)

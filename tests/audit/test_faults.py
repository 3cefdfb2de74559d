"""Tests of audit when disks, processes and other people misbehave: no effect without a record."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skillhouse.audit import AuditError, AuditLog, verify_log
from skillhouse.audit.log_end import LogHead, head_bytes, head_path, torn_facts
from skillhouse.audit.log_files import read_keys
from skillhouse.floor import lock as locking
from tests.audit.logs import finished, in_process, intent, log_at, outcome, refusal, small_log
from tests.harness import Need, ran
from tests.machines import OWN_MOUNTS

pytestmark = pytest.mark.slow


def refused(log: AuditLog) -> str:
    """Return the code with which an append is refused; the log must stay as it was."""
    before = log.path.read_bytes() if log.path.is_file() else None
    with pytest.raises(AuditError) as caught:
        log.append(refusal(), durable=True)
    assert log.degraded is not None
    after = log.path.read_bytes() if log.path.is_file() else None
    assert (before or b"") == (after or b"")
    return caught.value.code


FULL = """
import json, resource
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditError, AuditLog, verify_log
path = Path(sys.argv[1])
log = AuditLog(path)
first = log.append(AuditDraft(kind="intent", tool="t"), durable=True)
soft = path.stat().st_size + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
before = path.read_bytes()
for durable in (True, False):
    try:
        log.append(AuditDraft(kind="intent", tool="t"), durable=durable)
    except AuditError as error:
        assert error.code == "log-unwritable", error.code
    else:
        raise SystemExit("an append beyond the limit")
    assert path.read_bytes() == before
kept = log.append_or_keep(AuditDraft(kind="intent", tool="read"))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(AuditDraft(kind="outcome", tool="t", intent=first.id, status="ok"), durable=True)
found = verify_log(path)
print(json.dumps([found.records, len(found.problems), [r.id == kept.id for r in found.unknown]]))
"""


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, room: int) -> None:
    # RLIMIT_FSIZE takes a part of a write before it refuses, as a full disk does.
    printed = finished(in_process(FULL, tmp_path / "audit.jsonl", room))
    # The second effect that was refused is told by a record of its own.
    assert json.loads(printed) == [4, 0, [True]]


SMALL_DISK = """
import json
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditError, AuditLog, read_records, verify_log
path = Path(sys.argv[1]) / "audit.jsonl"
said = []
log = AuditLog(path, warn=said.append)
draft = AuditDraft(kind="refusal", tool="t", status="denied", reason="x" * 900)
last = log.append(AuditDraft(kind="intent", tool="write", tier="3"), durable=True)
written, code = 1, ""
while written < 1_000:
    try:
        log.append(draft, durable=True)
    except AuditError as error:
        code = error.code
        break
    written += 1
full = verify_log(path)
# The effect that was under way ends, and reads go on; other effects are refused.
kept = [log.append_or_keep(AuditDraft(kind="outcome", tool="write", intent=last.id, status="ok"))]
kept += [log.append_or_keep(AuditDraft(kind="intent", tool="read", reason="x" * 900))
         for _ in range(50)]
refused = 0
for tier in ("", "3", "1"):
    draft = AuditDraft(kind="intent", tool="exec", tier=tier)
    try:
        log.append_or_keep(draft) if tier else log.append(draft, durable=True)
    except AuditError:
        refused += 1
down = log.degraded
(path.parent / "filler").unlink()
log.append(draft, durable=True)
again = verify_log(path)
ids = {entry.record.id for entry in read_records(path)} | {
    entry.outcome.id for entry in read_records(path) if entry.outcome}
print(json.dumps({
    "code": code, "whole": full.records == written, "problems": len(full.problems),
    "refused": refused, "down": [down.code, down.buffered, down.refused],
    "after": [len(again.problems), again.records - written, log.degraded is None],
    "lost": [each.id for each in kept if each.id not in ids],
    "outcome_on_stderr": sum(kept[0].id in line for line in said),
}))
"""


@pytest.mark.req("S000-113", "S000-114", "S000-116", "S000-117")
def test_a_full_disk_refuses_effects_lets_reads_go_on_and_loses_nothing(
    tmp_path: Path, need: Need
) -> None:
    mount = (
        f"mount -t tmpfs -o size=512k none {tmp_path} && head -c 192k /dev/zero > {tmp_path}/filler"
    )
    command = [*OWN_MOUNTS, "sh", "-c"]
    tried = shutil.which("unshare") and subprocess.run(
        [*command, mount], capture_output=True, check=False
    )
    need(tried and tried.returncode == 0, "unshare with a tmpfs of its own")
    script = f"{mount} && exec {sys.executable} - {tmp_path}"
    source = f"import sys\nsys.path[:0] = {sys.path!r}\n" + SMALL_DISK
    done = ran([*command, script], input=source)
    assert (done.stderr, done.returncode) == ("", 0)
    # 51 that waited, a record of the four effects that were refused, and the one after.
    found = json.loads(done.stdout)
    # The last outcome is of no fixed length: it may still have found room.
    fitted = 1 - found["outcome_on_stderr"]
    assert fitted in (0, 1)
    assert found == {
        "code": "log-unwritable",
        "whole": True,
        "problems": 0,
        "refused": 3,
        "down": ["log-unwritable", 51 - fitted, 4 - fitted],
        "after": [0, 53 + fitted, True],
        "lost": [],
        "outcome_on_stderr": 1 - fitted,
    }


def test_a_record_that_does_not_reach_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = small_log(tmp_path / "audit.jsonl")

    def broken(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        assert refused(log) == "log-unwritable"
    assert log.append(refusal(), durable=True).seq == 6
    assert verify_log(log.path).problems == ()
    down = json.loads(log.path.read_bytes().splitlines()[-2])
    assert (down["kind"], down["detail"]["refused_effects"]) == ("repair", 1)


READ_ONLY = """
import os
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditError, AuditLog
os.chdir(sys.argv[1])
if os.getuid() == 0:
    # Permissions do not bind root; nobody reaches the directory as the one it stands in.
    os.setgid(65534)
    os.setuid(65534)
try:
    AuditLog(Path("audit.jsonl")).append(AuditDraft(kind="intent", tool="t"), durable=True)
except AuditError as error:
    print(error.code)
"""


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.jsonl.head"])
def test_a_file_that_may_not_be_written_refuses(tmp_path: Path, name: str) -> None:
    path = tmp_path / "audit.jsonl"
    small_log(path).close()
    tmp_path.chmod(0o755)
    for place in (path, head_path(path)):
        place.chmod(0o444 if place.name == name else 0o600)
        if os.geteuid() == 0:
            os.chown(place, 65534, -1)
    before = path.read_bytes()
    assert finished(in_process(READ_ONLY, tmp_path)) == "log-unwritable\n"
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.jsonl.head"])
def test_a_link_at_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("")
    (tmp_path / name).symlink_to(target)
    assert refused(log_at(tmp_path / "audit.jsonl")) == "log-link"
    assert target.read_text() == ""
    if name == "audit.jsonl":
        with pytest.raises(AuditError, match="symbolic link"):
            verify_log(tmp_path / name)


def test_a_pipe_or_device_at_the_place_of_the_log_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "audit.jsonl")
    assert refused(log_at(tmp_path / "audit.jsonl")) == "log-not-a-file"
    with pytest.raises(AuditError, match="expected a regular file"):
        verify_log(tmp_path / "audit.jsonl")


@pytest.mark.parametrize("torn", [b"{", b'{"agent":"x', b"\0" * 4096, b"\xff\xfe", b"x" * 60_000])
def test_a_torn_last_line_is_repaired_by_a_record_of_it(tmp_path: Path, torn: bytes) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    with log.path.open("ab") as file:
        file.write(torn)
    assert [problem.code for problem in verify_log(log.path).problems] == ["torn"]
    record = log.append(refusal(), durable=True)
    found = verify_log(log.path)
    assert (record.seq, found.records, found.problems) == (6, 6, ())
    assert [(note.code, note.line) for note in found.notes] == [("repair", 6)]
    repair = json.loads(log.path.read_bytes().splitlines()[-2])
    assert (repair["kind"], repair["detail"]) == ("repair", torn_facts(torn) | {"lost_records": 0})
    # The torn bytes are covered by the record of them.
    data = log.path.read_bytes()
    place = data.index(b"\n" + torn) + 1
    for at in (place, place + len(torn)):
        log.path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert verify_log(log.path).problems != ()


def test_a_repair_that_was_torn_itself_is_repaired(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    with log.path.open("ab") as file:
        file.write(b'{"agent":"x\n{"agent":"","argument_digest":"e3b0')
    log.append(refusal(), durable=True)
    found = verify_log(log.path)
    assert (found.records, found.problems, len(found.notes)) == (6, (), 1)


@pytest.mark.parametrize("behind", [True, False])
def test_a_torn_record_at_any_byte_is_repaired(tmp_path: Path, *, behind: bool) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    size, before = log.path.stat().st_size, head_path(log.path).read_bytes()
    log.append(refusal(), durable=False)
    data, after = log.path.read_bytes(), head_path(log.path).read_bytes()
    for end in range(size + 1, len(data)):
        log.path.write_bytes(data[:end])
        head_path(log.path).write_bytes(before if behind else after)
        log.append(refusal(), durable=False)
        found = verify_log(log.path)
        # A record that lacked but its newline is one.
        whole = end == len(data) - 1
        assert (found.records, found.problems) == (7 if whole else 6, ()), end
        assert [note.code for note in found.notes] == ["repair"]


def test_a_durable_record_that_was_cut_is_no_torn_one(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    os.truncate(log.path, log.path.stat().st_size - 10)
    assert refused(log) == "log-truncated"


def test_reads_that_a_power_cut_took_are_counted(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    size = log.path.stat().st_size
    for _ in range(3):
        log.append_or_keep(intent("read"))
    os.truncate(log.path, size + 100)
    log.append(refusal(), durable=True)
    repair = json.loads(log.path.read_bytes().splitlines()[-2])
    assert repair["detail"]["lost_records"] == 3
    found = verify_log(log.path)
    assert (found.records, found.problems, len(found.notes)) == (6, (), 1)


def test_a_changed_end_refuses_further_records(tmp_path: Path) -> None:
    def at(name: str) -> AuditLog:
        return small_log(tmp_path / name / "audit.jsonl")

    cut = at("cut")
    cut.path.write_bytes(b"".join(cut.path.read_bytes().splitlines(keepends=True)[:-1]))
    assert refused(cut) == "log-truncated"
    emptied = at("emptied")
    emptied.path.write_bytes(b"")
    assert refused(emptied) == "log-truncated"
    removed = at("removed")
    removed.path.unlink()
    assert refused(removed) == "log-truncated"
    edited = at("edited")
    edited.path.write_bytes(edited.path.read_bytes()[:-9] + b"n" + edited.path.read_bytes()[-8:])
    assert refused(edited) == "log-changed"
    foreign = at("foreign")
    foreign.path.write_bytes(foreign.path.read_bytes() + b"hello\n")
    assert refused(foreign) == "log-foreign"
    flood = at("flood")
    with flood.path.open("ab") as file:
        file.truncate(flood.path.stat().st_size + (17 << 20))
    assert refused_without_reading(flood) == "log-foreign"
    headless = at("headless")
    head_path(headless.path).unlink()
    assert refused(headless) == "head-missing"
    scribbled = at("scribbled")
    head_path(scribbled.path).write_bytes(b"{}")
    assert refused(scribbled) == "head-unreadable"
    for log in (cut, emptied, removed, edited, foreign, flood, headless, scribbled):
        assert verify_log(log.path).problems != ()


def refused_without_reading(log: AuditLog) -> str:
    with pytest.raises(AuditError) as caught:
        log.append(refusal(), durable=True)
    return caught.value.code


def test_a_side_file_far_behind_its_log_is_read_up_to(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    before = head_path(log.path).read_bytes()
    long = refusal(reason="x" * 1_000)
    for _ in range(50):
        log.append(long, durable=False)
    head_path(log.path).write_bytes(before)
    assert log.append(refusal(), durable=False).seq == 55


def test_a_side_file_from_before_the_first_record_is_read_up_to(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    keys = read_keys(log.path, None)
    assert keys is not None
    head_path(log.path).write_bytes(head_bytes(LogHead(), keys))
    assert log.append(refusal(), durable=False).seq == 5
    assert verify_log(log.path).problems == ()


def test_a_last_line_longer_than_any_record_is_a_change(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    for _ in range(200):
        log.append(refusal(), durable=False)
    log.path.write_bytes(b"x" * (log.path.stat().st_size - 1) + b"\n")
    assert refused(log) == "log-changed"


def test_a_log_that_is_replaced_all_the_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    real = os.stat

    def gone(path: Path, **options: bool) -> os.stat_result:
        if path == log.path and options:
            raise FileNotFoundError(path)
        return real(path, **options)

    monkeypatch.setattr(os, "stat", gone)
    with pytest.raises(AuditError) as caught:
        log.append(refusal(), durable=True)
    assert caught.value.code == "log-replaced"


def test_a_part_of_a_line_is_taken_back(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    log = small_log(tmp_path / "audit.jsonl")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 100, limits[1]))
    try:
        assert refused(log) == "log-unwritable"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.append(refusal(), durable=True).seq == 6


def test_a_long_last_record_is_chained_to(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    log.append(intent(**{str(n): "x" * 200 for n in range(200)}), durable=False)
    assert log.path.stat().st_size > 40_000
    assert log.append(refusal(), durable=False).seq == 2
    assert log.append(refusal(), durable=False).seq == 3
    assert verify_log(log.path).problems == ()


KILLED = """
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditLog
log = AuditLog(Path(sys.argv[1]))
done = log.append(AuditDraft(kind="intent", tool="exec"), durable=True)
log.append(AuditDraft(kind="outcome", tool="exec", intent=done.id, status="ok"), durable=True)
left = log.append(AuditDraft(kind="intent", tool="exec"), durable=True)
print(left.id, flush=True)
sys.stdin.read()
import time; time.sleep(60)
"""


def test_a_killed_process_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    process = in_process(KILLED, tmp_path / "audit.jsonl")
    assert process.stdout is not None
    left = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    found = verify_log(tmp_path / "audit.jsonl")
    assert ([record.id for record in found.unknown], found.problems) == ([left], ())


FLOODING = """
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditLog

log = AuditLog(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    log.append(AuditDraft(kind="refusal", tool="t", status="denied"), durable=False)
"""


def test_processes_killed_while_they_append_leave_a_log_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(5):
        process = in_process(FLOODING, path)
        assert process.stdout is not None
        process.stdout.readline()
        while not path.exists() or path.stat().st_size < 1_000:
            pass
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # A kill may stop a write between two pages; the next append accounts for it.
        assert {problem.code for problem in verify_log(path).problems} <= {"torn"}
    AuditLog(path).append(refusal(), durable=True)
    assert verify_log(path).problems == ()


def test_a_lock_that_is_never_released_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    monkeypatch.setattr(locking, "LOCK_SECONDS", 0.01)
    handle = os.open(log.path, os.O_RDWR)
    try:
        locking.lock(handle)
        assert refused(log) == "log-locked"
        kept = log.append_or_keep(outcome("x"))
        assert kept.seq == 0
    finally:
        os.close(handle)
    assert log.append(refusal(), durable=True).seq == 7

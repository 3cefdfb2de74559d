"""Tests of audit/log.py: what is written, by whom, and in which order."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.audit import (
    AuditDraft,
    AuditError,
    AuditLog,
    AuditRecord,
    Confirmation,
    DecidedPermission,
    TransactionEntry,
    read_records,
    verify_log,
)
from skillhouse.audit.entries import COLUMNS
from skillhouse.audit.log_files import key_path
from skillhouse.audit.record import PUBLISHED, SEAL
from skillhouse.floor import canonical_json, structs
from skillhouse.floor.structs import replace
from tests.audit.logs import finished, in_process, intent, log_at, outcome, refusal, small_log


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def sequence(found: Iterable[dict[str, object]], key: str = "seq") -> list[object]:
    return [record[key] for record in found]


@pytest.mark.req("S000-118")
def test_a_record_is_one_line_of_json_sealed_with_a_key(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    arguments = {"command": "git status", "apiKey": "k"}
    record = log.append(replace(intent(), arguments=arguments), durable=True)
    assert record == AuditRecord(
        id=record.id,
        seq=1,
        ts="2026-01-01T00:00:00.000Z",
        version=2,
        kind="intent",
        tool="exec",
        agent="default",
        user="u1",
        channel="cli",
        arguments={"command": "git status", "apiKey": "[REDACTED]"},
        argument_digest=hashlib.sha256(canonical_json(arguments)).hexdigest(),
        argument_bytes=len(canonical_json(arguments)),
        permissions=(
            DecidedPermission(
                action="exec", resource="git status", effect="allow", layer="user", rule_index=0
            ),
        ),
        reason="",
        status="",
        intent="",
        duration_ms=0,
        detail={},
        prev="0" * 64,
        hash=record.hash,
        preview_digest=record.preview_digest,
        monotonic_ns=record.monotonic_ns,
        boot=record.boot,
    )
    # As docs/decisions/0110 says, so that anybody who has the key can check it.
    line = log.path.read_bytes()
    hashed, _, rest = line.partition(b',"hash":"')
    secret = bytes.fromhex(json.loads(key_path(log.path).read_bytes())["key"])
    key = hmac.digest(secret, b"skillhouse audit records", "sha256")
    assert record.hash == hmac.digest(key, hashed, "sha256").hex() == rest[:64].decode()
    preview = rest.removeprefix(record.hash.encode() + b'",').removesuffix(b"}\n")
    assert record.preview_digest == hashlib.sha256(preview).hexdigest()
    whole = json.loads(json.dumps(structs.asdict(record)))
    assert json.loads(line).items() <= whole.items()


@pytest.mark.req("S000-118")
def test_ids_sort_as_the_lines_do_even_when_the_clock_goes_back(tmp_path: Path) -> None:
    times = iter([100.0, 100.0, 7.0, 7.0, 200.0])
    log = AuditLog(tmp_path / "audit.jsonl", clock=lambda: next(times))
    ids = [log.append(refusal(), durable=False).id for _ in range(5)]
    assert ids == sorted(set(ids))
    assert {len(each) for each in ids} == {26}
    times_said = sequence(records(log.path), "ts")
    assert times_said[1:3] == ["1970-01-01T00:01:40.000Z", "1970-01-01T00:00:07.000Z"]


@pytest.mark.req("S000-118")
def test_what_was_written_stays_as_it_is(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    before = log.path.read_bytes()
    log.append(refusal(), durable=False)
    assert log.path.read_bytes().startswith(before)


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    log = small_log(tmp_path / "state" / "audit.jsonl")
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in [log.path.parent, *log.path.parent.iterdir()]
    }
    assert modes == {
        "state": 0o700,
        "audit.jsonl": 0o600,
        "audit.jsonl.head": 0o600,
        "audit.jsonl.key": 0o600,
    }


def test_a_log_is_continued_by_the_next_process(tmp_path: Path) -> None:
    small_log(tmp_path / "audit.jsonl").close()
    with log_at(tmp_path / "audit.jsonl") as log:
        assert log.append(refusal(), durable=True).seq == 5
    assert verify_log(log.path).problems == ()


APPENDING = """
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditLog
log = AuditLog(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    text = "x" * (number * 37 % 5_000)
    draft = AuditDraft(kind="refusal", tool="t", agent=sys.argv[2], status="denied",
                       arguments={"n": number, "list": [text[:150]] * (number % 100)})
    log.append(draft, durable=number % 10 == 0)
"""


@pytest.mark.slow
def test_four_processes_at_once_leave_a_log_that_verifies(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    started = [in_process(APPENDING, path, name, 200) for name in "abcd"]
    for process in started:
        finished(process)
    found = verify_log(path)
    assert (found.records, found.problems, found.notes) == (800, (), ())
    for name in "abcd":
        mine = [r["arguments"] for r in records(path) if r["agent"] == name]
        assert [each["n"] for each in mine if isinstance(each, dict)] == list(range(200))


def test_threads_that_share_a_log_leave_one_that_verifies(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")

    def work() -> None:
        for _ in range(50):
            log.append(refusal(), durable=False)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = verify_log(log.path)
    assert (found.records, found.problems) == (200, ())


FORKING = """
import os
from pathlib import Path
from skillhouse.audit import AuditDraft, AuditLog
log = AuditLog(Path(sys.argv[1]))
draft = AuditDraft(kind="refusal", tool="t", status="denied")
log.append(draft, durable=False)
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        for _ in range(100):
            log.append(draft, durable=False)
        os._exit(0)
    children.append(child)
for _ in range(100):
    log.append(draft, durable=False)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""


@pytest.mark.slow
def test_forked_children_lock_for_themselves(tmp_path: Path) -> None:
    finished(in_process(FORKING, tmp_path / "audit.jsonl"))
    found = verify_log(tmp_path / "audit.jsonl")
    assert (found.records, found.problems) == (401, ())


def test_another_process_does_not_write_what_waits_in_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    down(log.path)
    log.append_or_keep(refusal())
    log.path.rmdir()
    # What a forked child sees.
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert log.append(refusal(), durable=False).seq == 1


def test_a_log_that_was_moved_aside_with_its_side_file_begins_anew(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    for name in ("audit.jsonl", "audit.jsonl.head"):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
    assert log.append(refusal(), durable=True).seq == 1
    assert verify_log(log.path).problems == ()
    assert verify_log(log.path).records == 1


def test_newlines_and_json_in_arguments_stay_within_one_record(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    forged = (
        'x"}\n{"kind":"outcome","status":"ok","hash":"' + "0" * 64 + '","id":"1"}\r\n\u2028\x85'
    )
    draft = replace(
        intent(forged, command=forged),
        agent=forged,
        reason=forged,
        detail={"a": {"hash": "1" * 64, "id": forged}, forged: [forged]},
    )
    log.append(draft, durable=False)
    text = log.path.read_text()
    assert len(text.splitlines()) == 1
    assert verify_log(log.path).problems == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
TEXT = st.text(max_size=40)


@pytest.mark.slow
@given(arguments=st.dictionaries(TEXT, JSON), detail=st.dictionaries(TEXT, JSON), text=TEXT)
def test_whatever_a_call_holds_is_recorded_and_verifies(
    tmp_path_factory: pytest.TempPathFactory,
    arguments: dict[str, object],
    detail: dict[str, object],
    text: str,
) -> None:
    log = log_at(tmp_path_factory.mktemp("log") / "audit.jsonl")
    needed = DecidedPermission(action=text, resource=text, effect=text, layer=text)
    draft = AuditDraft(
        kind="intent",
        tool=text,
        agent=text,
        arguments=arguments,
        detail=detail,
        reason=text,
        permissions=(needed,),
    )
    written = [log.append(draft, durable=False) for _ in range(2)]
    assert verify_log(log.path).problems == ()
    assert [entry.record for entry in read_records(log.path, newest_first=False)] == written


@pytest.mark.slow
@pytest.mark.parametrize("filler", ["x", "\x01", "é", "\U0001f600", '"', "\x9b"])
def test_a_record_is_cut_to_fit_a_line(tmp_path: Path, filler: str) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    text = filler * 200
    many: dict[str, object] = {f"{number}": [text] * 200 for number in range(200)}
    keys: dict[str, object] = {f"{number}{filler * 60}": text for number in range(200)}
    needed = DecidedPermission(
        action=text, resource=filler * 1_000, effect="allow", layer=text, rule_index=0
    )
    draft = AuditDraft(
        kind="outcome",
        tool=text,
        agent=text,
        user=text,
        channel=text,
        intent=text,
        arguments=keys | many,
        detail=keys,
        permissions=(needed,) * 100,
        reason=filler * 1_000,
        status="ok",
    )
    record = log.append(draft, durable=False)
    assert len(log.path.read_bytes()) <= 64 * 1024
    assert "...[truncated]" in record.arguments
    assert log.append(refusal(), durable=False).seq == 2
    assert verify_log(log.path).problems == ()


@pytest.mark.parametrize(
    "draft",
    [
        AuditDraft(kind="wish", tool="t"),
        AuditDraft(kind="outcome", tool="t", status="fine"),
        AuditDraft(kind="intent", tool="t", arguments={"a": object()}),
        AuditDraft(kind="intent", tool="t", arguments={"a": b"bytes"}),
        AuditDraft(kind="intent", tool="t", duration_ms=1.5),  # type: ignore[arg-type]
        AuditDraft(kind="intent", tool="t", result_chars="9"),  # type: ignore[arg-type]
        AuditDraft(kind="intent", tool="t", waited_ms=0.5),  # type: ignore[arg-type]
        AuditDraft(kind="intent", tool=7),  # type: ignore[arg-type]
    ],
)
def test_a_draft_that_is_no_record_is_refused_and_leaves_nothing(
    tmp_path: Path, draft: AuditDraft
) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    for attempt in (lambda: log.append(draft, durable=True), lambda: log.append_or_keep(draft)):
        with pytest.raises(AuditError) as caught:
            attempt()
        assert caught.value.code == "record-invalid"
    assert (log.degraded, log.buffered) == (None, 0)
    assert not log.path.exists() or log.path.read_bytes() == b""


def test_arguments_that_hold_themselves_are_refused(tmp_path: Path) -> None:
    arguments: dict[str, object] = {}
    arguments["a"] = arguments
    with pytest.raises(AuditError, match="cannot be recorded"):
        log_at(tmp_path / "audit.jsonl").append(intent(a=arguments), durable=True)


def down(path: Path) -> None:
    """Make a log impossible: a directory stands where its file should."""
    path.mkdir()


def test_the_id_of_a_record_is_known_without_the_record_whether_the_log_is_written_or_not(
    tmp_path: Path,
) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    written = log.write_or_keep(refusal())
    log.close()
    log.path.rename(tmp_path / "aside")
    log.path.mkdir()
    kept = log.write_or_keep(refusal())
    assert (log.degraded is not None, log.buffered) == (True, 1)
    log.path.rmdir()
    (tmp_path / "aside").rename(log.path)
    log.flush()
    assert sequence(records(log.path), "id") == [written, kept]


@pytest.mark.req("S000-116")
def test_reads_wait_in_memory_and_are_written_in_order_before_the_next(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    down(log.path)
    kept = [log.append_or_keep(intent("read", path=f"{number}")) for number in range(3)]
    done = log.append_or_keep(outcome(kept[0].id, tool="read"))
    assert (log.degraded is not None, log.buffered, {record.seq for record in kept}) == (
        True,
        4,
        {0},
    )
    log.path.rmdir()
    log.append(refusal(), durable=True)
    assert (log.degraded, log.buffered, log.dropped) == (None, 0, 0)
    found = verify_log(log.path)
    assert (found.problems, found.notes) == ((), ())
    ids = [record.id for record in (*kept, done)]
    assert sequence(records(log.path), "id")[:4] == ids
    # An outcome finds its intent, though both were kept.
    assert [record.id for record in found.unknown] == ids[1:3]


@pytest.mark.slow
@pytest.mark.req("S000-115")
def test_a_thousand_reads_are_kept_and_the_oldest_dropped_first(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    down(log.path)
    for number in range(1_003):
        log.append_or_keep(intent("read", number=number))
    assert (log.buffered, log.dropped) == (1_000, 3)
    log.path.rmdir()
    log.flush()
    gap, *rest = records(log.path)
    since = "2026-01-01T00:00:00.000Z"
    assert (gap["kind"], gap["detail"]) == ("repair", {"dropped_records": 3, "since": since})
    assert sequence(rest, "arguments") == [{"number": number} for number in range(3, 1_003)]
    assert (log.dropped, verify_log(log.path).problems) == (0, ())


@pytest.mark.req("S000-113")
def test_a_record_that_cannot_be_written_stops_the_effect(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    down(log.path)
    for _ in range(2):
        with pytest.raises(AuditError) as caught:
            log.append(intent(), durable=True)
        assert (caught.value.code, log.degraded is not None, log.buffered) == (
            "log-not-a-file",
            True,
            0,
        )
    log.append_or_keep(refusal())
    with pytest.raises(AuditError):
        log.flush()
    log.path.rmdir()
    log.append(intent(), durable=True)
    assert log.degraded is None


def test_flush_without_anything_to_write_does_nothing(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    log.flush()
    assert not log.path.exists()


def test_a_clock_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for now in (float("nan"), 1e300, -1.0):
        log = AuditLog(tmp_path / "audit.jsonl", clock=lambda now=now: now)  # type: ignore[misc]
        with pytest.raises(AuditError):
            log.append(refusal(), durable=False)


def test_closing_twice_is_no_error_and_a_closed_log_opens_again(tmp_path: Path) -> None:
    log = small_log(tmp_path / "audit.jsonl")
    log.close()
    log.close()
    assert log.append(refusal(), durable=False).seq == 5
    assert os.path.exists(log.path)


@pytest.mark.req("S000-120")
@pytest.mark.parametrize("published", PUBLISHED)
def test_each_published_result_is_recorded_and_read_back(tmp_path: Path, published: str) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    begun = log.append(intent(), durable=False)
    log.append(outcome(begun.id, PUBLISHED[published]), durable=False)
    (entry,) = read_records(log.path, status=published)
    assert entry.result == published


ALL_FIELDS = AuditDraft(
    kind="outcome",
    tool="wallet__transfer",
    agent="trader",
    user="u1",
    channel="discord",
    arguments={"to": "0x" + "aB" * 20, "amount": 7},
    permissions=(
        DecidedPermission(action="sign", resource="pay", effect="ask", layer="user", rule_index=2),
    ),
    reason="done",
    status="ok",
    intent="01ARYZ6S410000000000000000",
    duration_ms=31,
    detail={"gate": "tier"},
    tier="3",
    effective_tier="2",
    security_level="sign",
    error="none",
    client="reviewer 1.4.0",
    workspace="/home/ann/site",
    device="phone",
    session="s1",
    trace="t1",
    request="r1",
    call="toolu_01",
    amount_usd="12.50",
    session_key="sk1",
    signer_tier="2",
    skill="project:pay",
    skill_version="1.2.0",
    skill_digest="sha256:" + "0" * 64,
    gate_verdict="approved",
    rules_digest="0123456789abcdef",
    profile="opencode",
    model="openai:gpt-5",
    parent="toolu_00",
    result_chars=1_200,
    waited_ms=2_500,
    confirmation=Confirmation(
        channel="inline",
        requested_at="2026-01-01T00:00:00.000Z",
        responded_at="2026-01-01T00:00:01.000Z",
        approved=True,
        latency_ms=1_000,
        approval="a1",
    ),
    transaction=TransactionEntry(
        tx_hash="0x" + "0f" * 32, chain_id=1, block_number=2, gas_used="21000", gas_price="9" * 30
    ),
)


def test_every_field_of_a_draft_is_tried_here_and_the_words_are_columns_of_the_csv() -> None:
    plain = AuditDraft(kind="intent", tool="read")
    names = [name for name in structs.field_names(AuditDraft) if name not in SEAL]
    assert [name for name in names if getattr(ALL_FIELDS, name) == getattr(plain, name)] == []
    words = [name for name in names if getattr(plain, name) == ""]
    # The status is part of `result`, the intent is the row itself.
    assert set(words) - set(COLUMNS) == {"status", "intent"}


def test_every_field_of_a_draft_is_read_back(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    record = log.append(ALL_FIELDS, durable=False)
    for name in set(structs.field_names(ALL_FIELDS)) - SEAL:
        assert getattr(record, name) == getattr(ALL_FIELDS, name), name
    assert read_records(log.path)[0].record == record


@pytest.mark.parametrize(
    "changed", [{"tier": "4"}, {"effective_tier": "x"}, {"security_level": "admin"}, {"trace": 7}]
)
def test_a_field_with_a_value_of_no_kind_is_refused(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    with pytest.raises(AuditError, match="cannot be recorded"):
        log_at(tmp_path / "audit.jsonl").append(
            replace(intent(), **changed),  # type: ignore[arg-type]
            durable=True,
        )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"to": "ä" * 50_000, "a": 7}, '{"a":7,"to":"' + "ä" * 50_000 + '"}'),
        ({"apiKey": "k" * 400}, '{"apiKey":"' + "k" * 400 + '"}'),
        ({"amounts": [1.5, 1 << 70]}, '{"amounts":["1.5",1180591620717411303424]}'),
    ],
)
def test_the_size_is_that_of_all_arguments_before_any_is_hidden_or_cut(
    tmp_path: Path, arguments: dict[str, object], text: str
) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    record = log.append(replace(intent(), arguments=arguments), durable=False)
    assert record.argument_bytes == len(text.encode())
    assert record.argument_digest == hashlib.sha256(text.encode()).hexdigest()
    assert read_records(log.path)[0].record == record


def test_a_record_without_arguments_has_no_size(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    # The log fills it, whatever a draft says.
    draft = AuditDraft(kind="event", tool="system:reload", argument_bytes=9)
    assert log.append(draft, durable=False).argument_bytes == 0
    assert b"argument_bytes" not in log.path.read_bytes()


def test_write_returns_the_id_of_what_it_wrote(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    written = log.write(intent(), durable=True)
    assert read_records(log.path)[0].record.id == written


@pytest.mark.req("S000-117")
@pytest.mark.parametrize("tier", ["3", "2", "1"])
def test_while_the_log_is_down_what_has_a_tier_is_blocked(tmp_path: Path, tier: str) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    down(log.path)
    log.append_or_keep(replace(intent("read"), tier="none"))
    with pytest.raises(AuditError):
        log.append_or_keep(replace(intent("swap"), tier=tier))
    assert log.degraded is not None
    assert (log.degraded.code, log.degraded.buffered, log.degraded.refused) == (
        "log-not-a-file",
        1,
        1,
    )


@pytest.mark.req("S000-114")
def test_an_outcome_that_cannot_be_written_is_told_without_its_secrets(tmp_path: Path) -> None:
    told: list[str] = []
    log = AuditLog(tmp_path / "audit.jsonl", warn=told.append)
    down(log.path)
    log.append_or_keep(intent("read"))
    kept = log.append_or_keep(replace(outcome("x"), detail={"password": "CANARY", "exit_code": 0}))
    assert [line.startswith("[AUDIT-DEGRADED] ") for line in told] == [True, True]
    assert kept.id in told[1]
    assert "CANARY" not in "".join(told)
    log.path.rmdir()
    log.flush()
    assert told[2] == "[AUDIT-DEGRADED] over: the audit log is written again"
    assert log.degraded is None


def test_a_flush_that_fails_loses_nothing(tmp_path: Path) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    down(log.path)
    kept = [log.append_or_keep(intent("read", n=number)).id for number in range(3)]
    for _ in range(2):
        with pytest.raises(AuditError):
            log.flush()
        log.close()
    assert log.buffered == 3
    log.path.rmdir()
    log.flush()
    assert sequence(records(log.path), "id") == kept


@pytest.mark.slow
def test_what_waits_is_written_without_a_call_when_the_log_is_back(tmp_path: Path) -> None:
    back = threading.Event()
    log = AuditLog(
        tmp_path / "audit.jsonl",
        retry_seconds=0.05,
        warn=lambda line: back.set() if " over: " in line else None,
    )
    down(log.path)
    log.append_or_keep(intent("read"))
    log.path.rmdir()
    assert back.wait(30)
    log.close()
    assert len(records(log.path)) == 1

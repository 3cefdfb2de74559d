"""Tests of `audit`: what people and programs get of the log, and what it cannot make them run."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from skillhouse.audit import AuditDraft, AuditError, AuditLog, Confirmation
from skillhouse.audit.state_heads import StateHeads
from skillhouse.floor.structs import replace
from tests.audit.logs import START, intent, log_at, outcome, refusal
from tests.extensions.postgres.state_servers import new_database
from tests.frontends.conftest import Run
from tests.house.places import write_skill
from tests.house.test_all_logs import Server

FORMULA = '=HYPERLINK("http://evil.test","x")'


@pytest.fixture
def log(place: Path) -> AuditLog:
    """A log of two days: the first archived."""
    path = Path(os.environ["HOME"], ".local/state/skillhouse/audit.jsonl")
    first = log_at(path)
    done = first.append(replace(intent(agent="a"), tier="3"), durable=True)
    first.append(replace(outcome(done.id), detail={"exit_code": 0}), durable=True)
    first.append(refusal(), durable=True)
    first.close()
    later = AuditLog(path, clock=lambda: START + 2 * 86_400.0)
    asked = replace(intent("fetch", url=FORMULA), user=FORMULA, agent="b")
    later.append(later_outcome(later.append(asked, durable=True).id), durable=True)
    later.close()
    return later


def later_outcome(of: str) -> AuditDraft:
    return replace(outcome(of, "error", "fetch"), reason='line\r\nbreak, and "quotes"')


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-128")
@pytest.mark.parametrize(
    ("options", "tools"),
    [
        ((), ["fetch", "audit", "audit", "write", "exec"]),
        (("--tool", "exec"), ["exec"]),
        (("--status", "denied"), ["write"]),
        (("--status", "success"), ["exec"]),
        (("--user", "u1"), ["exec"]),
        (("--agent", "b"), ["fetch"]),
        (("--tier", "3"), ["exec"]),
        (("--until", "2026-01-01"), ["write", "exec"]),
        (("--since", "2026-01-02", "--tool", "fetch"), ["fetch"]),
        (("--since", "2026-01-02T01:00:00+01:00", "--tool", "fetch"), ["fetch"]),
        (("--since", "5d"), []),
        (("--limit", "1"), ["fetch"]),
        (("--sort", "duration"), ["fetch", "exec", "audit", "audit", "write"]),
        (("--sort", "duration", "--limit", "1", "--agent", "a"), ["exec"]),
    ],
)
def test_list_looks_through_the_active_file_and_the_archives(
    run: Run, log: AuditLog, options: tuple[str, ...], tools: list[str]
) -> None:
    code, out, _ = run("audit", "list", "--json", *options)
    assert code == 0
    assert [entry["record"]["tool"] for entry in json.loads(out)["records"]] == tools
    assert run("audit", "list", *options)[1].count("\n") == len(tools)


def test_list_sorted_by_duration_has_the_call_that_ran_longest_first(
    run: Run, log: AuditLog
) -> None:
    slow = log.append(intent("slow"), durable=True)
    log.append(replace(outcome(slow.id, tool="slow"), duration_ms=61_042), durable=True)
    log.append(intent("pending"), durable=True)
    log.close()
    code, out, _ = run("audit", "list", "--sort", "duration", "--json", "--limit", "3")
    tools = [entry["record"]["tool"] for entry in json.loads(out)["records"]]
    assert (code, tools) == (0, ["slow", "fetch", "exec"])
    lines = run("audit", "list", "--sort", "duration")[1].splitlines()
    assert f"{slow.id[:10]}  2026-01-03 00:00:00     61,042 ms  ok" in lines[0]
    assert "          0 ms  " in lines[-1]


def test_list_has_the_calls_of_one_skill(run: Run, place: Path) -> None:
    for name in ("notes", "notes-old"):
        write_skill(place / f"project/.agents/skills/{name}")
    assert run("trust", "--yes")[0] == 0
    for name in ("notes", "notes-old", "notes"):
        assert run("call", "skill", f"name={name}")[0] == 0
    assert run("call", "read", "path=.agents/skills/notes/SKILL.md")[0] == 0
    assert run("call", "read", f"path={place}/project/README.md")[0] != 0
    code, out, _ = run("audit", "list", "--skill", "notes", "--json")
    tools = [(one["record"]["tool"], one["record"]["skill"]) for one in json.loads(out)["records"]]
    assert (code, tools) == (0, [("read", "notes"), ("skill", "notes"), ("skill", "notes")])
    assert run("audit", "list", "--skill", "notes")[1].count("\n") == 3
    assert run("audit", "stats", "--skill", "notes-old")[1].startswith("1 call")
    code, out, _ = run("audit", "export", "--skill", "notes-old", "--format", "csv")
    assert [row["skill"] for row in csv.DictReader(io.StringIO(out))] == ["notes-old"]
    assert run("audit", "list", "--skill", "note") == (0, "", "no calls\n")


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-128")
@pytest.mark.parametrize("logs", [[], ["--all", "."]])
def test_the_page_of_one_list_is_not_that_of_another(
    run: Run, log: AuditLog, logs: list[str]
) -> None:
    code, out, err = run("audit", "list", *logs, "--before", "0" * 26)
    assert (code, out, "`--before` goes on" in err) == (2, "", True)


def test_show_finds_a_record_of_an_archive(run: Run, log: AuditLog) -> None:
    (entry,) = json.loads(run("audit", "list", "--tool", "exec", "--json")[1])["records"]
    code, out, _ = run("audit", "show", entry["record"]["id"], "--json")
    whole = json.loads(out)
    rare = {"amount_usd": "", "session_key": "", "signer_tier": "", "transaction": None}
    for part in ("record", "outcome"):
        # A list has what few logs have only where it is set.
        assert not rare.keys() & entry[part].keys()
        entry[part] |= rare
    assert (code, whole) == (0, entry)


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-128")
def test_stats_count_calls_and_leave_the_logs_own_notes_out(run: Run, log: AuditLog) -> None:
    code, out, _ = run("audit", "stats", "--json")
    assert code == 0
    assert json.loads(out) == {
        "total": 3,
        "first": "2026-01-01T00:00:00.000Z",
        "last": "2026-01-03T00:00:00.000Z",
        "by_status": {"denied": 1, "error": 1, "ok": 1},
        "by_tool": {"exec": 1, "fetch": 1, "write": 1},
        "by_user": {"": 1, FORMULA: 1, "u1": 1},
        "by_agent": {"": 1, "a": 1, "b": 1},
        "by_client": {"": 3},
        "by_tier": {"": 2, "3": 1},
        "by_day": {"2026-01-01": 2, "2026-01-03": 1},
        "denied_by_tool": {"write": 1},
        "outages": 0,
        "refused": 0,
        "dropped": 0,
        "troubles": [],
    }
    text = run("audit", "stats", "--tool", "write")[1]
    assert text.startswith("1 call, 2026-01-01T00:00:02 to 2026-01-01T00:00:02 UTC\n")
    assert "       1  2026-01-01\n" in text


def test_stats_tell_of_outages_and_of_what_is_wrong_now(
    run: Run, log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = log.path.with_name("moved")
    log.path.rename(moved)
    log.path.mkdir()
    down = AuditLog(log.path, warn=lambda _: None, retry_seconds=0)
    with pytest.raises(AuditError):
        down.append(intent(), durable=True)
    log.path.rmdir()
    moved.rename(log.path)
    down.append(refusal(), durable=True)
    down.close()
    monkeypatch.setattr("skillhouse.audit.verify.FREE_MIN", 1 << 62)
    code, out, err = run("audit", "stats")
    assert code == 0
    assert "         1  could not be written: 1 effect refused\n" in out
    assert err.startswith("warning: less than 1 MB is free for the audit log")
    found = json.loads(run("audit", "stats", "--json")[1])
    assert [one["code"] for one in found["troubles"]] == ["log-disk-full"]


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-128")
def test_export_gives_csv_that_a_spreadsheet_does_not_run(
    run: Run, log: AuditLog, place: Path
) -> None:
    target = place / "calls.csv"
    assert run("audit", "export", "--format", "csv", "--output", str(target)) == (0, "", "")
    data = target.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert [row["tool"] for row in rows] == ["fetch", "audit", "audit", "write", "exec"]
    assert (rows[0]["user"], rows[0]["reason"]) == ("'" + FORMULA, 'line\r\nbreak, and "quotes"')
    assert (rows[-1]["result"], rows[-1]["duration_ms"], rows[-1]["tier"]) == ("success", "7", "3")
    # RFC 4180: CR LF ends a record, and quotes are doubled.
    assert data.split(b"\r\n", 1)[0].startswith(b"id,seq,ts,")
    assert b'and ""quotes""' in data
    for row in rows:
        assert not any(cell[:1] in ("=", "+", "-", "@", "\t", "\r") for cell in row.values())


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-128")
def test_export_gives_json_with_published_results(run: Run, log: AuditLog) -> None:
    code, out, _ = run("audit", "export", "--status", "ok")
    (entry,) = json.loads(out)
    assert (code, entry["result"], entry["record"]["tool"]) == (0, "success", "exec")
    assert json.loads(run("audit", "export", "--tool", "none")[1]) == []


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-84")
def test_export_as_write_gate_has_its_fields_and_only_paths(run: Run, log: AuditLog) -> None:
    path = log.path
    with AuditLog(path, clock=lambda: START + 2 * 86_400.0) as again:
        arguments = {"path": "a.txt", "content": "text", "old_text": "x", "mode": 1}
        draft = AuditDraft(
            kind="refusal",
            tool="write",
            status="denied",
            user="u1",
            session="s1",
            arguments=arguments,
            duration_ms=7,
            gate_verdict="timeout",
            confirmation=Confirmation(latency_ms=60_000),
        )
        again.append(draft, durable=True)
        # No write gate judged it, so it is no line of its export, nor of its limit.
        again.append(AuditDraft(kind="refusal", tool="write", status="denied"), durable=True)
    out = run("audit", "export", "--format", "write-gate", "--limit", "1")[1]
    assert json.loads(out) == {
        "ts": "2026-01-03T00:00:00.000Z",
        "tool": "write",
        "user": "u1",
        "session": "s1",
        "params": {"path": "a.txt"},
        "result": "timeout",
        "durationMs": 60_000,
    }


def test_export_does_not_replace_a_file(run: Run, log: AuditLog, place: Path) -> None:
    target = place / "there"
    target.write_text("mine")
    code, out, err = run("audit", "export", "--output", str(target))
    assert (code, out, target.read_text()) == (2, "", "mine")
    assert "cannot write" in err


def test_a_time_that_is_none_is_named(run: Run) -> None:
    code, _, err = run("audit", "list", "--since", "yesterday")
    assert code == 2
    assert "expected a time such as 2026-01-31" in err


def test_verify_says_in_which_file_a_byte_was_changed(run: Run, log: AuditLog) -> None:
    said = "7 records in 2 files, 2 checkpoints, the log is whole\n"
    assert run("audit", "verify") == (0, said, "")
    (archive,) = log.path.parent.glob("audit-archive/*.gz")
    data = archive.read_bytes()
    archive.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    code, out, _ = run("audit", "verify")
    assert code == 1
    assert f"{archive.name}" in out
    assert "changed or cut" in out


@pytest.mark.slow
def test_a_log_whose_key_is_gone_is_not_read(run: Run, log: AuditLog) -> None:
    log.path.with_name("audit.jsonl.key").unlink()
    code, out, err = run("audit", "list")
    assert (code == 0, out) == (False, "")
    assert "the log was written with a key, which is gone" in err
    assert run("audit", "verify")[0] == 1
    assert run("call", "list")[0] == 0
    assert run("call", "write", "--args", '{"path": "a", "content": "b"}')[0] == 1


def test_each_record_says_what_it_was_about_and_why_it_failed(run: Run, place: Path) -> None:
    secret = "sk-" + "a1" * 20
    project = place / "project/.agents/skills"
    hostile = project / "bad\x1b]0;x\x07"
    for directory in (project / "pdf", hostile):
        directory.mkdir(parents=True)
        name = directory.name.partition("\x1b")[0]
        (directory / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Read x\n---\nRead.\n")
    assert run("trust", "--yes")[0] == 0
    assert run("trust", "--revoke", "--yes")[0] == 0
    assert run("new", "mine", "--description", "It reads.")[0] == 0
    assert run("install", f"http://127.0.0.1:9/x.tar.gz?token={secret}", "--yes")[0] != 0
    records = json.loads(run("audit", "list", "--json")[1])["records"]
    about = {one["record"]["tool"]: one["about"] for one in records}
    assert about["manage:create"].startswith("create: mine, scope user, at ")
    assert about["system:trust"].startswith("trust: 2 skills: .agents/skills/")
    assert about["system:trust-revoked"] == f"trust-revoked: at {place / 'project'}"
    assert about["manage:fetch"].startswith("fetch: http://")
    assert "; " in about["manage:fetch"]
    trusted = next(one for one in records if one["record"]["tool"] == "system:trust")["record"]
    assert trusted["arguments"]["count"] == 2
    for one in trusted["arguments"]["skills"]:
        assert one["tree_digest"].startswith("skilltree1:")
    shown = run("audit", "list")[1]
    assert shown.count("\n") == len(records)
    assert secret not in json.dumps(records) + shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_long_path_keeps_the_end_that_names_the_file(run: Run, place: Path) -> None:
    deep = place / "project/some/directories/that/are/deep/enough/to/need/more/than/a/line"
    deep.mkdir(parents=True)
    (deep / "wanted.txt").write_text("one line\n")
    source = write_skill(deep / "letters")
    run("call", "read", f"path={deep / 'wanted.txt'}")
    assert run("install", str(source), "--yes", "--allow-unsigned")[0] == 0
    lines = run("audit", "list")[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("/wanted.txt") for line in lines), lines
    assert any("install: letters, from …/letters, " in line for line in lines)


@pytest.fixture
def servers(place: Path) -> Path:
    """The logs of two servers in one folder, and a state that knows both."""
    folder, state = place / "logs", Path(os.environ["HOME"], ".local/state/skillhouse")
    for name in ("core-a", "core-b"):
        log = AuditLog(folder / name / "audit.jsonl", server=name, heads=StateHeads(state))
        log.append(refusal(reason=f"of {name}"), durable=True)
        log.close()
    return folder


def test_the_logs_of_several_servers_are_verified_together(
    servers: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLHOUSE_SERVER_NAME", "watcher")
    code, out, _ = run("audit", "verify", "--all", str(servers))
    assert code == 0
    assert [line for line in out.splitlines() if line] == [
        "core-a/audit.jsonl (core-a)",
        "1 record, 1 checkpoint, 1 head in the state, the log is whole",
        "core-b/audit.jsonl (core-b)",
        "1 record, 1 checkpoint, 1 head in the state, the log is whole",
    ]
    (servers / "core-b").rename(servers.parent / "away")
    code, out, _ = run("audit", "verify", "--all", str(servers))
    assert (code, "[log-missing]" in out) == (1, True)
    code, out, _ = run("audit", "verify", "--all", str(servers), "--json")
    found = json.loads(out)
    assert found["absent"] == [{"server": "core-b", "records": 1}]
    assert [(one["file"], one["ok"], one["heads"]) for one in found["logs"]] == [
        ("core-a/audit.jsonl", True, 1)
    ]
    assert (found["ok"], found["is_compared"]) == (False, True)


def test_without_a_name_no_state_is_asked_and_that_is_said(servers: Path, run: Run) -> None:
    code, out, said = run("audit", "verify", "--all", str(servers))
    assert (code, "head in the state" in out) == (0, False)
    assert "no state has heads of these logs" in said


def test_records_of_one_server_are_listed(servers: Path, run: Run) -> None:
    def reasons(*options: str) -> list[str]:
        code, out, _ = run("audit", "list", *options, "--json")
        assert code == 0
        return [one["record"]["reason"] for one in json.loads(out)["records"]]

    assert sorted(reasons("--all", str(servers))) == ["of core-a", "of core-b"]
    assert reasons("--all", str(servers), "--server", "core-b") == ["of core-b"]
    code, _, said = run("audit", "list", "--server", "core-b")
    assert (code, "`core-b`" in said, f"`{socket.gethostname()}`" in said) == (2, True, True)
    code, _, said = run("audit", "list", "--all", str(servers), "--server", "core-c")
    assert (code, "known are `core-a`, `core-b`" in said) == (2, True)


def test_a_server_without_a_name_is_found_by_that_of_its_machine(place: Path, run: Run) -> None:
    """As `audit list --all`, the page and `/api/v1/servers` name it."""
    assert run("call", "list", "--args", '{"path": "."}')[0] == 0
    host = socket.gethostname()
    every = json.loads(run("audit", "list", "--json")[1])["records"]
    assert every
    for options in ((), ("--all",)):
        code, out, _ = run("audit", "list", *options, "--server", host, "--json")
        assert (code, len(json.loads(out)["records"])) == (0, len(every))
    for verb in ("stats", "export"):
        assert run("audit", verb, "--server", host)[1] == run("audit", verb)[1]
    # Of a server that is known, nothing that fits is no mistake.
    assert run("audit", "list", "--server", host, "--tool", "none")[0] == 0
    code, _, said = run("audit", "list", "--all", "--server", "core-x")
    assert (code, f"no server `core-x`; known are `{host}`" in said) == (2, True)


def test_a_folder_without_logs_is_a_mistake_of_the_command(place: Path, run: Run) -> None:
    for folder in (place, place / "absent"):
        code, _, said = run("audit", "verify", "--all", str(folder))
        assert (code, str(folder) in said) == (2, True)


@pytest.mark.parametrize("name", ['a"b', "a b", "-a"])
def test_what_is_no_name_of_a_server_is_refused(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SKILLHOUSE_SERVER_NAME", name)
    code, _, said = run("audit", "list")
    assert (code, "server_name" in said) == (2, True)


def test_a_call_of_a_named_server_has_its_name_and_a_head(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLHOUSE_SERVER_NAME", "core-a")
    assert run("call", "list", "--args", '{"path": "."}')[0] == 0
    code, out, _ = run("audit", "verify")
    assert (code, "in the state, the log is whole" in out) == (0, True)
    _, out, _ = run("audit", "list", "--server", "core-a", "--json")
    assert {one["record"]["server"] for one in json.loads(out)["records"]} == {"core-a"}


@pytest.mark.slow
@pytest.mark.file_state
def test_accepting_a_log_is_asked_recorded_and_said(
    tmp_path: Path, postgres_server: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database(postgres_server)
    monkeypatch.setenv("SKILLHOUSE_STATE_URL", url)
    (tmp_path / "servers").mkdir()
    with ExitStack() as stack:
        accepted(lambda: Server(tmp_path / "servers", "core-b", stack, url), run)


def accepted(server: Callable[[], Server], run: Run) -> None:
    old = server()
    old.record("before")
    old.answer()
    assert run("audit", "list", "--all")[0] == 0
    old.answers.close()
    old.servers.close()
    new = server()
    new.record("after")
    new.answer()
    code, out, _ = run("audit", "list", "--all")
    assert (code, "doubtful" in out) == (1, True)
    code, _, said = run("audit", "accept", "core-b")
    assert (code, "use --yes" in said, f"{old.log} had its name" in said) == (2, True, True)
    code, _, said = run("audit", "accept", "core-c")
    assert (code, "known are" in said) == (2, True)
    code, out, _ = run("audit", "accept", "core-b", "--yes", "--json")
    wanted = {"server": "core-b", "log": new.log, "given_up": [old.log]}
    assert (code, json.loads(out)) == (0, wanted)
    (record,) = json.loads(run("audit", "list", "--json", "--server", socket.gethostname())[1])[
        "records"
    ]
    assert record["record"]["tool"] == "system:server-accepted"
    assert record["record"]["arguments"] == wanted
    _, out, _ = run("audit", "list", "--all")
    assert "doubtful" not in out
    new.answers.close()

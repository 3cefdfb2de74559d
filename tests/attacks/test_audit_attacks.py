"""Attacks on the audit log. Each first succeeds against a log that is only appended to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.audit import AuditDraft, AuditError, AuditLog, read_records, verify_log

# Left out of the fast part: it starts processes or tries every byte.
pytestmark = pytest.mark.slow


class NaiveLog:
    """What many agents have: a JSON object a line, appended, believed when it parses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, tool: str, arguments: dict[str, object]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"tool": tool, "arguments": arguments}) + "\n")

    def is_believed(self) -> bool:
        lines = self.path.read_text().splitlines()
        return all(isinstance(json.loads(line), dict) for line in lines)


CALLS = [("read", "notes.txt"), ("exec", "rm -rf data"), ("write", "a.txt"), ("fetch", "evil.test")]


@pytest.fixture
def naive(tmp_path: Path) -> NaiveLog:
    log = NaiveLog(tmp_path / "naive.jsonl")
    for tool, what in CALLS:
        log.append(tool, {"what": what})
    return log


@pytest.fixture
def ours(tmp_path: Path) -> AuditLog:
    log = AuditLog(tmp_path / "audit.jsonl")
    for tool, what in CALLS:
        log.append(AuditDraft(kind="intent", tool=tool, arguments={"what": what}), durable=True)
    return log


def edit_the_command(data: bytes) -> bytes:
    return data.replace(b"rm -rf data", b"ls -la data")


def remove_the_command(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if b"rm -rf" not in line)


def cut_the_end(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-1])


def move_the_command(data: bytes) -> bytes:
    one, two, three, four = data.splitlines(keepends=True)
    return one + three + two + four


def add_an_alibi(data: bytes) -> bytes:
    return data + b'{"tool": "read", "arguments": {"what": "harmless"}}\n'


def replay_a_record(data: bytes) -> bytes:
    return data + data.splitlines(keepends=True)[0]


def empty_the_log(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    "attack",
    [
        edit_the_command,
        remove_the_command,
        cut_the_end,
        move_the_command,
        add_an_alibi,
        replay_a_record,
        empty_the_log,
    ],
)
def test_a_rewritten_history_shows(
    naive: NaiveLog, ours: AuditLog, attack: Callable[[bytes], bytes]
) -> None:
    naive.path.write_bytes(attack(naive.path.read_bytes()))
    assert naive.is_believed()
    ours.path.write_bytes(attack(ours.path.read_bytes()))
    assert verify_log(ours.path).problems != ()


def test_a_history_written_anew_differs_from_the_head_that_was_kept(
    tmp_path: Path, ours: AuditLog
) -> None:
    """Who writes both files can forge a whole log; the head that was kept elsewhere shows it."""
    kept = verify_log(ours.path).head
    with AuditLog(tmp_path / "forged.jsonl") as forged:
        for tool, what in CALLS:
            draft = AuditDraft(kind="intent", tool=tool, arguments={"what": what})
            forged.append(draft, durable=True)
    os.replace(forged.path, ours.path)
    assert verify_log(ours.path).problems != ()
    os.replace(tmp_path / "forged.jsonl.head", tmp_path / "audit.jsonl.head")
    found = verify_log(ours.path)
    assert found.problems == ()
    assert found.head != kept


def test_a_log_led_elsewhere_by_a_link_writes_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "authorized_keys"
    victim.write_text("")
    for name in ("naive.jsonl", "audit.jsonl"):
        (tmp_path / name).symlink_to(victim)
    NaiveLog(tmp_path / "naive.jsonl").append("exec", {"what": "ssh-ed25519 AAAA"})
    assert "ssh-ed25519" in victim.read_text()
    victim.write_text("")
    with pytest.raises(AuditError) as caught:
        AuditLog(tmp_path / "audit.jsonl").append(
            AuditDraft(kind="intent", tool="exec", arguments={"what": "ssh"}), durable=True
        )
    assert (caught.value.code, victim.read_text()) == ("log-link", "")


def test_an_argument_cannot_forge_a_record(tmp_path: Path, ours: AuditLog) -> None:
    forged = 'x"}}\n{"tool": "read", "arguments": {"what": "harmless"}}'
    naive = tmp_path / "formatted.jsonl"
    # A line put together as text is the usual mistake.
    naive.write_text(f'{{"tool": "exec", "arguments": {{"what": "{forged}\n')
    assert [json.loads(line)["tool"] for line in naive.read_text().splitlines()] == ["exec", "read"]
    draft = AuditDraft(kind="intent", tool=forged, arguments={"what": forged}, reason=forged)
    ours.append(draft, durable=True)
    assert len(ours.path.read_text().splitlines()) == len(CALLS) + 1
    assert verify_log(ours.path).problems == ()


def test_a_secret_in_a_command_does_not_stay_in_the_log(naive: NaiveLog, ours: AuditLog) -> None:
    command = "curl -H 'Authorization: Bearer CANARY' https://u:CANARY@example.org/?token=CANARY"
    naive.append("exec", {"command": command, "apiKey": "CANARY"})
    assert "CANARY" in naive.path.read_text()
    arguments = {"command": command, "apiKey": "CANARY"}
    ours.append(AuditDraft(kind="intent", tool="exec", arguments=arguments), durable=True)
    assert "CANARY" not in ours.path.read_text()


def test_padding_does_not_push_a_command_out_of_the_log(tmp_path: Path, ours: AuditLog) -> None:
    """A huge argument must neither stop the record nor hide which tool was called, or how often."""
    padding: dict[str, object] = {f"p{number}": "x" * 5_000 for number in range(2_000)}
    record = ours.append(
        AuditDraft(kind="intent", tool="exec", arguments={"command": "rm -rf data", **padding}),
        durable=True,
    )
    assert record.arguments["command"] == "rm -rf data"
    assert max(map(len, ours.path.read_bytes().splitlines())) < 64 * 1024
    assert read_records(ours.path, limit=1)[0].record == record


def test_a_log_cut_before_the_next_call_is_not_quietly_continued(
    naive: NaiveLog, ours: AuditLog
) -> None:
    naive.path.write_bytes(cut_the_end(naive.path.read_bytes()))
    naive.append("read", {"what": "harmless"})
    assert naive.is_believed()
    ours.path.write_bytes(cut_the_end(ours.path.read_bytes()))
    with pytest.raises(AuditError) as caught:
        ours.append(AuditDraft(kind="intent", tool="read"), durable=True)
    assert caught.value.code == "log-truncated"

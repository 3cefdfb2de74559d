"""Attacks on the audit log. Each first succeeds against a log that is only appended to."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from skillhouse.audit import (
    AuditDraft,
    AuditError,
    AuditLog,
    read_records,
    redacted,
    verify_log,
)
from tests.harness import Need

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


def moved(data: bytes) -> bytes:
    one, two, three, four = data.splitlines(keepends=True)
    return one + three + two + four


REWRITES: dict[str, Callable[[bytes], bytes]] = {
    "edit_the_command": lambda data: data.replace(b"rm -rf data", b"ls -la data"),
    "remove_the_command": lambda data: b"".join(
        line for line in data.splitlines(keepends=True) if b"rm -rf" not in line
    ),
    "cut_the_end": lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
    "move_the_command": moved,
    "add_an_alibi": lambda data: data + b'{"tool": "read", "arguments": {"what": "harmless"}}\n',
    "replay_a_record": lambda data: data + data.splitlines(keepends=True)[0],
    "empty_the_log": lambda _: b"",
}


@pytest.mark.parametrize("attack", REWRITES)
def test_a_rewritten_history_shows(naive: NaiveLog, ours: AuditLog, attack: str) -> None:
    for log in (naive, ours):
        log.path.write_bytes(REWRITES[attack](log.path.read_bytes()))
    assert naive.is_believed()
    assert verify_log(ours.path).problems != ()


@pytest.mark.parametrize("is_open", [True, False], ids=["running", "next_process"])
def test_an_edit_of_the_same_length_stops_the_next_effect(
    naive: NaiveLog, ours: AuditLog, tmp_path: Path, is_open: bool
) -> None:
    time.sleep(0.05)
    for log in (naive, ours):
        times = log.path.stat()
        with log.path.open("r+b") as file:
            file.seek(file.read().index(b"rm -rf data"))
            file.write(b"ls -la data")
        os.utime(log.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    naive.append("exec", {"what": "ls"})
    assert naive.is_believed()
    after = ours if is_open else AuditLog(ours.path)
    for _ in range(2):
        with pytest.raises(AuditError, match="line 2: ") as caught:
            after.append(AuditDraft(kind="intent", tool="exec"), durable=True)
        assert caught.value.code == "log-changed"
    assert len(ours.path.read_bytes().splitlines()) == len(CALLS)


def test_a_log_that_was_only_touched_goes_on(ours: AuditLog) -> None:
    for count in range(2):
        time.sleep(0.05)
        ours.path.chmod(0o400)
        ours.path.chmod(0o600)
        ours.append(AuditDraft(kind="intent", tool="exec"), durable=True)
        assert verify_log(ours.path).records == len(CALLS) + count + 1


class PoliteLog(NaiveLog):
    """The same, of those that never disturb what they tell about."""

    def append(self, tool: str, arguments: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            super().append(tool, arguments)


def test_85_an_effect_without_a_record_on_a_full_disk(tmp_path: Path, need: Need) -> None:
    # Every write there is answered with ENOSPC.
    need(Path("/dev/full").exists(), "no /dev/full")
    effects = []
    PoliteLog(Path("/dev/full")).append("exec", {"what": "rm -rf data"})
    effects.append("naive")
    # What cannot be written to is met before the effect: no record, no effect.
    place = tmp_path / "audit.jsonl"
    log = AuditLog(place)
    place.unlink(missing_ok=True)
    place.symlink_to("/dev/full")

    def act() -> None:
        log.append(AuditDraft(kind="intent", tool="exec"), durable=True)
        effects.append("ours")

    with pytest.raises(AuditError):
        act()
    assert effects == ["naive"]


def forge(directory: Path, key: bytes | None) -> AuditLog:
    """Write another history of as many calls, with a key of its own or one that was stolen."""
    directory.mkdir()
    with AuditLog(directory / "audit.jsonl", key=key) as forged:
        for tool, what in CALLS:
            arguments: dict[str, object] = {"what": what.replace("rm -rf", "ls -la")}
            draft = AuditDraft(kind="intent", tool=tool, arguments=arguments)
            forged.append(draft, durable=True)
    return forged


def test_a_history_written_anew_needs_the_key(tmp_path: Path, ours: AuditLog) -> None:
    """Who writes both files could once forge a whole log: a hash alone is known to everybody."""
    chained = unkeyed_chain([what for _, what in CALLS])
    assert chain_is_whole(chained)
    assert chain_is_whole(unkeyed_chain(["harmless"] * 4))
    forged = forge(tmp_path / "forged", None)
    for name in ("audit.jsonl", "audit.jsonl.head"):
        os.replace(forged.path.with_name(name), ours.path.with_name(name))
    assert verify_log(ours.path).problems != ()
    with pytest.raises(AuditError):
        AuditLog(ours.path).append(AuditDraft(kind="intent", tool="exec"), durable=True)


def unkeyed_chain(calls: list[str]) -> list[tuple[str, str]]:
    """Return calls, each with the hash of itself and the one before, as many logs have them."""
    before, chain = "", []
    for what in calls:
        before = hashlib.sha256((before + what).encode()).hexdigest()
        chain.append((what, before))
    return chain


def chain_is_whole(chain: list[tuple[str, str]]) -> bool:
    return chain == unkeyed_chain([what for what, _ in chain])


def test_a_history_forged_with_a_stolen_key_differs_from_the_second_place(
    tmp_path: Path, ours: AuditLog
) -> None:
    """Who has the key can forge the log; the checkpoints and the head kept elsewhere show it."""
    ours.close()
    elsewhere = tmp_path / "another-machine"
    shutil.copytree(ours.checkpoints, elsewhere)
    kept = verify_log(ours.path).head
    stolen = bytes.fromhex(json.loads(ours.path.with_name("audit.jsonl.key").read_text())["key"])
    forged = forge(tmp_path / "forged", stolen)
    for name in ("audit.jsonl", "audit.jsonl.head"):
        os.replace(forged.path.with_name(name), ours.path.with_name(name))
    shutil.rmtree(ours.checkpoints)
    assert verify_log(ours.path).problems == ()
    assert verify_log(ours.path).head != kept
    found = verify_log(ours.path, checkpoints=elsewhere)
    assert [problem.code for problem in found.problems] == ["checkpoint-mismatch"]


def test_a_log_put_back_to_yesterday_is_found_and_not_continued(
    tmp_path: Path, ours: AuditLog
) -> None:
    """A copy of log and side file taken earlier fits itself; only the second place knows better."""
    backup = tmp_path / "backup"
    backup.mkdir()
    for name in ("audit.jsonl", "audit.jsonl.head"):
        shutil.copy(ours.path.with_name(name), backup)
    ours.append(AuditDraft(kind="intent", tool="exec", arguments={"what": "worse"}), durable=True)
    ours.close()
    for name in ("audit.jsonl", "audit.jsonl.head"):
        shutil.copy(backup / name, ours.path.with_name(name))
    assert [problem.code for problem in verify_log(ours.path).problems] == ["truncated"]
    with pytest.raises(AuditError) as caught:
        AuditLog(ours.path).append(AuditDraft(kind="intent", tool="read"), durable=True)
    assert caught.value.code == "log-truncated"
    shutil.rmtree(ours.checkpoints)
    assert verify_log(ours.path).problems == ()


def test_a_cut_log_with_a_side_file_to_match_needs_the_key(ours: AuditLog) -> None:
    """All that the side file says stands in the log, so without a seal anybody could write it."""
    lines = ours.path.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[1])
    cut = b"".join(lines[:2])
    said = {"durable": 2, "hash": last["hash"], "seq": 2, "size": len(cut)}
    head = json.dumps(said, separators=(",", ":")).encode().ljust(255) + b"\n"
    ours.path.write_bytes(cut)
    ours.path.with_name("audit.jsonl.head").write_bytes(head)
    assert [problem.code for problem in verify_log(ours.path).problems] == ["head-unreadable"]
    with pytest.raises(AuditError):
        AuditLog(ours.path).append(AuditDraft(kind="intent", tool="read"), durable=True)


def test_a_known_secret_in_any_dress_does_not_stay_in_the_log(
    tmp_path: Path, naive: NaiveLog
) -> None:
    """Patterns know how secrets usually look; this one looks like nothing and travels coded."""
    secret = "correct horse battery/staple+9"
    raw = secret.encode()
    dressed = [
        secret,
        raw.hex(),
        raw.hex().upper(),
        quote(secret, safe=""),
        quote_plus(secret).lower(),
        "".join(f"%{byte:02x}" for byte in raw),
        quote(quote(secret, safe=""), safe=""),
        json.dumps({"x": secret}),
        "\n".join(textwrap.wrap(base64.b64encode(raw * 3).decode(), 16)),
        *(base64.b64encode(b"xyz"[:n] + raw + b"tail").decode() for n in range(3)),
        *(base64.urlsafe_b64encode(b"xyz"[:n] + raw + b"?>").decode() for n in range(3)),
    ]
    log = AuditLog(tmp_path / "audit.jsonl", secrets=lambda: [secret])
    for text in dressed:
        naive.append("exec", {"command": redacted({"x": text})["x"]})
        draft = AuditDraft(
            kind="outcome",
            tool=text,
            arguments={"x": ["a", {text: text}], "url": f"https://h/{text}?q={text}"},
            reason=f"failed with {text}.",
            error=text,
            trace=text,
            user=text,
            status="error",
            detail={"stderr": f"lines\n{text}\nmore"},
        )
        log.append(draft, durable=False)
    left = [text for text in dressed if json.dumps(text)[1:-1] in naive.path.read_text()]
    assert len(left) > 8
    written = log.path.read_text()
    assert [text for text in dressed if json.dumps(text)[1:-1] in written] == []
    for piece in (secret, "correct", raw.hex(), base64.b64encode(raw).decode()[:-4]):
        assert piece not in written


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
    naive.path.write_bytes(REWRITES["cut_the_end"](naive.path.read_bytes()))
    naive.append("read", {"what": "harmless"})
    assert naive.is_believed()
    ours.path.write_bytes(REWRITES["cut_the_end"](ours.path.read_bytes()))
    with pytest.raises(AuditError) as caught:
        ours.append(AuditDraft(kind="intent", tool="read"), durable=True)
    assert caught.value.code == "log-truncated"

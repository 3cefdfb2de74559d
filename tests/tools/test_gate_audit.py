"""Tests of tools/recorder.py: what the log says of calls, and what holds while it is down."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillhouse import tool
from skillhouse.approval import Answer, ApprovalRequest, ApprovalSettings, Reply
from skillhouse.audit import AuditEntry, read_records, verify_log
from skillhouse.audit.entries import row_of, write_gate_lines
from skillhouse.audit.redaction import HIDDEN
from skillhouse.floor import StateError, canonical_json, make_private, structs
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Rule
from skillhouse.tools import WriteGate
from tests.harness import Need, ran
from tests.house.places import make_places
from tests.machines import OWN_MOUNTS
from tests.tools.houses import Person, house_at
from tests.tools.test_gate_approvals import unattended
from tests.tools.test_gate_tiers import policy

pytestmark = pytest.mark.under("owliabot")

ALLOW = Rule(effect=Effect.ALLOW, action="write", pattern="*")
WRITE = ("write", {"path": "a.txt", "content": "the text"})


class Silent:
    """Somebody who is asked and never answers."""

    async def ask(self, request: ApprovalRequest) -> Reply | None:
        return None


def entries(house: Skillhouse) -> list[AuditEntry]:
    return list(read_records(house.audit_log.path, newest_first=False))


def test_a_record_says_who_on_which_task_and_how_a_person_was_asked(tmp_path: Path) -> None:
    with house_at(tmp_path, person=Person([Answer.ONCE])) as house:
        ids: dict[str, Any] = {
            "session_id": "s1",
            "message_id": "m2",
            "call_id": "toolu_1",
            "trace": "t3",
            "model": "openai:gpt-5",
        }
        assert house.call_sync(*WRITE, **ids).status == "ok"
        (entry,) = entries(house)
        for record in (entry.record, entry.outcome):
            assert record is not None
            found = (record.session, record.request, record.call, record.trace, record.model)
            assert found == ("s1", "m2", "toolu_1", "t3", "openai:gpt-5")
            assert record.security_level == "write"
        asked = entry.record.confirmation
        assert asked is not None
        assert (asked.required, asked.channel, asked.approved) == (True, "library", True)
        assert asked.requested_at <= asked.responded_at <= entry.record.ts
        assert asked.approval == entry.record.detail["approval"]


def test_a_call_without_an_id_has_one_of_its_own_in_each_of_its_records(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW) as house:
        for _ in range(2):
            assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync("exec", {"command": "rm -r x"}).status == "denied"
        first, second, refused = entries(house)
    for entry in (first, second):
        assert entry.outcome is not None
        assert entry.outcome.call == entry.record.call
    calls = {entry.record.call for entry in (first, second, refused)}
    assert (len(calls), {len(call) for call in calls}) == (3, {16})


def test_a_record_says_in_which_project_it_was_called(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
        with house_at(place) as house:
            assert house.call_sync("list", {"path": "."}).status == "ok"
            assert house.call_sync("exec", {"command": "rm -r x"}).status == "denied"
            found = entries(house)
        assert [entry.record.kind for entry in found] == ["intent", "refusal"]
        parts = [part for entry in found for part in (entry.record, entry.outcome) if part]
        assert {part.workspace for part in parts} == {str(place / "project")}
        assert len(parts) == 3


def test_records_before_and_after_a_change_of_the_rules_are_told_apart(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync("exec", {"command": "rm -r x"}).status == "denied"
        found = [entry.record.rules_digest for entry in entries(house)]
        outcome = entries(house)[0].outcome
    assert (len(found[0]), len({*found})) == (16, 1)
    assert outcome is not None
    assert outcome.rules_digest == ""
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"
    with house_at(tmp_path, ALLOW, ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"
        same, other = [entry.record.rules_digest for entry in entries(house)][2:]
    assert same == found[0]
    assert other != same


def test_a_record_says_under_which_profile_the_call_was_judged(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync("exec", {"command": "rm -r x"}).status == "denied"
        found = entries(house)
    assert [entry.record.kind for entry in found] == ["intent", "refusal"]
    assert {entry.record.profile for entry in found} == {"owliabot"}
    assert found[0].outcome is not None
    assert found[0].outcome.profile == ""


def test_an_outcome_says_how_many_characters_the_tool_returned(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW) as house:
        (tmp_path / "project/long.txt").write_text("ä" * 50_000)
        assert house.call_sync("read", {"path": "long.txt"}).status == "ok"
        assert house.call_sync("exec", {"command": "rm -r x"}).status == "denied"
        read, refused = entries(house)
    assert read.outcome is not None
    assert (read.record.result_chars, refused.record.result_chars) == (0, 0)
    assert 0 < read.outcome.result_chars <= 50_000
    assert row_of(read)["result_chars"] == read.outcome.result_chars


def test_a_record_says_how_many_bytes_the_arguments_had(tmp_path: Path) -> None:
    given = {"path": "long.txt", "content": "ä" * 50_000}
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync("write", given).status == "ok"
        assert house.call_sync("exec", {"command": "rm -r x"}).status == "denied"
        written, refused = entries(house)
    size = len(canonical_json(given))
    assert written.outcome is not None
    assert written.record.argument_bytes == written.outcome.argument_bytes == size
    assert len(str(written.record.arguments)) < size // 2
    assert refused.record.argument_bytes == len(b'{"command":"rm -r x"}')
    assert row_of(written)["argument_bytes"] == size


class Late(Person):
    """A person who answers 50 ms later."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        is_read = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, is_read.set)
        await is_read.wait()
        return await super().ask(request)


def test_an_outcome_says_how_long_the_call_waited_before_it_ran(tmp_path: Path) -> None:
    with house_at(tmp_path, person=Late([Answer.ONCE, Answer.NO])) as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync(*WRITE).status == "denied"
        written, refused = entries(house)
    assert written.outcome is not None
    assert (written.record.waited_ms, refused.record.waited_ms) == (0, 0)
    assert written.outcome.waited_ms >= 50
    assert row_of(written)["waited_ms"] == written.outcome.waited_ms


def test_a_failure_is_told_as_an_error(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        (tmp_path / "project/b.bin").write_bytes(b"\xff\xfe")
        told = house.call_sync("read", {"path": "b.bin"})
        (entry,) = entries(house)
        assert entry.outcome is not None
        assert (entry.status, entry.outcome.error) == ("error", told.content[:200])


@pytest.mark.req("S000-121", "S000-122", "S000-123", "S000-124")
def test_the_log_hides_secret_keys_at_every_depth_and_keeps_addresses(tmp_path: Path) -> None:
    @tool(level="read")
    def pay(details: dict[str, Any]) -> str:
        """Pay."""
        return "paid"

    address, transaction = "0x" + "aB" * 20, "0x" + "0f" * 32
    keys = (
        "privateKey private_key seed mnemonic secret password PASSWORD apiKey api_key Token "
        "authorization COOKIE credentials"
    ).split()
    open_values = {"to": address, "txHash": transaction, "author": "me", "text": "x" * 200}
    details = {
        **open_values,
        "long": "y" * 201,
        **{key: f"SECRET-{key}" for key in keys},
        "deep": [{"list": [{"apikey": ["SECRET"], "to": address, "long": "z" * 999}]}],
    }
    with Skillhouse(configured(make_places(tmp_path)), tools=[pay]) as house:
        assert house.call_sync("pay", {"details": details}).content == "paid"
        (entry,) = entries(house)
        assert "SECRET" not in house.audit_log.path.read_text()
        assert entry.record.arguments["details"] == {
            **open_values,
            "long": "y" * 50 + "...[truncated]",
            **dict.fromkeys(keys, HIDDEN),
            "deep": [
                {"list": [{"apikey": HIDDEN, "to": address, "long": "z" * 50 + "...[truncated]"}]}
            ],
        }


@pytest.mark.slow
@pytest.mark.req("S000-83", "S000-84")
def test_every_verdict_of_the_write_gate_has_a_line_of_the_published_form(tmp_path: Path) -> None:
    listed = WriteGate(enabled=True, allow_users=("local",))
    off = WriteGate(enabled=True, allow_users=("local",), confirmation=False)
    quick = ApprovalSettings(wait_seconds=0.1, unattended="deny")
    houses: list[tuple[dict[str, Any], str, str]] = [
        ({"channel": Person([Answer.ONCE])}, "local", "approved"),
        ({"channel": Person([Answer.NO])}, "local", "denied"),
        ({"channel": Silent(), "approvals": quick}, "local", "timeout"),
        ({}, "robin", "not_in_allowlist"),
        ({"write_gate": off}, "local", "confirmation_disabled_allow"),
    ]
    for number, (values, user, result) in enumerate(houses):
        base = tmp_path / str(number)
        base.mkdir()
        with unattended(base, **{"write_gate": listed, **values}) as house:
            house.call_sync(*WRITE, user=user, session_id="s1")
            (line,) = map(json.loads, write_gate_lines(entries(house)))
            assert line.pop("ts").endswith("Z")
            waited = [a.closed_ms - a.request.opened_ms for a in house.approvals.latest()]
            assert [line.pop("durationMs")] == (waited or [0])
            assert line == {
                "tool": "write",
                "user": user,
                "session": "s1",
                "params": {"path": "a.txt"},
                "result": result,
            }
            if result == "timeout":
                assert waited >= [100]


@pytest.mark.slow
@pytest.mark.req("S000-83")
def test_what_the_write_gate_did_not_judge_has_no_verdict(tmp_path: Path) -> None:
    gate = WriteGate(enabled=True, allow_users=("local",))
    deny = Rule(effect=Effect.DENY, action="write", pattern="*")
    base = tmp_path / "0"
    base.mkdir()
    with unattended(base, write_gate=gate) as house:
        # A look, a question that is still open, and wrong arguments.
        house.call_sync("list", {"path": "."})
        assert house.call_sync(*WRITE).status == "pending"
        house.call_sync("write", {"path": "a.txt", "content": 1})
        assert list(write_gate_lines(entries(house))) == []
        (asked,) = house.approvals.pending()
        house.approvals.answer(
            asked.id, Answer.ONCE, by="local", channel="cli", nonce=asked.request.nonce
        )
        assert house.call_sync(*WRITE).status == "ok"
        (line,) = map(json.loads, write_gate_lines(entries(house)))
        assert line["result"] == "approved"
    for number, (rule, found) in enumerate(((deny, gate), (ALLOW, WriteGate()))):
        base = tmp_path / f"without-{number}"
        base.mkdir()
        with unattended(base, rule, write_gate=found) as house:
            house.call_sync(*WRITE)
            assert len(entries(house)) == 1
            assert list(write_gate_lines(entries(house))) == []


@pytest.mark.slow
def test_a_standing_approval_is_the_write_gates_approval_at_once(tmp_path: Path) -> None:
    gate = WriteGate(enabled=True, allow_users=("local",))
    with unattended(tmp_path, write_gate=gate, channel=Person([Answer.SESSION])) as house:
        for _ in range(2):
            assert house.call_sync(*WRITE).status == "ok"
        lines = list(map(json.loads, write_gate_lines(entries(house))))
    assert [line["result"] for line in lines] == ["approved", "approved"]
    assert lines[1]["durationMs"] == 0


def test_a_path_off_the_list_is_denied_in_the_published_words(tmp_path: Path) -> None:
    gate = WriteGate(enabled=True, allow_users=("local",), allow_paths=("docs/",))
    with unattended(tmp_path, write_gate=gate) as house:
        assert "path_not_allowed" in house.call_sync(*WRITE).content
        (line,) = map(json.loads, write_gate_lines(entries(house)))
    assert (line["result"], line["durationMs"]) == ("denied", 0)


@pytest.mark.slow
@pytest.mark.req("S000-117")
def test_with_the_log_down_only_what_has_no_tier_goes_on(tmp_path: Path) -> None:
    policy(tmp_path, "read: {tier: 3}")
    with house_at(tmp_path, ALLOW) as house:
        (tmp_path / "project/b.txt").write_text("text")
        make_private(house.audit_log.path)
        assert house.call_sync("list", {"path": "."}).status == "ok"
        # Even a read that the policy gives a tier to, and whose record need not be durable.
        for call in (WRITE, ("read", {"path": "b.txt"})):
            told = house.call_sync(*call)
            assert (told.status, told.content[:16]) == ("denied", "nothing was done")
        assert not (tmp_path / "project/a.txt").exists()
        assert house.audit_log.degraded is not None


@pytest.mark.req("S000-114")
def test_a_log_that_fails_while_a_call_runs_does_not_lose_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with house_at(tmp_path, ALLOW) as house:
        log = house.audit_log
        house.call_sync("list", {"path": "."})
        write = house.tools()[[t.name for t in house.tools()].index("write")]
        plan = write.plan

        def failing(*given: Any) -> Any:
            made = plan(*given)

            async def run() -> Any:
                done = await made.run()
                log.close()
                log.path.rename(log.path.with_suffix(".away"))
                log.path.mkdir()
                return done

            return structs.replace(made, run=run)

        write.plan = failing  # type: ignore[method-assign, assignment]
        assert house.call_sync(*WRITE).status == "ok"
        assert (tmp_path / "project/a.txt").read_text() == "the text"
        assert log.buffered == 1
        told = [line for line in capsys.readouterr().err.splitlines() if '"kind":"outcome"' in line]
        assert len(told) == 1
        log.path.rmdir()
        log.path.with_suffix(".away").rename(log.path)
        house.call_sync("list", {"path": "."})
        assert [(e.record.tool, e.status) for e in entries(house)] == [
            ("list", "ok"),
            ("write", "ok"),
            ("list", "ok"),
        ]
        assert verify_log(log.path).problems == ()


SMALL_DISK = """
import dataclasses
import json
from pathlib import Path
from skillhouse.audit import read_records, verify_log
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.house import Skillhouse, configured
from tests.house.places import make_places
base, state = Path(sys.argv[1]), Path(sys.argv[2])
rules = (Rule(effect=Effect.ALLOW, action="write", pattern="*"),)
places = make_places(base)
(places.start / "a.txt").write_text("text")
house = Skillhouse(configured(places), state_directory=state, cache_directory=None,
                   layers=(Layer(name="user", rules=rules),))
ran, told = 0, ""
while ran < 3_000:
    done = house.call_sync("write", {"path": "b.txt", "content": str(ran)})
    if done.status != "ok":
        told = done.content
        break
    ran += 1
left = (places.start / "b.txt").read_text()
reads = [house.call_sync("read", {"path": "a.txt"}).content for _ in range(20)]
effects = [house.call_sync("write", {"path": "c.txt", "content": "x"}).status for _ in range(3)]
down = house.audit_log.degraded
(state / "filler").unlink()
after = house.call_sync("write", {"path": "d.txt", "content": "x"}).status
calls = [e for e in read_records(house.audit_log.path)]
found = verify_log(house.audit_log.path)
house.close()
print(json.dumps({
    "told": told[:16], "left": left == str(ran - 1), "reads": reads == ["text"] * 20,
    "effects": effects, "c": (places.start / "c.txt").exists(), "code": down and down.code,
    "after": after, "problems": len(found.problems), "unknown": len(found.unknown),
    "writes": sum(e.record.tool == "write" and e.status == "ok" for e in calls) - ran,
    "logged_reads": sum(e.record.tool == "read" and e.status == "ok" for e in calls),
    "again": house.audit_log.degraded is None,
}))
"""


@pytest.mark.slow
@pytest.mark.req("S000-113", "S000-114", "S000-116", "S000-117")
def test_a_full_disk_under_the_house_refuses_effects_and_loses_nothing(
    tmp_path: Path, need: Need
) -> None:
    """The log lies on a disk of 512 KiB; the workspace has room."""
    state = tmp_path / "state"
    state.mkdir()
    disk = f"mount -t tmpfs -o size=512k,mode=700 none {state}"
    mount = f"{disk} && head -c 300k /dev/zero > {state}/filler"
    command = [*OWN_MOUNTS, "sh", "-c"]
    tried = shutil.which("unshare") and subprocess.run(
        [*command, mount], capture_output=True, check=False
    )
    need(tried and tried.returncode == 0, "unshare with a tmpfs of its own")
    script = f"{mount} && exec {sys.executable} - {tmp_path} {state}"
    source = f"import sys\nsys.path[:0] = {[*sys.path, str(Path.cwd())]!r}\n" + SMALL_DISK
    done = ran([*command, script], input=source)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "told": "nothing was done",
        "left": True,
        "reads": True,
        "effects": ["denied"] * 3,
        "c": False,
        "code": "log-unwritable",
        "after": "ok",
        "problems": 0,
        "unknown": 0,
        "writes": 1,
        "logged_reads": 20,
        "again": True,
    }


def test_a_call_whose_question_the_state_cannot_keep_has_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by tests/test_chaos.py: the connection to the state ended while a person was asked."""
    with house_at(tmp_path, person=Person([Answer.ONCE])) as house:

        async def lost(*_: object) -> None:
            raise StateError("the connection ended", tmp_path / "state")

        monkeypatch.setattr(house.approvals, "request_approval", lost)
        found = house.call_sync(*WRITE, call_id="c1")
        assert (found.status, "the connection ended" in found.content) == ("error", True)
        (entry,) = entries(house)
        assert entry.outcome is None
        record = entry.record
        assert (record.kind, record.status, record.call) == ("refusal", "error", "c1")
        assert record.reason == found.content
        assert not (tmp_path / "project/a.txt").exists()

"""Tests of answers that write rules: the call that they were given for runs, and then they hold."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.approval import (
    Answer,
    ApprovalBroker,
    ApprovalState,
    Devices,
    Grant,
    allowed_answers,
)
from skillhouse.audit import AuditError, read_records
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Layer, Rule
from skillhouse.tools import ToolResult
from tests.house.places import make_places
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

LINES = {
    "touch a1": ("touch a1",),
    "touch a1 && mkdir -p a2": ("touch a1", "mkdir -p a2"),
    "mkdir -p b1; mkdir -p b2; touch c": ("mkdir -p b1", "mkdir -p b2", "touch c"),
}
"""Lines of one to three commands, with the rules that a standing approval of each writes."""
ANSWERS = [Answer.ONCE, Answer.SESSION, Answer.PROJECT, Answer.ALWAYS]


def waiting(base: Path, *rules: Rule) -> Skillhouse:
    """Return a house where questions wait to be answered elsewhere."""
    return Skillhouse(configured(make_places(base)), layers=(Layer(name="user", rules=rules),))


def at_once(base: Path, line: str, answer: Answer) -> Iterator[ToolResult]:
    """A person answers while the call waits, as at a terminal."""
    with house_at(base, person=Person([answer])) as house:
        yield house.call_sync("exec", {"command": line})
        yield house.call_sync("exec", {"command": line})


def from_elsewhere(channel: str) -> Callable[[Path, str, Answer], Iterator[ToolResult]]:
    def run(base: Path, line: str, answer: Answer) -> Iterator[ToolResult]:
        """Another process answers, and the agent repeats its call."""
        with waiting(base) as house:
            asked = house.call_sync("exec", {"command": line})
            assert asked.status == "pending", asked
            given(house, asked, answer, channel=channel)
            assert rules(house) == []
            yield house.call_sync("exec", {"command": line})
            yield house.call_sync("exec", {"command": line})

    return run


def given(house: Skillhouse, asked: ToolResult, answer: Answer, *, channel: str = "cli") -> None:
    state = house.config.state_directory
    broker = ApprovalBroker(state)
    found = broker.get(asked.approval_id or "")
    values: dict[str, str] = {"by": "local", "channel": channel, "nonce": found.request.nonce}
    if channel == "device":
        device = Devices(state).pair("phone", user="local")
        values |= {"device": device.id, "device_name": device.name}
    broker.answer(found.id, answer, **values)


def grants_of(house: Skillhouse) -> tuple[Grant, ...]:
    return ApprovalBroker(house.config.state_directory).grant_store.all()


def rules(house: Skillhouse) -> list[str]:
    return [grant.pattern for grant in grants_of(house)]


def logged(house: Skillhouse) -> list[tuple[str, str]]:
    entries = read_records(house.audit_log.path, newest_first=False)
    return [(e.record.kind, e.status) for e in entries if e.record.kind != "outcome"]


ENTRIES = {"terminal": at_once, **{n: from_elsewhere(n) for n in ("cli", "page", "device")}}
TABLE = [
    *((entry, "touch a1 && mkdir -p a2", answer) for entry in ENTRIES for answer in ANSWERS),
    *(("terminal", line, answer) for line in LINES for answer in (Answer.PROJECT, Answer.ALWAYS)),
    *(("cli", line, Answer.ALWAYS) for line in LINES),
]


@pytest.mark.parametrize(("entry", "line", "answer"), list(dict.fromkeys(TABLE)))
def test_each_answer_runs_its_call_once_and_stores_what_was_shown(
    tmp_path: Path, entry: str, line: str, answer: Answer
) -> None:
    first, again = ENTRIES[entry](tmp_path, line, answer)
    assert first.status == "ok", first
    not_covered = "denied" if entry == "terminal" else "pending"
    assert again.status == (not_covered if answer is Answer.ONCE else "ok"), again
    with waiting(tmp_path) as house:
        is_stored = answer in (Answer.PROJECT, Answer.ALWAYS)
        assert rules(house) == (list(LINES[line]) if is_stored else [])
        place = str(tmp_path / "project") if answer is Answer.PROJECT else ""
        assert {grant.place for grant in grants_of(house)} == ({place} if is_stored else set())
        assert ("intent", "ok") in logged(house)
        assert ("refusal", "denied") not in logged(house) or answer is Answer.ONCE


def test_two_calls_that_wait_run_both_though_the_rules_of_one_cover_part_of_the_other(
    tmp_path: Path,
) -> None:
    lines = ["mkdir -p a1", "mkdir -p a1; GREETING=x mkdir -p a1 a3", "A=1 mkdir -p a1"]
    with waiting(tmp_path) as house:
        asked = [house.call_sync("exec", {"command": line}) for line in lines]
        for one in asked:
            answers = allowed_answers(house.approvals.get(one.approval_id or "").request)
            lasting = Answer.ALWAYS if Answer.ALWAYS in answers else Answer.ONCE
            if house.approvals.get(one.approval_id or "").state is ApprovalState.OPEN:
                given(house, one, lasting)
        assert [house.call_sync("exec", {"command": line}).status for line in lines] == ["ok"] * 3


def denying(house: Skillhouse, asked: ToolResult, base: Path, patch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise AuditError("full", "the log is full", house.audit_log.path)

    patch.setattr(type(house.audit_log), "write", full)


def withdrawn(house: Skillhouse, asked: ToolResult, base: Path, patch: pytest.MonkeyPatch) -> None:
    house.approvals.withdraw(asked.approval_id or "", "given up")


def stopped(house: Skillhouse, asked: ToolResult, base: Path, patch: pytest.MonkeyPatch) -> None:
    house.approvals.withdraw_all()


def changed(house: Skillhouse, asked: ToolResult, base: Path, patch: pytest.MonkeyPatch) -> None:
    (base / "project/run.py").write_text("print(2)\n")


@pytest.mark.parametrize("ended", [denying, withdrawn, stopped, changed])
def test_an_answer_whose_call_does_not_begin_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Callable[..., None]
) -> None:
    call = ("exec", {"command": "cat run.py && mkdir -p a2"})
    with waiting(tmp_path) as house:
        (tmp_path / "project").mkdir(exist_ok=True)
        (tmp_path / "project/run.py").write_text("print(1)\n")
        asked = house.call_sync(*call)
        given(house, asked, Answer.ALWAYS)
        ended(house, asked, tmp_path, monkeypatch)
        assert house.call_sync(*call).is_error
        assert rules(house) == []
        assert house.approvals.scripts.all() == ()
    assert not (tmp_path / "project/a2").exists()


def test_rules_that_cannot_be_stored_end_the_call_before_it_does_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ("exec", {"command": "touch a1 && mkdir a2"})
    with waiting(tmp_path) as house:
        given(house, house.call_sync(*call), Answer.ALWAYS)

        def full(*_: object) -> bool:
            raise OSError(errno.ENOSPC, "no space left on device")

        monkeypatch.setattr(ApprovalBroker, "store_rules", full)
        result = house.call_sync(*call)
    assert (result.status, "cannot be stored" in result.content) == ("error", True)
    assert not (tmp_path / "project/a1").exists()

"""Tests of the tier policy at the door: tools/tier_gate.py and house/enforcement.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer, Approval, ApprovalRequest, ApprovalSettings
from skillhouse.audit import AuditRecord, read_records
from skillhouse.floor.structs import replace
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from tests.tools.houses import Person, house_at
from tests.tools.test_gate_approvals import answer, unattended

pytestmark = [pytest.mark.slow, pytest.mark.under("owliabot")]

ALLOW = Rule(effect=Effect.ALLOW, action="write", pattern="*")
WRITE = ("write", {"path": "a.txt", "content": "x"})


def policy(base: Path, tools: str, *more: str) -> None:
    """Write a policy with these entries of tools."""
    file = base / "home/.config/skillhouse/policy.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(['version: "1"', *more, "tools:", f"  {tools}", ""]))


def records(house: Skillhouse) -> list[tuple[str, str, AuditRecord]]:
    entries = read_records(house.audit_log.path, newest_first=False)
    return [(e.record.kind, e.status, e.record) for e in entries]


def test_without_a_policy_calls_have_no_tier(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync(*WRITE, user="robin").status == "ok"
        assert {(r.tier, r.effective_tier) for _, _, r in records(house)} == {("", "")}


@pytest.mark.req("S000-91", "S000-92")
def test_a_level_gives_the_tier_and_the_policy_another(tmp_path: Path) -> None:
    policy(tmp_path, "edit: {tier: 2}")
    (tmp_path / "project").mkdir()
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync("read", {"path": "a.txt"}).status == "ok"
        assert house.call_sync("edit", {"path": "a.txt", "old": "x", "new": "y"}).status == "ok"
        entries = read_records(house.audit_log.path, newest_first=False)
        calls = [e for e in entries if e.record.kind == "intent"]
        found = [(e.record.tool, e.record.tier, e.record.security_level) for e in calls]
        assert found == [("write", "3", "write"), ("read", "none", "read"), ("edit", "2", "write")]
        assert [e.outcome and e.outcome.tier for e in calls] == ["3", "none", "2"]


def test_a_tier_asks_about_what_a_rule_allows_each_time(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 2, requireConfirmation: true}")
    person = Person([Answer.ALWAYS, Answer.ONCE])
    with house_at(tmp_path, ALLOW, person=person) as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync(*WRITE).status == "ok"
        # Nothing that was said lasted, because a lasting yes would do away with the question.
        assert [request.always for request in person.asked] == [(), ()]
        assert person.asked[0].reasons == ("`tools.write` of the tier policy asks",)
        assert house.call_sync(*WRITE).status == "denied"


@pytest.mark.req("S000-54")
def test_a_command_meets_the_list_of_commands_and_a_confirmation_in_place(tmp_path: Path) -> None:
    policy(tmp_path, "exec: {tier: 2, requireConfirmation: true, confirmationChannel: inline}")
    listed = Rule(effect=Effect.ALLOW, action="exec", pattern="git status")
    never = Rule(effect=Effect.DENY, action="exec", pattern="rm *")
    person = Person([Answer.NO] * 2)
    with house_at(tmp_path, listed, never, person=person) as house:
        for command in ("git status", "make all", "rm -rf build"):
            assert house.call_sync("exec", {"command": command}).status == "denied"
        reasons = [request.reasons for request in person.asked]
    # The design asks about no command that is on no list.
    assert reasons == [("`tools.exec` of the tier policy asks",)]


@pytest.mark.req("S000-99", "S000-100")
def test_tier_1_is_decided_on_the_page_whatever_the_policy_says_of_asking(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 1, requireConfirmation: false}")
    person = Person([Answer.ONCE])
    with house_at(tmp_path, ALLOW, person=person) as house:
        asked = house.call_sync(*WRITE)
        assert (
            asked.status,
            "on the skillhouse page or a paired device, then" in asked.content,
        ) == (
            "pending",
            True,
        )
        answer(house, asked.approval_id, Answer.ONCE, channel="page")
        assert house.call_sync(*WRITE).status == "ok"
        run = records(house)[-1][2]
        assert run.confirmation is not None
        assert (run.tier, run.confirmation.channel) == ("1", "page")


def test_a_yes_from_elsewhere_is_none_after_the_call_has_risen_to_the_page(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 2, requireConfirmation: true}")
    with unattended(tmp_path, ALLOW) as house:
        asked = house.call_sync(*WRITE)
        answer(house, asked.approval_id, Answer.ONCE)
    policy(tmp_path, "write: {tier: 1}")
    with unattended(tmp_path, ALLOW) as later:
        risen = later.call_sync(*WRITE)
        assert (risen.status, risen.approval_id != asked.approval_id) == ("pending", True)
        used = later.call_sync(*WRITE, approval_id=asked.approval_id)
        assert (used.status, "not the one that was approved" in used.content) == ("denied", True)


@pytest.mark.req("S000-101")
def test_a_companion_app_that_nobody_paired_is_a_denial(tmp_path: Path) -> None:
    policy(
        tmp_path,
        "write: {tier: 2, requireConfirmation: true, confirmationChannel: companion-app}",
    )
    person = Person([Answer.ONCE])
    with house_at(tmp_path, ALLOW, person=person) as house:
        told = house.call_sync(*WRITE)
        assert (told.status, "cannot be reached now" in told.content) == ("denied", True)
        assert person.asked == []
        assert records(house)[-1][2].detail["tier_reason"] == "companion-app-unreachable"
        house.services.enforcement.devices.pair("phone", user="local")
        asked = house.call_sync(*WRITE)
        assert asked.status == "pending"
        answer(house, asked.approval_id, Answer.ONCE, channel="device")
        assert house.call_sync(*WRITE).status == "ok"


@pytest.mark.req("S000-102")
def test_silence_for_the_policys_time_is_a_denial_and_told_as_a_timeout(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 2, requireConfirmation: true, timeout: 1}")
    settings = ApprovalSettings(wait_seconds=60, unattended="deny")
    with unattended(tmp_path, ALLOW, approvals=settings) as house:
        told = house.call_sync(*WRITE)
        assert (told.status, "no answer came within 1 seconds" in told.content) == ("denied", True)
        assert records(house)[-1][1] == "timeout"


@pytest.mark.req("S000-77", "S000-102")
def test_under_design_000_silence_is_a_denial_without_a_setting(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    short = ApprovalSettings(wait_seconds=0.05)
    with unattended(tmp_path, approvals=short, profile="owliabot") as house:
        said = house.call_sync(*WRITE)
        assert (said.status, "no answer came within" in said.content) == ("denied", True)
        assert records(house)[-1][1] == "timeout"
        assert house.approvals.pending() == ()
    with unattended(tmp_path, approvals=short, profile="default") as house:
        assert house.call_sync(*WRITE).status == "pending"
    chosen = replace(short, unattended="pending")
    with unattended(tmp_path, approvals=chosen, profile="owliabot") as house:
        assert house.call_sync(*WRITE).status == "pending"


@pytest.mark.req("S000-104", "S000-105")
def test_only_successes_use_a_cooldown_up(tmp_path: Path) -> None:
    policy(tmp_path, "edit: {tier: 3, cooldown: {maxPerHour: 2}}")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("0")
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync("edit", {"path": "a.txt", "old": "?", "new": "!"}).status == "error"
        for old, new in (("0", "1"), ("1", "2")):
            change = {"path": "a.txt", "old": old, "new": new}
            assert house.call_sync("edit", change).status == "ok"
        third = house.call_sync("edit", {"path": "a.txt", "old": "2", "new": "3"})
        assert (third.status, third.content) == (
            "denied",
            "denied: Hourly limit exceeded (2 per hour)",
        )
        assert (tmp_path / "project/a.txt").read_text() == "2"
        assert records(house)[-1][2].detail["tier_reason"] == "cooldown-hour"


@pytest.mark.req("S000-98")
def test_three_noes_of_a_person_halt_a_tool_and_silence_does_not(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 2, requireConfirmation: true}")
    with house_at(tmp_path, ALLOW) as nobody:
        for count in range(4):
            told = nobody.call_sync("write", {"path": f"{count}.txt", "content": "x"})
            assert "halt" not in told.content
            assert "in a row" not in told.content
    with house_at(tmp_path, ALLOW, person=Person()) as house:
        for count in range(3):
            call = ("write", {"path": f"{count}-.txt", "content": "x"})
            assert house.call_sync(*call).status == "denied"
        halted = house.call_sync("write", {"path": "b.txt", "content": "x"})
        assert "was denied 3 times in a row and waits" in halted.content


def test_rules_and_the_users_list_come_before_the_tier(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 3, cooldown: {maxPerHour: 1}}")
    deny = Rule(effect=Effect.DENY, action="write", pattern="*/b.txt")
    with house_at(tmp_path, ALLOW, deny) as house:
        for _ in range(3):
            told = house.call_sync("write", {"path": "b.txt", "content": "x"})
            assert told.content.startswith("denied: rule `write */b.txt`")
        # What rules denied used nothing up.
        assert house.call_sync(*WRITE).status == "ok"


@pytest.mark.req("S000-106")
def test_a_tool_is_for_the_users_that_the_policy_lists(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 3, allowedUsers: assignee-only}")
    with house_at(tmp_path, ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"
        told = house.call_sync(*WRITE, user="robin")
        assert (told.status, "for users that it is assigned to" in told.content) == (
            "denied",
            True,
        )
    with unattended(tmp_path, ALLOW, assignees=frozenset({"local", "robin"})) as house:
        assert house.call_sync(*WRITE, user="robin").status == "ok"


def test_a_policy_that_cannot_be_used_leaves_reads_only(tmp_path: Path) -> None:
    policy(tmp_path, "write: {teir: 3}")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("text")
    with house_at(tmp_path, ALLOW) as house:
        told = house.call_sync(*WRITE)
        assert (told.status, "only reads go on" in told.content) == ("denied", True)
        assert house.call_sync("read", {"path": "a.txt"}).content == "text"


@pytest.mark.req("S000-108", "S000-109")
def test_after_a_stop_every_tool_is_refused_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("text")
    calls: list[tuple[str, Mapping[str, Any]]] = [
        WRITE,
        ("read", {"path": "a.txt"}),
        ("list", {"path": "."}),
        ("skill", {"name": "weather"}),
        ("search_skills", {"query": "weather"}),
        ("exec", {"command": "ls"}),
    ]
    with house_at(tmp_path, ALLOW) as house, house_at(tmp_path, ALLOW) as other:
        names = {tool.name for tool in house.tools()}
        other.services.enforcement.stop("local", "a test")
        for name, arguments in calls:
            if name not in names:
                continue
            told = house.call_sync(name, arguments)
            assert (told.status, "everything is stopped: a test" in told.content) == (
                "denied",
                True,
            )
        assert {status for kind, status, _ in records(house) if kind == "refusal"} == {
            "emergency-stopped"
        }
        house.services.enforcement.resume("local", "terminal")
        assert other.call_sync(*WRITE).status == "ok"
    events = [r.tool for kind, _, r in records(house) if kind == "event"]
    assert events == ["system:emergency-stop", "system:emergency-resume"]


def test_a_yes_from_before_a_stop_is_none_after_it(tmp_path: Path) -> None:
    with unattended(tmp_path) as house:
        asked = house.call_sync(*WRITE)
        answer(house, asked.approval_id, Answer.ONCE)
        house.services.enforcement.stop("local", "a test")
        house.services.enforcement.resume("local", "terminal")
        told = house.call_sync(*WRITE, approval_id=asked.approval_id or "")
        assert (told.status, "everything was stopped" in told.content) == ("denied", True)
        assert house.call_sync(*WRITE).approval_id != asked.approval_id


def test_a_change_of_the_policy_is_in_the_log_once(tmp_path: Path) -> None:
    def events() -> list[str]:
        with house_at(tmp_path, ALLOW) as house:
            house.call_sync(*WRITE)
            return [r.reason for kind, _, r in records(house) if kind == "event"]

    assert events() == []
    policy(tmp_path, "write: {tier: 3}")
    assert events() == events() == ["a policy holds"]
    policy(tmp_path, "write: {teir: 3}")
    assert "the policy file cannot be used" in events()[-1]
    (tmp_path / "home/.config/skillhouse/policy.yml").unlink()
    assert events()[-1] == "no policy holds"
    assert len(events()) == 3


@pytest.mark.parametrize("has_policy", [False, True])
def test_a_stop_that_comes_after_the_yes_was_used_is_seen(tmp_path: Path, has_policy: bool) -> None:
    if has_policy:
        policy(tmp_path, "write: {tier: 2, requireConfirmation: true}")

    with unattended(tmp_path) as house:
        asked = house.call_sync(*WRITE)
        answer(house, asked.approval_id, Answer.ONCE)
        redeem = house.approvals.redeem

        def and_then_stopped(*given: str) -> Approval:
            used = redeem(*given)
            house.services.enforcement.stop("local", "a test")
            return used

        house.approvals.redeem = and_then_stopped  # type: ignore[method-assign, assignment]
        told = house.call_sync(*WRITE)
        assert (told.status, "everything is stopped" in told.content) == ("denied", True)
        assert not (tmp_path / "project/a.txt").exists()
        assert records(house)[-1][1] == "emergency-stopped"


def test_a_stop_ends_the_question_that_a_person_thinks_about(tmp_path: Path) -> None:
    class Thinking(Person):
        async def ask(self, request: ApprovalRequest) -> Answer:
            house.services.enforcement.stop("local", "a test")
            return Answer.ONCE

    with house_at(tmp_path, person=Thinking()) as house:
        told = house.call_sync(*WRITE)
        assert (told.status, "everything is stopped" in told.content) == ("denied", True)
        assert not (tmp_path / "project/a.txt").exists()


@pytest.mark.req("S000-54")
def test_a_command_that_is_not_on_the_list_is_refused_without_a_question(tmp_path: Path) -> None:
    listed = Rule(effect=Effect.ALLOW, action="exec", pattern="git status")
    asked = Rule(effect=Effect.ASK, action="exec", pattern="cargo *")
    with house_at(tmp_path, listed, asked, profile="owliabot") as house:
        expected = {
            "git status": "allow",
            "cargo test": "ask",
            # The design's own skill runs it: on the list, and confirmed.
            "curl -s http://wttr.in/Tokyo": "ask",
            "make all": "deny",
            "./curl x": "deny",
            "env make": "deny",
            "curl x | sh": "deny",
            "echo $(make all)": "deny",
        }
        found = {one: house.forecast("exec", {"command": one}).effect for one in expected}
        assert found == expected
        person = Person([Answer.ONCE])
    with house_at(tmp_path, listed, person=person, profile="owliabot") as house:
        result = house.call_sync("exec", {"command": "make all"})
        assert (result.status, person.asked) == ("denied", [])
        assert "`make` is not on the list of commands" in result.content

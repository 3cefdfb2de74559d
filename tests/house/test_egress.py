"""Tests of house/egress.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.audit import AuditError, AuditLog, read_records
from skillhouse.house.network import REQUESTS_MAX, EgressReport
from skillhouse.net import EgressDecision, NetError
from skillhouse.permission import Decision, Effect
from skillhouse.skill import SkillIndex
from skillhouse.tools import PermissionRequest, Session

ALLOWED = EgressDecision(
    allowed=True, method="GET", origin="https://shop.test", addresses=("192.0.2.1", "2001:db8::1")
)
REFUSED = EgressDecision(
    allowed=False, method="CONNECT", origin="https://evil.test", reason="no rule allows it"
)


def reporting(base: Path, effect: Effect) -> tuple[EgressReport, AuditLog]:
    """Return a report under rules that always say the same."""
    log = AuditLog(base / "audit.jsonl", warn=lambda _: None)
    session = Session(
        agent="default",
        user="local",
        channel="library",
        visible=SkillIndex(()),
        skill_need=lambda skill: pytest.fail("no skill is asked for"),
    )

    def decide(need: PermissionRequest, _: Session) -> tuple[Decision, str]:
        return Decision(effect=effect, layer="user", rule_index=0), f"rule {effect}"

    return EgressReport("curl https://shop.test", session, decide, log), log


@pytest.mark.parametrize("effect", list(Effect))
def test_only_what_hosts_and_rules_both_allow_goes_out_and_all_is_recorded(
    tmp_path: Path, effect: Effect
) -> None:
    report, log = reporting(tmp_path, effect)
    if effect is Effect.ALLOW:
        report(ALLOWED)
    else:
        with pytest.raises(NetError, match=f"denied: rule {effect}") as caught:
            report(ALLOWED)
        assert caught.value.refused
    report(REFUSED)
    refused, first = (entry.record for entry in read_records(log.path, limit=5))
    assert (first.arguments, first.status, first.detail) == (
        {"command": "curl https://shop.test"},
        "ok" if effect is Effect.ALLOW else "denied",
        {"event": "egress", "addresses": "192.0.2.1 2001:db8::1"},
    )
    assert first.permissions[0].resource == "GET https://shop.test"
    assert (refused.status, refused.reason) == ("denied", "denied: no rule allows it")
    # No rule is the reason where the list of hosts refused already.
    assert (refused.permissions[0].effect, refused.permissions[0].rule_index) == ("deny", None)


def test_what_the_log_cannot_keep_does_not_go_out(tmp_path: Path) -> None:
    report, log = reporting(tmp_path, Effect.ALLOW)
    log.path.mkdir()
    with pytest.raises(AuditError):
        report(ALLOWED)


@pytest.mark.slow
def test_no_command_can_fill_the_log(tmp_path: Path) -> None:
    report, log = reporting(tmp_path, Effect.ALLOW)
    for _ in range(REQUESTS_MAX):
        report(REFUSED)
    for decision in (ALLOWED, REFUSED):
        with pytest.raises(NetError, match="more than 1000 requests"):
            report(decision)
    found = read_records(log.path, limit=REQUESTS_MAX + 10)
    assert len(found) == REQUESTS_MAX
    assert found[0].record.reason.endswith("(the last of 1000 requests; further ones are refused)")

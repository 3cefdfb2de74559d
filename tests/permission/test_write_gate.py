"""Tests of permission/write_gate.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from skillhouse.permission import (
    Effect,
    Level,
    Seat,
    WriteGate,
    WriteReason,
    WriteVerdict,
    audit_line,
    question_facts,
    refusal_text,
    reply_reason,
    user_notice,
)

MIKA = Seat(user="mika", channel="telegram", conversation="family")
DENIED = WriteVerdict(effect=Effect.DENY, reason=WriteReason.NOT_IN_ALLOWLIST)


@pytest.mark.req("S000-72")
@pytest.mark.parametrize("user", ["mika", "", "*"])
def test_an_empty_list_lets_nobody_write(user: str) -> None:
    assert WriteGate(confirmation=False).judge(user, Level.WRITE) == DENIED


@pytest.mark.req("S000-73")
@pytest.mark.parametrize("user", ["noa", "MIKA", " mika", "mik", "mika\u200b", "*"])
def test_who_is_not_on_the_list_is_refused_before_anybody_is_asked(user: str) -> None:
    gate = WriteGate(allow_list=frozenset({"mika"}))
    assert gate.judge(user, Level.WRITE) == DENIED


@pytest.mark.req("S000-74")
def test_without_confirmation_a_listed_user_passes() -> None:
    gate = WriteGate(allow_list=frozenset({"mika"}), confirmation=False)
    assert gate.judge("mika", Level.WRITE) == WriteVerdict(
        effect=Effect.ALLOW, reason=WriteReason.CONFIRMATION_DISABLED_ALLOW
    )
    assert gate.judge("noa", Level.WRITE) == DENIED


@pytest.mark.req("S000-86")
@pytest.mark.parametrize("level", [Level.WRITE, Level.SIGN, None])
def test_what_writes_or_signs_or_may_do_so_is_asked_about(level: Level | None) -> None:
    gate = WriteGate(allow_list=frozenset({"mika"}))
    assert gate.judge("mika", level) == WriteVerdict(effect=Effect.ASK, timeout_seconds=60)
    assert gate.judge("noa", level) == DENIED


def test_reads_pass_without_a_gate() -> None:
    assert WriteGate().judge("noa", Level.READ) == WriteVerdict(effect=Effect.ALLOW)


@pytest.mark.req("S000-75")
@pytest.mark.parametrize("text", ["yes", "y", "confirm", "YES", " Yes ", "\tConfirm\n"])
def test_three_words_approve(text: str) -> None:
    assert reply_reason(MIKA, MIKA, text) is WriteReason.APPROVED


@pytest.mark.req("S000-76")
@pytest.mark.parametrize(
    "text", ["no", "n", "", "ok", "yes please", "yess", "ｙｅｓ", "y e s", "да", "not yes", "y."]
)
def test_any_other_reply_is_a_no(text: str) -> None:
    assert reply_reason(MIKA, MIKA, text) is WriteReason.DENIED


@pytest.mark.req("S000-78", "S000-79", "S000-103")
@pytest.mark.parametrize(
    "seat",
    [
        Seat(user="noa", channel="telegram", conversation="family"),
        Seat(user="mika", channel="discord", conversation="family"),
        Seat(user="mika", channel="telegram", conversation="work"),
        Seat(user="mika", channel="telegram"),
    ],
)
def test_replies_from_elsewhere_are_no_answer(seat: Seat) -> None:
    assert reply_reason(MIKA, seat, "yes") is None
    assert reply_reason(MIKA, seat, "no") is None


@pytest.mark.req("S000-80")
def test_a_question_shows_tool_file_and_the_beginnings_of_the_texts() -> None:
    arguments = {"path": "a.txt", "old_text": "o" * 200, "new_text": "n" * 201, "mode": "x"}
    assert question_facts("edit", arguments) == (
        ("tool", "edit"),
        ("path", "a.txt"),
        ("old text", "o" * 200),
        ("new text", "n" * 200 + "…"),
    )


@pytest.mark.req("S000-84")
@pytest.mark.parametrize("reason", list(WriteReason))
def test_each_verdict_has_an_audit_line_with_paths_only(reason: WriteReason) -> None:
    line = audit_line(
        "write",
        {"path": "a.txt", "content": "secret", "directory": 3, "token": "t"},
        user="mika",
        session="s1",
        reason=reason,
        now=datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC),
        waited_seconds=1.5,
    )
    assert line == {
        "ts": "2026-01-02T03:04:05.678+00:00",
        "tool": "write",
        "user": "mika",
        "session": "s1",
        "params": {"path": "a.txt"},
        "result": reason.value,
        "durationMs": 1500,
    }


@pytest.mark.req("S000-85")
@pytest.mark.parametrize("reason", [WriteReason.TIMEOUT, WriteReason.NOT_IN_ALLOWLIST])
def test_a_refusal_tells_the_reason(reason: WriteReason) -> None:
    assert refusal_text(reason) == f"Write denied: {reason.value}"


def test_the_user_is_told_of_a_timeout_and_of_a_no() -> None:
    assert [bool(user_notice(reason)) for reason in WriteReason] == [
        False,
        True,
        True,
        False,
        False,
    ]

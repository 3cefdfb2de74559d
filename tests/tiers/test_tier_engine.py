"""Tests of tiers/tier_engine.py: the tier policy with its state."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.floor import StateError, system_clock
from skillhouse.permission import Effect
from skillhouse.tiers import (
    ResumeError,
    StopNotice,
    StopReport,
    Tier,
    TierLevel,
    TierOutcome,
    TierPolicy,
    TierVerdict,
    is_stop_command,
)
from tests.tiers.engine import EVERYWHERE, Desk, policy_of

MINUTE_MS = 60_000
HOUR_MS, DAY_MS = 60 * MINUTE_MS, 24 * 60 * MINUTE_MS
REFUEL, SWAP = "gas__refuel", "dex-swap__swap"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def use(
    desk: Desk, tool: str, outcome: TierOutcome = TierOutcome.SUCCESS, **values: object
) -> TierVerdict:
    """Judge, begin and settle one call."""
    verdict = desk.judge(tool, **values)  # type: ignore[arg-type]
    if verdict.reservation:
        assert desk.tiers.begin(verdict.reservation) == ""
        assert desk.tiers.settle(verdict.reservation, outcome)
    return verdict


@pytest.mark.req("S000-104", "S000-105")
def test_only_successes_use_up_a_cooldown_and_time_gives_it_back(desk: Desk) -> None:
    for outcome in (TierOutcome.FAILED, TierOutcome.TIMEOUT, TierOutcome.WITHDRAWN):
        for _ in range(3):
            assert use(desk, REFUEL, outcome).effect is Effect.ALLOW
    assert use(desk, REFUEL).effect is Effect.ALLOW
    desk.clock.passes(30 * MINUTE_MS)
    assert use(desk, REFUEL).effect is Effect.ALLOW
    assert use(desk, REFUEL).reason == "cooldown-hour"
    # The hour slides: the first success is an hour ago, the second is not.
    desk.clock.passes(30 * MINUTE_MS)
    assert use(desk, REFUEL).effect is Effect.ALLOW
    assert use(desk, REFUEL).reason == "cooldown-hour"
    desk.clock.passes(HOUR_MS)
    assert use(desk, REFUEL).reason == "cooldown-day"
    desk.clock.passes(DAY_MS)
    assert use(desk, REFUEL).effect is Effect.ALLOW


@pytest.mark.req("S000-104")
def test_a_cooldown_is_the_tools_and_not_the_users(tmp_path: Path) -> None:
    desk = Desk(tmp_path, policy_of(assignees=frozenset({"mika", "noa"})))
    use(desk, REFUEL)
    use(desk, REFUEL, user="noa")
    assert use(desk, REFUEL).reason == "cooldown-hour"


@pytest.mark.req("S000-96")
def test_what_was_spent_today_counts_for_its_user_whoever_opens_the_state(tmp_path: Path) -> None:
    desk = Desk(tmp_path, policy_of(assignees=frozenset({"mika", "noa"})))
    for _ in range(5):
        assert use(desk, SWAP, arguments={"amount": "40"}).effect is Effect.ALLOW
    desk.tiers = desk.opened()
    over = desk.judge(SWAP, arguments={"amount": "0.01"})
    assert (over.effect, over.reason) == (Effect.ASK, "daily-limit-exceeded")
    desk.tiers.settle(over.reservation, TierOutcome.TIMEOUT)
    assert desk.judge(SWAP, "noa", arguments={"amount": 40}).effect is Effect.ALLOW
    desk.clock.passes(DAY_MS)
    assert desk.judge(SWAP, arguments={"amount": 40}).effect is Effect.ALLOW


@pytest.mark.parametrize(
    ("outcome", "amount", "left"),
    [
        (TierOutcome.SUCCESS, None, 160),
        (TierOutcome.SUCCESS, Decimal(1), 199),
        (TierOutcome.SUCCESS, Decimal("NaN"), 160),
        (TierOutcome.SUCCESS, Decimal(-50), 160),
        # The word of a tool that it failed gives nothing back.
        (TierOutcome.FAILED, None, 160),
        (TierOutcome.FAILED, Decimal(0), 200),
        (TierOutcome.UNKNOWN, None, 160),
        (TierOutcome.SIGN_FAILED, None, 200),
        (TierOutcome.DENIED, None, 200),
    ],
)
def test_a_settlement_says_what_was_really_spent(
    tmp_path: Path, outcome: TierOutcome, amount: Decimal | None, left: int
) -> None:
    text = "version: '1'\nthresholds: {tier2MaxUsd: 200}\ntools: {pay: {tier: 2}}\n"
    desk = Desk(tmp_path, policy_of(text))
    token = desk.judge("pay", arguments={"amount": 40}).reservation
    desk.tiers.begin(token)
    desk.tiers.settle(token, outcome, amount)
    over = desk.judge("pay", arguments={"amount": left + 1 if left < 200 else "200.01"})
    assert over.effective_tier is Tier.ONE
    desk.tiers.settle(over.reservation, TierOutcome.WITHDRAWN)
    assert desk.judge("pay", arguments={"amount": left}).effect is Effect.ALLOW


def test_a_reservation_is_begun_and_settled_once(desk: Desk) -> None:
    token = desk.judge(REFUEL).reservation
    assert desk.tiers.begin(token) == ""
    assert "not waiting to run" in desk.tiers.begin(token)
    assert desk.tiers.settle(token, TierOutcome.SUCCESS)
    assert not desk.tiers.settle(token, TierOutcome.DENIED)
    assert not desk.tiers.settle("0" * 32, TierOutcome.SUCCESS)
    assert not desk.tiers.settle("", TierOutcome.DENIED)
    assert desk.tiers.begin("") == ""


@pytest.mark.file_state
def test_a_read_reserves_nothing_and_makes_no_file(desk: Desk) -> None:
    verdict = desk.judge("read", level=TierLevel.READ)
    assert (verdict.effect, verdict.reservation) == (Effect.ALLOW, "")
    assert not desk.path.exists()


@pytest.mark.req("S000-98")
def test_three_noes_halt_a_tool_for_a_while_and_a_success_or_the_owner_ends_it(desk: Desk) -> None:
    def refuse(times: int) -> None:
        for _ in range(times):
            use(desk, "exec", TierOutcome.DENIED)

    refuse(2)
    use(desk, "exec")
    desk.clock.passes(MINUTE_MS)
    refuse(3)
    assert use(desk, "exec").reason == "consecutive-denials-halt"
    assert use(desk, REFUEL).effect is Effect.ALLOW
    desk.clock.passes(15 * MINUTE_MS)
    refuse(3)
    assert use(desk, "exec").reason == "consecutive-denials-halt"
    assert desk.tiers.resume("mika", "terminal")
    assert use(desk, "exec").effect is Effect.ASK


@pytest.mark.req("S000-108", "S000-109")
def test_a_stop_does_each_step_and_refuses_everything_until_the_owner_resumes(
    tmp_path: Path,
) -> None:
    told: list[tuple[str, StopNotice]] = []

    def step(name: str) -> tuple[str, Callable[[StopNotice], object]]:
        return name, lambda notice: told.append((name, notice))

    def breaks(_: StopNotice) -> None:
        raise OSError("no keystore")

    steps = [("revoke", breaks), step("audit"), step("notify")]
    desk = Desk(tmp_path, on_stop=steps, on_resume=[step("audit resume")])
    waiting = desk.judge("exec")
    report = desk.tiers.stop("mika", "a test")
    notice = StopNotice(by="mika", reason="a test", action="revoke-all-session-keys")
    assert report == StopReport(
        is_new=True, done=("audit", "notify"), failed=(("revoke", "no keystore"),)
    )
    assert told == [("audit", notice), ("notify", notice)]
    desk.tiers = desk.opened()
    assert desk.tiers.is_stopped
    for tool, level in (("read", TierLevel.READ), ("exec", TierLevel.WRITE), ("x__y", None)):
        assert desk.judge(tool, level=level).reason == "emergency-stopped"
    assert "everything is stopped" in desk.tiers.begin(waiting.reservation)
    assert "everything is stopped" in desk.tiers.begin("")
    for by, channel in (("mika", "telegram"), ("mika", "inline"), ("noa", "terminal"), ("", "")):
        with pytest.raises(ResumeError):
            desk.tiers.resume(by, channel)
    assert desk.tiers.is_stopped
    assert not desk.tiers.stop("noa", "again").is_new
    assert desk.tiers.resume("mika", "page")
    assert told[-1] == (
        "audit resume",
        StopNotice(by="mika", reason="a test (by mika)", action="resume"),
    )
    assert not desk.tiers.resume("mika", "page")
    # What waited for a yes when all stopped is not run by a yes that comes late.
    assert "withdrawn" in desk.tiers.begin(waiting.reservation)
    assert use(desk, "exec").effect is Effect.ASK


def test_a_resume_that_cannot_be_recorded_resumes_nothing(tmp_path: Path) -> None:
    def breaks(_: StopNotice) -> None:
        raise StateError("no log", tmp_path)

    desk = Desk(tmp_path, on_resume=[("audit", breaks)])
    desk.tiers.stop("mika", "a test")
    with pytest.raises(StateError):
        desk.tiers.resume("mika", "terminal")
    assert desk.tiers.is_stopped


@pytest.mark.req("S000-108")
@pytest.mark.parametrize(
    ("text", "channel", "expected"),
    [
        ("/stop", "telegram", True),
        ("  /HALT\n", "telegram", True),
        ("/emergency", "telegram", True),
        ("/stop", "discord", False),
        ("please /stop", "telegram", False),
        ("/stopp", "telegram", False),
        ("", "telegram", False),
    ],
)
def test_a_whole_message_stops(text: str, channel: str, *, expected: bool) -> None:
    assert is_stop_command(text, policy_of(), channel=channel) is expected


@pytest.mark.req("S000-110")
def test_five_failed_signatures_in_ten_minutes_stop_everything(tmp_path: Path) -> None:
    revoked: list[StopNotice] = []
    policy = TierPolicy(assignees=frozenset({"mika"}))
    desk = Desk(tmp_path, policy, on_stop=[("revoke", revoked.append)])
    for _ in range(4):
        use(desk, "sign", TierOutcome.SIGN_FAILED, level=TierLevel.SIGN, session_key="active")
    desk.clock.passes(10 * MINUTE_MS)
    for count in range(5):
        assert not desk.tiers.is_stopped, count
        use(desk, "sign", TierOutcome.SIGN_FAILED, level=TierLevel.SIGN, session_key="active")
    assert desk.tiers.stopped_reason == "5 signatures failed within 10 minutes (by automatic)"
    assert [notice.by for notice in revoked] == ["automatic"]
    desk.tiers.resume("mika", "terminal")
    use(desk, "sign", TierOutcome.SIGN_FAILED, level=TierLevel.SIGN, session_key="active")
    assert not desk.tiers.is_stopped


@pytest.mark.req("S000-110")
def test_500_dollars_in_a_day_stop_everything_and_count_anew_after_a_resume(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, policy_of(assignees=frozenset({"mika", "noa"})))
    use(desk, SWAP, arguments={"amount": "250"})
    use(desk, SWAP, user="noa", arguments={"amount": "249.99"})
    assert not desk.tiers.is_stopped
    use(desk, SWAP, arguments={"amount": "0.01"})
    assert desk.tiers.stopped_reason == "500.00 USD were spent within 24 hours (by automatic)"
    desk.clock.passes(1)
    desk.tiers.resume("mika", "terminal")
    desk.clock.passes(1)
    use(desk, SWAP, arguments={"amount": 499})
    assert not desk.tiers.is_stopped
    use(desk, SWAP, arguments={"amount": 1})
    assert desk.tiers.is_stopped


def test_an_operator_may_switch_the_triggers_off_but_not_the_stop(tmp_path: Path) -> None:
    desk = Desk(tmp_path, policy_of("version: '1'\nemergencyStop: {enabled: false}\n"))
    use(desk, "pay", arguments={"amount": 600})
    assert not desk.tiers.is_stopped
    assert not is_stop_command("/stop", desk.policy, channel="telegram")
    desk.tiers.stop("mika", "by hand")
    assert desk.tiers.is_stopped


@pytest.mark.req("S000-110")
def test_a_companion_app_that_is_away_leaves_reads_only_until_it_is_back(desk: Desk) -> None:
    assert desk.judge(REFUEL).effect is Effect.ALLOW
    desk.tiers.see_companion()
    desk.clock.passes(30 * MINUTE_MS - 1)
    assert desk.judge(SWAP).effect is Effect.ALLOW
    desk.clock.passes(1)
    assert desk.judge(SWAP).reason == "companion-app-offline"
    assert desk.judge("list_files").effect is Effect.ALLOW
    desk.tiers.see_companion()
    assert desk.judge(SWAP).effect is Effect.ALLOW
    desk.clock.passes(DAY_MS)
    desk.tiers.forget_companion()
    assert desk.judge(SWAP).effect is Effect.ALLOW


def test_state_that_cannot_be_read_refuses_all_but_reads_and_stops_this_process(
    tmp_path: Path,
) -> None:
    done: list[str] = []
    desk = Desk(tmp_path, on_stop=[("revoke", lambda notice: done.append(notice.reason))])
    desk.path.write_bytes(b"no database at all, and long enough to have a header" * 40)
    assert desk.judge("exec").reason == "state-unreadable"
    assert desk.judge("read", level=TierLevel.READ).effect is Effect.ALLOW
    assert desk.tiers.begin("", only_reads=True) == ""
    assert "only reads go on" in desk.tiers.begin("")
    assert desk.tiers.is_stopped
    report = desk.tiers.stop("mika", "a test")
    assert (report.is_new, report.done, done) == (True, ("revoke",), ["a test"])
    assert [name for name, _ in report.failed] == ["write to the database"]
    desk.path.unlink()
    # The stop has a file of its own, so it holds though the database could be used again.
    assert desk.judge("read", level=TierLevel.READ).reason == "emergency-stopped"
    assert desk.opened().stopped_reason == "a test (by mika)"
    assert desk.tiers.resume("mika", "terminal")
    assert desk.judge("read", level=TierLevel.READ).effect is Effect.ALLOW


def test_threads_and_a_replaced_file_see_the_same_state(desk: Desk, tmp_path: Path) -> None:
    desk.judge(REFUEL)
    effects: list[Effect] = []

    def work() -> None:
        effects.append(desk.judge(REFUEL).effect)
        effects.append(desk.judge(REFUEL).effect)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert effects == [Effect.ALLOW, Effect.DENY]
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"state.sqlite3{suffix}").unlink(missing_ok=True)
    other = desk.opened()
    other.stop("mika", "in another file")
    assert desk.judge(REFUEL).reason == "emergency-stopped"
    other.close()
    desk.tiers.close()
    assert desk.tiers.is_stopped


def test_what_is_held_at_a_crash_goes_on_to_count(desk: Desk) -> None:
    for _ in range(2):
        token = desk.judge(REFUEL).reservation
        desk.tiers.begin(token)
    desk.tiers = desk.opened()
    assert desk.judge(REFUEL, reachable=EVERYWHERE).reason == "cooldown-hour"
    desk.clock.passes(HOUR_MS)
    assert desk.judge(REFUEL).effect is Effect.ALLOW


@pytest.mark.file_state
def test_a_fault_of_the_open_state_refuses_and_passes_when_it_is_mended(desk: Desk) -> None:
    assert desk.judge(SWAP).effect is Effect.ALLOW
    with closing(sqlite3.connect(desk.path)) as connection:
        connection.execute("ALTER TABLE tier_use RENAME TO gone")
    waiting = desk.judge(SWAP)
    assert (waiting.effect, waiting.reason) == (Effect.DENY, "state-unreadable")
    assert "cannot be used" in desk.tiers.begin("0" * 32)
    with pytest.raises(StateError):
        desk.tiers.settle("0" * 32, TierOutcome.SUCCESS)
    with closing(sqlite3.connect(desk.path)) as connection:
        connection.execute("ALTER TABLE gone RENAME TO tier_use")
    assert desk.judge(SWAP).effect is Effect.ALLOW


def test_a_state_in_a_place_that_cannot_be_looked_at_is_a_stop(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    desk = Desk(tmp_path / "file")
    assert "cannot be looked at" in desk.tiers.stopped_reason
    assert desk.judge("read", level=TierLevel.READ).reason == "emergency-stopped"
    assert desk.judge(SWAP).reason == "state-unreadable"


@pytest.mark.file_state
def test_a_stop_that_could_not_be_written_refuses_effects_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "state")
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(StateError):
        desk.tiers.stop("mika", "a test")
    (tmp_path / "state").unlink()
    assert desk.judge(SWAP).reason == "emergency-stopped"
    assert desk.tiers.resume("mika", "terminal")
    assert desk.judge(SWAP).effect is Effect.ALLOW


def test_where_boots_have_no_name_time_goes_on_within_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = system_clock()
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    second, third = system_clock(), system_clock()
    assert (second.boot == third.boot, second.boot == first.boot) == (True, False)
    assert third.running_ms >= second.running_ms
    assert second.wall_ms >= first.wall_ms


@pytest.mark.slow
@settings(max_examples=20)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(list(TierOutcome)), st.integers(0, 40 * MINUTE_MS)), max_size=25
    )
)
def test_no_hour_and_no_day_has_more_successes_than_the_cooldown_allows(
    steps: list[tuple[TierOutcome, int]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        desk = Desk(Path(directory))
        succeeded: list[int] = []
        for outcome, wait_ms in steps:
            verdict = desk.judge(REFUEL)
            settled = desk.tiers.settle(verdict.reservation, outcome)
            if settled and outcome is TierOutcome.SUCCESS:
                succeeded.append(desk.clock.now.wall_ms)
            desk.clock.passes(wait_ms)
        desk.tiers.close()
    for at in succeeded:
        assert sum(at - HOUR_MS < other <= at for other in succeeded) <= 2
        assert sum(at - DAY_MS < other <= at for other in succeeded) <= 3


@pytest.mark.file_state
def test_a_forecast_reserves_nothing_and_says_what_a_call_would_meet(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.judge(REFUEL, reserves=False).effect is Effect.ALLOW
    assert not desk.path.exists()
    for _ in range(2):
        before = desk.path.read_bytes() if desk.path.exists() else b""
        found = [desk.judge(REFUEL, reserves=False) for _ in range(5)]
        assert {(one.effect, one.reservation) for one in found} == {(Effect.ALLOW, "")}
        assert (desk.path.read_bytes() if before else b"") == before
        use(desk, REFUEL)
    waiting = desk.judge(REFUEL, reserves=False)
    assert waiting == desk.judge(REFUEL)
    assert waiting.reason == "cooldown-hour"
    other = Desk(tmp_path / "file")
    other.path.parent.write_text("")
    assert other.judge(SWAP, reserves=False).reason == "state-unreadable"


def test_a_forecast_knows_a_stop_that_could_not_be_written(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.path.mkdir()
    desk.tiers.stop_directory.write_text("a file where the stop would be written")
    with pytest.raises(StateError):
        desk.tiers.stop("mika", "a test")
    desk.path.rmdir()
    desk.tiers.stop_directory.unlink()
    assert desk.judge(SWAP, reserves=False).reason == "emergency-stopped"

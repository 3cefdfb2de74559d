"""Attacks by a clock that jumps: nothing holds longer than it was given for (E6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.approval import (
    Answer,
    ApprovalBroker,
    ApprovalError,
    Grant,
    GrantStore,
    Issuer,
    Tokens,
)
from skillhouse.floor import SteadyClock
from skillhouse.floor.structs import replace
from skillhouse.house import Skillhouse, configured
from skillhouse.house.policy import Policy
from skillhouse.permission import Effect, Permission
from tests.approval.questions import question
from tests.house.places import make_places

DAY = 86_400.0
NOW = 1_800_000_000.0
GRANT = Grant(
    action="exec",
    pattern="make test",
    place="",
    granted_ms=int(NOW * 1000),
    expires_ms=int((NOW + 30 * DAY) * 1000),
)
WANTED = Permission(action="exec", resource="make test")


class Hand:
    """A clock that a hand sets, beside one that only runs."""

    def __init__(self) -> None:
        self.wall = NOW
        self.running = 1_000.0

    def steady(self) -> Callable[[], float]:
        return SteadyClock(wall=lambda: self.wall, running=lambda: self.running)


def policy_of(house: Skillhouse, clock: Callable[[], float]) -> Policy:
    """Return the policy of a new process that has this clock."""
    return Policy(
        house.config,
        house.policy.profile,
        house.services.trust_store,
        house.services.project,
        clock=clock,
    )


def effect(house: Skillhouse, clock: Callable[[], float]) -> Effect:
    """Return what a new process decides about the granted command by its clock."""
    return policy_of(house, clock).explain(WANTED, default=Effect.ASK).decision.effect


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    house = Skillhouse(configured(make_places(tmp_path)))
    GrantStore(house.config.state_directory).add([GRANT])
    return house


@pytest.mark.parametrize("years", [1, 10, 50])
def test_a_grant_of_the_future_is_not_in_force(house: Skillhouse, years: int) -> None:
    assert effect(house, lambda: NOW) is Effect.ALLOW
    assert effect(house, lambda: NOW - years * 365 * DAY) is Effect.ASK
    assert effect(house, lambda: NOW) is Effect.ALLOW
    # A clock that is corrected by a little costs nothing.
    assert effect(house, lambda: NOW - 60) is Effect.ALLOW


def test_a_grant_that_has_ended_does_not_come_back(house: Skillhouse) -> None:
    assert effect(house, lambda: NOW + 31 * DAY) is Effect.ASK
    assert effect(house, lambda: NOW + 29 * DAY) is Effect.ASK


def test_a_clock_that_is_set_back_again_and_again_extends_no_grant(house: Skillhouse) -> None:
    hand = Hand()
    policy = policy_of(house, hand.steady())
    for day in range(40):
        found = policy.explain(WANTED, default=Effect.ASK).decision.effect
        assert found is (Effect.ALLOW if day < 30 else Effect.ASK), day
        hand.running += DAY
        # Each day the clock shows the first again.
        hand.wall = NOW


def test_a_clock_that_was_ahead_ends_grants_and_keeps_new_ones_out_of_nothing(
    house: Skillhouse,
) -> None:
    assert effect(house, lambda: NOW + 10_000 * DAY) is Effect.ASK
    assert effect(house, lambda: NOW) is Effect.ASK
    GrantStore(house.config.state_directory).add([replace(GRANT)])
    assert effect(house, lambda: NOW) is Effect.ALLOW


def test_an_approval_that_has_ended_is_not_used_by_an_earlier_clock(tmp_path: Path) -> None:
    hand = Hand()
    broker = ApprovalBroker(tmp_path, clock=lambda: hand.wall)
    asked = broker.open(question())
    nonce = asked.request.nonce
    broker.answer(asked.id, Answer.ONCE, by="local", channel="cli", nonce=nonce)
    used = (asked.id, asked.request.content_digest, asked.request.session)
    hand.wall = NOW + 30 * DAY
    with pytest.raises(ApprovalError):
        broker.redeem(*used)
    hand.wall = NOW + 1
    with pytest.raises(ApprovalError):
        broker.redeem(*used)


def test_a_question_that_has_ended_is_not_answered_by_an_earlier_clock(tmp_path: Path) -> None:
    hand = Hand()
    broker = ApprovalBroker(tmp_path, clock=lambda: hand.wall)
    asked = broker.open(question())
    nonce = asked.request.nonce
    for jump in (30 * DAY, 1.0):
        hand.wall = NOW + jump
        with pytest.raises(ApprovalError):
            broker.answer(asked.id, Answer.ONCE, by="local", channel="cli", nonce=nonce)


@pytest.mark.parametrize("jump", [-3_650 * DAY, 3_650 * DAY])
def test_a_token_holds_for_its_minutes_only(tmp_path: Path, jump: float) -> None:
    hand = Hand()
    broker = ApprovalBroker(tmp_path, clock=lambda: hand.wall)
    asked = broker.open(question())
    tokens = Tokens(tmp_path, clock=lambda: hand.wall)
    token = tokens.issue(asked, Issuer(user="local"))
    hand.wall = NOW + jump
    with pytest.raises(ApprovalError, match="has ended"):
        tokens.take(asked, token)


def test_the_clocks_of_a_house_are_steady(house: Skillhouse) -> None:
    assert isinstance(house.services.enforcement.clock, SteadyClock)
    hand = Hand()
    clock = hand.steady()
    seen = []
    for wall, running in (
        (NOW, 1_000.0),
        (NOW - DAY, 1_010.0),
        (0.0, 1_020.0),
        (NOW + 25, 1_021.0),
    ):
        hand.wall, hand.running = wall, running
        seen.append(clock())
    assert seen == [NOW, NOW + 10, NOW + 20, NOW + 25]

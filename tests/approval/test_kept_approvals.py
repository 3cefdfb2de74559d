"""Tests of `keep`: the approval of a call that ended at a question of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import Answer, Approval, ApprovalBroker, ApprovalError, ApprovalState
from tests.approval.questions import begun, broker_at, question
from tests.harness import Clock

OUTER, INNER = question("tool"), question("signature", level="sign")


@dataclass
class Kept:
    """A used approval, and the question inside its call that is open."""

    broker: ApprovalBroker
    clock: Clock
    used: Approval
    inner: Approval

    def keep(self) -> bool:
        return self.broker.keep(self.used, self.inner.id)

    def answer(self, found: Approval, word: Answer = Answer.ONCE) -> None:
        nonce = found.request.nonce
        self.broker.answer(found.id, word, by="local", channel="page", nonce=nonce)

    def redeem(self, content: str = OUTER.content_digest) -> Approval:
        return self.broker.redeem(self.used.id, content, OUTER.session)

    def found(self) -> str:
        """Return the state of what a repeated call finds, or of the new question."""
        outcome = anyio.run(self.broker.request_approval, OUTER)
        assert outcome.approval is not None
        is_new = outcome.approval.id not in (self.used.id, self.inner.id)
        return f"{'new ' if is_new else ''}{outcome.status}"


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock)
    opened = broker.open(OUTER)
    nonce = opened.request.nonce
    broker.answer(opened.id, Answer.ONCE, by="local", channel="page", nonce=nonce)
    used = broker.redeem(opened.id, OUTER.content_digest, OUTER.session)
    return Kept(broker, clock, used, broker.open(INNER))


def test_a_kept_approval_is_used_once_after_its_question_is_approved(kept: Kept) -> None:
    assert kept.keep()
    assert kept.found() == "pending"
    with pytest.raises(ApprovalError):
        kept.redeem()
    kept.answer(kept.inner)
    assert kept.found() == "approved"
    with pytest.raises(ApprovalError, match="not the one that was approved"):
        kept.redeem(INNER.content_digest)
    assert kept.redeem().state is ApprovalState.USED
    with pytest.raises(ApprovalError, match="was used already"):
        kept.redeem()
    assert kept.found() == "new pending"


def test_a_signature_that_another_call_has_used_up_starts_nothing(kept: Kept) -> None:
    kept.keep()
    kept.answer(kept.inner)
    kept.broker.redeem(kept.inner.id, INNER.content_digest, INNER.session)
    with pytest.raises(ApprovalError):
        kept.redeem()
    assert kept.found() == "new pending"


def test_a_denial_is_given_to_the_repeated_call_once(kept: Kept) -> None:
    kept.keep()
    kept.answer(kept.inner, Answer.NO)
    assert [kept.found(), kept.found()] == ["denied", "new pending"]


def test_an_approval_that_was_not_used_or_asked_is_not_kept(kept: Kept) -> None:
    assert not kept.broker.keep(kept.inner, kept.inner.id)
    assert not kept.broker.keep(kept.used, "none")
    kept.broker.withdraw(kept.inner.id, "given up")
    assert not kept.keep()
    assert kept.broker.get(kept.used.id).state is ApprovalState.USED


def test_a_stop_ends_what_is_kept_and_keeps_nothing_more(kept: Kept) -> None:
    kept.keep()
    kept.broker.withdraw_all()
    assert kept.broker.get(kept.used.id).state is ApprovalState.EXPIRED
    assert not kept.keep()


def test_what_was_revoked_while_the_call_ran_is_not_kept(kept: Kept) -> None:
    other = kept.broker.open(question("/w/b.txt"))
    kept.answer(other, Answer.ALWAYS)
    begun(kept.broker, other.id)
    (grant,) = kept.broker.grant_store.all()
    assert kept.broker.revoke(grant.id)
    assert not kept.keep()


def test_what_a_device_gave_is_not_kept_once_it_is_not_paired(tmp_path: Path) -> None:
    """What a device approved before devices were noted may be this one's as well."""
    broker = broker_at(tmp_path)
    opened = broker.open(OUTER)
    nonce = opened.request.nonce
    broker.answer(opened.id, Answer.ONCE, by="local", channel="device", nonce=nonce)
    used = broker.redeem(opened.id, OUTER.content_digest, OUTER.session)
    assert not broker.keep(used, broker.open(INNER).id)


def test_a_kept_approval_lasts_as_long_as_its_question(kept: Kept) -> None:
    kept.clock.now += 3_000
    inner = kept.broker.open(INNER)
    assert kept.broker.keep(kept.used, inner.id)
    kept.clock.now += 3_500
    # An hour after the tool's question, the one about the signature is open.
    kept.answer(inner)
    kept.clock.now += 500
    assert kept.found() == "approved"
    assert kept.redeem().state is ApprovalState.USED


def test_a_kept_approval_ends_with_its_question(kept: Kept) -> None:
    kept.keep()
    kept.clock.now += 3_601
    assert kept.found() == "new pending"
    with pytest.raises(ApprovalError):
        kept.redeem()

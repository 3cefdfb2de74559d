"""Attacks on the signer (reference/security.md, items 80 to 84, and some of our own).

Each first succeeds against a signer of the kind that published designs have, then meets ours.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import cast

import anyio
import pytest
import rlp  # type: ignore[import-untyped]
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eth_account import Account

from skillhouse.floor import system_clock
from skillhouse.floor.structs import replace
from skillhouse.tools import Session
from skillhouse_signer import (
    STATE_FILE,
    KeyInfo,
    KeyKind,
    SignerError,
    SignTool,
    Transaction,
    decode_transaction,
    movement_of,
    new_request,
    terms_from,
    with_approval,
)
from skillhouse_signer.request import Named
from tests.signer.places import (
    ALICE,
    DAY_MS,
    ETH,
    FEE,
    GWEI,
    MALLORY,
    TOKEN,
    Bench,
    FakeClock,
    payment,
    process,
    token_call,
)

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


class NaiveSigner:
    """Counts per calendar day in memory, by the wall clock, in a look and a later write."""

    def __init__(self, clock: FakeClock, *, per_transaction: int, per_day: int) -> None:
        self.clock = clock
        self.per_transaction, self.per_day = per_transaction, per_day
        self.spent: dict[int, int] = defaultdict(int)
        self.meanwhile = threading.Barrier(1)

    def sign(self, transaction: Transaction) -> bool:
        day = self.clock.now.wall_ms // DAY_MS
        spent = self.spent[day]
        if transaction.value > self.per_transaction or spent + transaction.value > self.per_day:
            return False
        self.meanwhile.wait()
        self.spent[day] = spent + transaction.value
        return True


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def signs(bench: Bench, key: KeyInfo, what: Transaction | str) -> str:
    """Return "" when it was signed, else the code of the refusal."""
    try:
        bench.sign(key, what, approved=False)
    except SignerError as error:
        return error.code
    return ""


def ether(thousandths: int) -> int:
    """Return a value that, with the fee, is so many thousandths of a coin."""
    return thousandths * ETH // 1_000 - FEE


def test_80_words_that_contradict_the_transaction(bench: Bench) -> None:
    claim = f"Send 0.01 ETH to {ALICE}, who is your landlord"
    arguments = {
        "key": "main",
        "type": "transaction",
        "data": "0x" + payment(50 * ETH, MALLORY).unsigned().hex(),
        "purpose": claim,
    }
    naive_page = {"request": arguments["purpose"]}
    assert ALICE in naive_page["request"]
    assert MALLORY not in str(naive_page)

    bench.key()
    tool = SignTool(cast("object", None), bench.keystore, bench.sessions, approval=lambda _: "")  # type: ignore[arg-type]
    plan = tool.plan(arguments, cast(Session, None))
    facts = dict(plan.facts)
    assert (facts["to"], facts["amount"]) == (MALLORY, "50 ETH")
    assert plan.claims == (("claim of the skill, not checked", claim),)


def test_81_a_cap_in_a_hundred_small_transfers(bench: Bench) -> None:
    class EachOnly(NaiveSigner):
        def sign(self, transaction: Transaction) -> bool:
            return transaction.value <= self.per_transaction

    naive = EachOnly(bench.clock, per_transaction=ETH // 10, per_day=ETH // 2)
    assert all(naive.sign(payment(ETH // 20, nonce=n)) for n in range(100))

    key = bench.session("eip155:1=0.1/0.5")
    found = [signs(bench, key, payment(ether(50), nonce=n)) for n in range(100)]
    assert found == [""] * 10 + ["limit"] * 90


def test_81_the_last_minutes_of_a_day_and_the_first_of_the_next(bench: Bench) -> None:
    minute = 60_000
    bench.clock.passes(DAY_MS - bench.clock.now.wall_ms % DAY_MS - minute)
    naive = NaiveSigner(bench.clock, per_transaction=ETH, per_day=ETH)
    key = bench.session("eip155:1=1/1")
    assert naive.sign(payment(ETH))
    assert signs(bench, key, payment(ether(1_000))) == ""
    bench.clock.passes(2 * minute)
    assert naive.sign(payment(ETH))
    assert signs(bench, key, payment(ether(1_000))) == "limit"


def test_82_parallel_requests_race_the_cap(tmp_path: Path, bench: Bench) -> None:
    naive = NaiveSigner(bench.clock, per_transaction=ETH, per_day=ETH)
    naive.meanwhile = threading.Barrier(4)
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(naive.sign(payment(ETH)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4

    base = tmp_path / "real"
    found: list[str] = []

    async def house(key: KeyInfo, number: int) -> None:
        with process(base) as signer:
            for count in range(5):
                content = payment(ether(100), nonce=100 * number + count).unsigned()
                request = new_request(key, "transaction", content, system_clock().wall_ms)
                try:
                    await signer.sign(request)
                except SignerError as error:
                    found.append(error.code)
                else:
                    found.append("")

    async def main() -> None:
        with process(base) as signer:
            terms = terms_from(("eip155:1=0.1/0.8",))
            key = await signer.new_session("bot", KeyKind.SECP256K1, terms=terms, seconds=3_600)
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(house, key, number)

    anyio.run(main)
    assert sorted(found) == [""] * 8 + ["limit"] * 12


def test_83_a_restart_resets_the_cap(bench: Bench) -> None:
    naive = NaiveSigner(bench.clock, per_transaction=ETH, per_day=ETH)
    assert naive.sign(payment(ETH))
    assert not naive.sign(payment(ETH))
    naive = NaiveSigner(bench.clock, per_transaction=ETH, per_day=ETH)
    assert naive.sign(payment(ETH))

    key = bench.session("eip155:1=1/1")
    assert signs(bench, key, payment(ether(1_000))) == ""
    bench.restart()
    assert signs(bench, key, payment(ether(1))) == "limit"


def test_83_the_counters_are_deleted(bench: Bench) -> None:
    key = bench.key("main", KeyKind.SECP256K1, "message=1/1")
    bench.sign(key, "hello")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{bench.state}{suffix}").unlink(missing_ok=True)
    bench.restart()
    with pytest.raises(SignerError, match="no counters for this keystore"):
        bench.sign(key, "hello")
    # Only somebody with the password goes on, and the log says so.
    bench.service.accept(Named(name=""))
    bench.sign(key, "hello")
    assert [event.event for event in bench.sessions.events()] == ["accepted"]


def test_83_a_rotated_session_key_has_a_fresh_allowance(bench: Bench) -> None:
    key = bench.session("message=1/1")
    assert signs(bench, key, "hello") == ""
    rotated = bench.service.rotate(Named(name="bot")).keys[0]
    assert signs(bench, rotated, "hello") == "limit"


def test_83_a_key_is_removed_and_imported_again(bench: Bench) -> None:
    for refused in (False, True):
        key = bench.imported("11" * 32, "message=1/1")
        if refused:
            with pytest.raises(SignerError, match="has 0 messages left"):
                bench.sign(key, "hello")
        else:
            bench.sign(key, "hello")
        bench.service.remove(Named(name="in"))


@pytest.mark.parametrize("by_ms", [-DAY_MS, DAY_MS, -HOUR_MS, HOUR_MS, 30 * DAY_MS])
def test_84_the_clock_is_set(bench: Bench, by_ms: int) -> None:
    naive = NaiveSigner(bench.clock, per_transaction=ETH, per_day=ETH)
    key = bench.session("eip155:1=1/1")
    assert naive.sign(payment(ETH))
    assert signs(bench, key, payment(ether(1_000))) == ""
    bench.clock.is_set(by_ms)
    assert naive.sign(payment(ETH)) is (abs(by_ms) >= DAY_MS)
    assert signs(bench, key, payment(ether(1))) == "clock"
    bench.restart()
    assert signs(bench, key, payment(ether(1))) == "clock"
    bench.clock.is_set(-by_ms)
    assert signs(bench, key, payment(ether(1))) == "limit"


def test_84_the_clock_is_led_away_in_small_steps(bench: Bench) -> None:
    class Tolerant(NaiveSigner):
        """Believes steps of up to five minutes, from wherever the last one led."""

        last = 0

        def sign(self, transaction: Transaction) -> bool:
            step = self.clock.now.wall_ms - (self.last or self.clock.now.wall_ms)
            self.last = self.clock.now.wall_ms
            return abs(step) <= 300_000 and super().sign(transaction)

    naive = Tolerant(bench.clock, per_transaction=ETH, per_day=ETH)
    key = bench.key("main", KeyKind.SECP256K1, "message=2/2")
    taken, refused = 0, 0
    for step in range(300):
        taken += naive.sign(payment(ETH))
        if step in (0, 100, 299):
            refused += signs(bench, replace(key), "hello") != ""
        bench.clock.is_set(290_000)
    assert taken == 2
    assert refused == 3  # The first for want of a yes, the others by the clock.
    with pytest.raises(SignerError, match="clock was set forward"):
        bench.sign(key, "hello")


def test_84_the_clock_is_set_across_a_reboot(bench: Bench) -> None:
    key = bench.session("message=1/1")
    assert signs(bench, key, "one") == ""
    # Back: refused at once.
    bench.clock.reboots()
    bench.clock.is_set(-DAY_MS)
    assert signs(bench, key, "two") == "clock"
    # Forward: a machine that was off for a week cannot be told from one whose clock was set, so
    # one allowance goes, as it would have on that day; a session key is over by then.
    bench.clock.is_set(DAY_MS)
    main = bench.key("main", KeyKind.SECP256K1, "message=1/1")
    bench.sign(main, "one")
    bench.clock.reboots()
    bench.clock.is_set(7 * DAY_MS)
    bench.sign(main, "two")
    with pytest.raises(SignerError, match="has 0 messages left"):
        bench.sign(main, "three")
    # Set right again, nothing is signed until that day has come.
    for _ in range(3):
        bench.clock.is_set(-7 * DAY_MS)
        bench.clock.reboots()
        with pytest.raises(SignerError, match="set back by"):
            bench.sign(main, "three")
        bench.clock.is_set(7 * DAY_MS)
    # A person who accepts the clock does not get back what was spent.
    bench.clock.is_set(-7 * DAY_MS)
    bench.service.accept(Named(name=""))
    with pytest.raises(SignerError, match="has 0 messages left"):
        bench.sign(main, "three")


def test_a_yes_for_one_content_is_used_for_another(bench: Bench) -> None:
    key = bench.key()
    shown = new_request(key, "transaction", payment(1).unsigned(), bench.clock.now.wall_ms)

    def naive(approvals: set[str], approval: str, payload: bytes) -> bool:
        return approval in approvals and bool(payload)

    evil = payment(100 * ETH, MALLORY).unsigned()
    assert naive({"yes"}, "yes", evil)

    agreed = with_approval(shown, shown.binding, "yes")
    for swapped in (
        replace(agreed, payload=evil),
        replace(agreed, type="message"),
        replace(agreed, key="other"),
        replace(agreed, id="0" * 32),
        replace(agreed, expires_ms=agreed.expires_ms + DAY_MS),
    ):
        with pytest.raises(SignerError) as caught:
            bench.service.sign(swapped)
        assert caught.value.code == "binding"
    bench.service.sign(agreed)


def test_a_yes_is_used_twice(bench: Bench) -> None:
    key = bench.key()
    request = new_request(key, "transaction", payment().unsigned(), bench.clock.now.wall_ms)
    bench.service.sign(with_approval(request, request.binding, "yes"))
    other = new_request(key, "transaction", payment(2).unsigned(), bench.clock.now.wall_ms)
    for again in (
        with_approval(request, request.binding, "yes"),
        with_approval(request, request.binding, "another"),
        with_approval(other, other.binding, "yes"),
    ):
        bench.restart()
        with pytest.raises(SignerError) as caught:
            bench.service.sign(again)
        assert caught.value.code == "replayed"


def test_limits_are_edited_in_the_file(bench: Bench) -> None:
    key = bench.session("eip155:1=0.1/0.1", recipients=(ALICE,))
    content = json.loads(bench.keystore.read_text())
    naive_limits = content["keys"][0]["terms"]
    naive_limits["limits"][0]["per_day"] = naive_limits["limits"][0]["per_transaction"] = 10**30
    naive_limits["recipients"] = []
    assert json.loads(json.dumps(content))["keys"][0]["terms"]["recipients"] == []

    bench.keystore.write_text(json.dumps(content))
    assert signs(bench, key, payment(ether(100), MALLORY)) == "wrong-password"


def test_money_is_burned_as_fee(bench: Bench) -> None:
    burning = payment(0, gas_limit=30_000_000, gas_price=1_000_000 * GWEI)
    naive = NaiveSigner(bench.clock, per_transaction=ETH, per_day=ETH)
    assert naive.sign(burning)

    key = bench.session("eip155:1=1/1")
    assert burning.fee_bound == 30_000 * ETH
    assert signs(bench, key, burning) == "limit"


def test_a_token_transfer_that_only_looks_like_a_small_one(bench: Bench) -> None:
    def naive_amount(data: bytes) -> int:
        return int.from_bytes(data[-32:])

    padded = token_call("a9059cbb", MALLORY, 10**30, 1)
    assert naive_amount(padded.data) == 1

    key = bench.session("eip155:1=1/1", f"eip155:1/erc20:{TOKEN}=5/5")
    assert signs(bench, key, padded) == "uncountable"
    assert not movement_of(padded).is_countable


def test_a_transaction_for_any_chain() -> None:
    before_eip_155 = rlp.encode([b"", b"\1", b"\1", bytes.fromhex(MALLORY[2:]), b"\1", b""])
    nonce, _, _, to, value, data = rlp.decode(before_eip_155)
    assert (nonce, to.hex(), value, data) == (b"", MALLORY[2:], b"\1", b"")

    with pytest.raises(SignerError, match="valid on any"):
        decode_transaction(before_eip_155)


def test_a_message_that_is_a_transaction_of_another_network(bench: Bench) -> None:
    # A Solana transaction is signed as it is with Ed25519, and starts with a count of signatures.
    transfer = bytes([1, 0, 1, 3]) + bytes(32 * 3)
    secret = Ed25519PrivateKey.generate()
    secret.public_key().verify(secret.sign(transfer), transfer)

    key = bench.key("letters", KeyKind.ED25519)
    request = new_request(key, "message", transfer, bench.clock.now.wall_ms)
    with pytest.raises(SignerError) as caught:
        bench.service.sign(with_approval(request, request.binding, "yes"))
    assert caught.value.code == "unreadable-message"


def test_a_message_that_is_an_ethereum_transaction_is_signed_as_a_message(bench: Bench) -> None:
    key = bench.key()
    text = payment(5, MALLORY).unsigned().hex()
    signed = bench.sign(key, text)
    r, s = (int.from_bytes(signed.signature[at : at + 32]) for at in (0, 32))
    as_transaction = payment(5, MALLORY).signed(signed.signature[64] - 27, r, s)
    assert Account.recover_transaction(as_transaction).lower() != key.id


def test_a_session_key_goes_on_after_the_stop(bench: Bench, tmp_path: Path) -> None:
    key = bench.session("message=9/9")
    assert signs(bench, key, "one") == ""
    bench.sessions.revoke_all("emergency stop")
    bench.restart()
    assert signs(bench, key, "two") == "session-over"
    # Nor does forgetting the revocation help: an unknown session is over too.
    (tmp_path / STATE_FILE).unlink()
    bench.restart()
    assert signs(bench, key, "three") == "counters"
    bench.service.accept(Named(name=""))
    assert signs(bench, key, "three") == "session-over"

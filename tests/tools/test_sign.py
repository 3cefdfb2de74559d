"""Tests of tools/sign.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from eth_account import Account

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.audit import AuditLog, read_records
from skillhouse.floor import Digest
from skillhouse.permission import Decision, Effect, Layer, Permission, Rule, decide
from skillhouse.signer import (
    KEYSTORE_FILE,
    STATE_FILE,
    KeyInfo,
    KeyKind,
    SessionKeys,
    Signature,
    Signer,
    SignRequest,
    Transaction,
    read_vault,
)
from skillhouse.signer.clock import Clock, system_clock
from skillhouse.signer.service import Service
from skillhouse.skill import SkillIndex
from skillhouse.tools import TRANSACTION_PAGE, Gate, Plan, RefusedError, Session, SignTool, ToolCall
from tests.signer.places import ALICE, ETH, MALLORY, TOKEN, Bench, payment, process, token_call
from tests.tools.houses import Person

NOBODY = Session(
    agent="default",
    user="local",
    channel="library",
    visible=SkillIndex(),
    skill_need=lambda _: pytest.fail("no skill is loaded"),
)


@dataclass
class Desk:
    """A sign tool with its signer, and the yeses that a person gave."""

    tool: SignTool
    keys: dict[str, KeyInfo]
    yeses: dict[str, str] = field(default_factory=dict)

    def plan(self, **arguments: Any) -> Plan:
        return self.tool.plan(arguments, NOBODY)


def at_desk(base: Path, work: Callable[[Desk], Awaitable[None]]) -> None:
    """Run `work` with the key `main` and the session key `bot`."""

    bench = Bench(base)
    bench.key()
    bench.session("eip155:1=1/1", "message=1/1")
    anyio.run(work, desk_of(base, SameProcess(bench.service), bench.clock))


def desk_of(base: Path, signer: Signer, clock: Clock) -> Desk:
    yeses: dict[str, str] = {}

    def approval(binding: Digest) -> str:
        return yeses.pop(binding, "")

    tool = SignTool(
        signer,
        base / KEYSTORE_FILE,
        SessionKeys(base / STATE_FILE, clock=clock),
        approval=approval,
        clock=lambda: clock().wall_ms,
    )
    keys = {key.name: key for key in read_vault(base / KEYSTORE_FILE).keys}
    return Desk(tool, keys, yeses)


class SameProcess:
    """A signer without a process of its own; test_process.py has the other."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def sign(self, request: SignRequest) -> Signature:
        return self.service.sign(request)


def raw(transaction: Transaction) -> str:
    return "0x" + transaction.unsigned().hex()


def test_a_plan_shows_what_the_bytes_say_and_binds_it(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        main = desk.keys["main"]
        plan = desk.plan(key="main", type="transaction", data=raw(payment(ETH, MALLORY)))
        assert plan.facts == (
            ("signs with", f"main ({main.id})"),
            ("does", "pays from the account"),
            ("fee at most", "0.000021 ETH"),
            ("amount", "1 ETH"),
            ("to", MALLORY),
            ("chain", "1, its coin is ETH"),
            ("nonce", "0"),
            ("gas", "21000 units, each at most 1000000000 wei"),
            ("claim of the skill, not checked", "none"),
            ("content", plan.binding),
        )
        assert [(need.permission, need.default) for need in plan.needs] == [
            (
                Permission(action="sign", resource=f"main transaction eip155:1 send {MALLORY}"),
                Effect.ASK,
            )
        ]
        assert plan.page == TRANSACTION_PAGE
        assert plan.spends == (("eip155:1", Decimal("1.000021")),)

    at_desk(tmp_path, work)


def test_a_session_keys_plan_may_be_decided_by_a_policy(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        plan = desk.plan(key="bot", type="transaction", data=raw(payment(ETH // 2)))
        assert plan.page == ""
        assert ("limit", "1 ETH at once, 1 ETH in 24 hours") in plan.facts
        assert (await plan.run()).data["key"] == desk.keys["bot"].id

    at_desk(tmp_path, work)


def test_a_main_key_signs_after_a_persons_yes_and_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        plan = desk.plan(key="main", type="transaction", data=raw(payment()))
        with pytest.raises(RefusedError, match="only what a person agreed to"):
            await plan.run()
        desk.yeses[plan.binding] = "yes-1"
        output = await plan.run()
        sender: str = Account.recover_transaction(output.data["transaction"])
        assert sender.lower() == desk.keys["main"].id
        assert output.detail["tx_hash"] == output.data["hash"]
        with pytest.raises(RefusedError, match="only what a person agreed to"):
            await plan.run()

    at_desk(tmp_path, work)


def test_a_yes_to_one_call_is_none_to_another(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        shown = desk.plan(key="main", type="message", data="pay Alice")
        same = desk.plan(key="main", type="message", data="pay Alice")
        assert shown.binding != same.binding
        desk.yeses[shown.binding] = "yes-1"
        with pytest.raises(RefusedError, match="only what a person agreed to"):
            await same.run()

    at_desk(tmp_path, work)


def test_a_call_that_is_not_known_says_that_its_amount_is_unknown(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        plan = desk.plan(key="main", type="transaction", data=raw(token_call("d0e30db0")))
        facts = dict(plan.facts)
        assert plan.spends is None
        assert "AMOUNT UNKNOWN" in facts
        assert facts["calldata"] == "4 bytes: 0xd0e30db0"
        assert facts["contract"] == TOKEN

    at_desk(tmp_path, work)


def test_an_unlimited_allowance_is_shown_as_one(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        call = token_call("095ea7b3", MALLORY, 2**256 - 1)
        facts = dict(desk.plan(key="main", type="transaction", data=raw(call)).facts)
        assert facts["amount"] == f"UNLIMITED of token {TOKEN} on chain 1"
        assert (facts["to"], facts["does"]) == (
            MALLORY,
            (
                "lets somebody take tokens later (ERC-20 approve; "
                "of a contract for single pieces, the number says which piece)"
            ),
        )

    at_desk(tmp_path, work)


def test_a_transaction_can_be_given_by_its_fields(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        fields = {
            "chain_id": 1,
            "nonce": 0,
            "to": ALICE,
            "value": str(ETH),
            "gas_limit": 21_000,
            "max_fee_per_gas": 10**9,
            "max_priority_fee_per_gas": 1,
        }
        by_fields = desk.plan(key="main", type="transaction", transaction=fields)
        by_bytes = desk.plan(key="main", type="transaction", data=raw(payment()))
        assert by_fields.facts[:-1] == by_bytes.facts[:-1]

    at_desk(tmp_path, work)


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"key": "mian", "type": "message", "data": "x"}, "no key `mian`; there are `main`"),
    ({"key": "main", "type": "message"}, "expected a message of 1"),
    ({"key": "main", "type": "message", "data": "a\u202eb"}, "hidden characters"),
    ({"key": "main", "type": "message", "data": "x", "transaction": {}}, "a text in `data`"),
    ({"key": "main", "type": "transaction"}, "either `data` or `transaction`"),
    ({"key": "main", "type": "transaction", "data": "hello"}, "as hex digits"),
    ({"key": "main", "type": "transaction", "data": "0xc0"}, "cannot be read"),
)


def test_what_cannot_be_signed_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for arguments, message in REFUSED:
            with pytest.raises(RefusedError, match=message):
                desk.plan(**arguments)

    at_desk(tmp_path, work)


def test_a_session_key_that_ended_is_refused_early_and_leads_to_a_person(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        SessionKeys(tmp_path / STATE_FILE).revoke_all("emergency stop")
        with pytest.raises(RefusedError, match="revoked; sign with a key that a person confirms"):
            desk.plan(key="bot", type="message", data="x")

    at_desk(tmp_path, work)


def gate_of(desk: Desk, base: Path, person: Person, *rules: Rule) -> Gate:
    layers = (Layer(name="user", rules=rules),)

    def decided(
        permission: Permission, default: Effect, why: str, agent: str, digest: str
    ) -> tuple[Decision, str]:
        return decide(layers, permission, default=default), why

    return Gate(
        [desk.tool],
        decide=decided,
        remember=lambda _: None,
        channel=person,
        audit=AuditLog(base / "audit.jsonl"),
    )


class AtThePage(Person):
    """A person at a transaction page: the yes is kept under the content that was shown."""

    def __init__(self, desk: Desk) -> None:
        super().__init__([Answer.ONCE])
        self.desk = desk

    async def ask(self, request: ApprovalRequest) -> Answer:
        answer = await super().ask(request)
        if answer is Answer.ONCE:
            self.desk.yeses[dict(request.facts)["content"]] = request.id
        return answer


@pytest.mark.req("S000-86")
def test_through_the_gate_a_person_sees_the_truth_then_the_signer_signs(tmp_path: Path) -> None:
    async def main() -> None:
        with process(tmp_path) as signer:
            await signer.new_key("main", KeyKind.SECP256K1)
            desk = desk_of(tmp_path, signer, system_clock)
            person = AtThePage(desk)
            gate = gate_of(desk, tmp_path, person)
            call = ToolCall(
                name="sign",
                arguments={"key": "main", "type": "transaction", "data": raw(payment())},
            )
            assert (await gate.call(call, NOBODY)).status == "ok"
            assert dict(person.asked[0].facts)["to"] == ALICE
            assert (await gate.call(call, NOBODY)).status == "denied"

    anyio.run(main)
    kinds = [
        (entry.record.kind, entry.status)
        for entry in read_records(tmp_path / "audit.jsonl", newest_first=False)
    ]
    assert kinds == [("intent", "ok"), ("refusal", "denied")]


def test_a_rule_that_allows_is_no_persons_yes(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        person = Person()
        rule = Rule(effect=Effect.ALLOW, action="sign", pattern="*")
        gate = gate_of(desk, tmp_path, person, rule)
        for key, status in (("main", "error"), ("bot", "ok")):
            arguments = {"key": key, "type": "message", "data": "hello"}
            result = await gate.call(ToolCall(name="sign", arguments=arguments), NOBODY)
            assert result.status == status
        assert person.asked == []

    at_desk(tmp_path, work)

"""Tests of sign_tool.py of the signer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from eth_account import Account

from skillhouse.approval import (
    Answer,
    ApprovalBroker,
    ApprovalRequest,
    Reply,
)
from skillhouse.audit import AuditLog, read_records
from skillhouse.floor import Clock, Digest, system_clock
from skillhouse.floor.structs import replace
from skillhouse.permission import Decision, Effect, Layer, Permission, Rule, decide
from skillhouse.skill import SkillIndex
from skillhouse.tools import (
    TRANSACTION_PAGE,
    Gate,
    PermissionRequest,
    Plan,
    RedeemedApprovals,
    RefusedError,
    Session,
    ToolCall,
)
from skillhouse.tools.asker import standing_patterns
from skillhouse_signer import (
    KEYSTORE_FILE,
    STATE_FILE,
    KeyInfo,
    KeyKind,
    SessionKeys,
    Signature,
    Signer,
    SignRequest,
    SignTool,
    Transaction,
    read_key_records,
)
from skillhouse_signer.service import Service
from tests.signer.places import ALICE, ETH, MALLORY, TOKEN, Bench, payment, process, token_call
from tests.tools.gates import gate_to
from tests.tools.houses import Person

# The signer counts in a file, and refuses a state on a server (0531).
pytestmark = [pytest.mark.slow, pytest.mark.file_state]

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
    agreed: RedeemedApprovals = field(default_factory=RedeemedApprovals)

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
    agreed = RedeemedApprovals()

    def approval(binding: Digest) -> str:
        return agreed.take(binding) or yeses.pop(binding, "")

    tool = SignTool(
        signer,
        base / KEYSTORE_FILE,
        SessionKeys(base / STATE_FILE, clock=clock),
        approval=approval,
        clock=lambda: clock().wall_ms,
    )
    keys = {key.name: key for key in read_key_records(base / KEYSTORE_FILE).keys}
    return Desk(tool, keys, yeses, agreed)


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
            ("priority fee", "at most 1 wei for each unit"),
            ("content", plan.binding),
        )
        assert plan.claims == (("claim of the skill, not checked", "none"),)
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


def test_a_yes_to_one_content_is_none_to_another(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        shown = desk.plan(key="main", type="message", data="pay Alice")
        again = desk.plan(key="main", type="message", data="pay Alice")
        other = desk.plan(key="main", type="message", data="pay Mallory")
        assert shown.binding == again.binding != other.binding
        desk.yeses[shown.binding] = "yes-1"
        with pytest.raises(RefusedError, match="only what a person agreed to"):
            await other.run()
        assert not (await again.run()).failed

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


def test_an_access_list_and_a_priority_fee_are_among_the_facts(tmp_path: Path) -> None:
    entries = tuple((bytes([n]) * 20, (bytes(32),) * n) for n in range(1, 12))

    async def work(desk: Desk) -> None:
        plain = payment(ETH, MALLORY)
        sent = replace(plain, type=2, priority_fee=7, access_list=entries)
        plan = desk.plan(key="main", type="transaction", data=raw(sent))
        facts = dict(plan.facts)
        assert facts["priority fee"] == "at most 7 wei for each unit"
        assert facts["access list"].startswith("11 entries with 66 storage keys, paid for as gas: ")
        assert f"0x{'01' * 20}, 0x{'02' * 20}" in facts["access list"]
        assert facts["access list"].endswith(" and 3 more addresses")
        bare = desk.plan(key="main", type="transaction", data=raw(replace(sent, access_list=())))
        assert "access list" not in dict(bare.facts)

    at_desk(tmp_path, work)


def test_an_unlimited_allowance_is_shown_as_one(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        call = token_call("095ea7b3", MALLORY, 2**256 - 1)
        facts = dict(desk.plan(key="main", type="transaction", data=raw(call)).facts)
        assert facts["amount"] == f"UNLIMITED of token {TOKEN} on chain 1"
        assert (facts["to"], facts["does"]) == (
            MALLORY,
            (
                "allows another account to take tokens later (ERC-20 approve; "
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


def gate_of(desk: Desk, base: Path, channel: Any, *rules: Rule) -> Gate:
    layers = (Layer(name="user", rules=rules),)

    def decided(need: PermissionRequest, _: Session) -> tuple[Decision, str]:
        return decide(layers, need.permission, default=need.default), need.why

    return gate_to(
        desk.tool,
        decide=decided,
        approvals=ApprovalBroker(base, channels=[channel]),
        audit=AuditLog(base / "audit.jsonl"),
        workspace_root=str(base),
        redeemed=desk.agreed,
    )


class AtThePage:
    """A person at the transaction page, who says yes to the first question and no to others."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Reply:
        self.asked.append(request)
        answer = Answer.ONCE if len(self.asked) == 1 else Answer.NO
        return Reply(answer=answer, by="local", channel="page")


@pytest.mark.req("S000-86")
async def test_through_the_gate_a_person_sees_the_truth_then_the_signer_signs(
    tmp_path: Path,
) -> None:
    with process(tmp_path) as signer:
        await signer.new_key("main", KeyKind.SECP256K1)
        desk = desk_of(tmp_path, signer, system_clock)
        person = AtThePage()
        gate = gate_of(desk, tmp_path, person)
        arguments = {"key": "main", "type": "transaction", "data": raw(payment())}
        call = ToolCall(name="sign", arguments=arguments)
        assert (await gate.call(call, NOBODY)).status == "ok"
        (asked,) = person.asked
        assert dict(asked.found)["to"] == ALICE
        # What was decoded here is apart from what the model wrote.
        assert dict(asked.sent)["data"] == raw(payment())
        assert "data" not in dict(asked.found)
        assert (asked.always, asked.patterns, asked.out_of_band_only) == ((), (), True)
        assert dict(asked.found)["content"] == json.loads(asked.content)["binding"]
        assert (await gate.call(call, NOBODY)).status == "denied"
    entries = list(read_records(tmp_path / "audit.jsonl", newest_first=False))
    assert [(e.record.kind, e.status) for e in entries] == [("intent", "ok"), ("refusal", "denied")]
    signed = entries[0].record
    assert signed.security_level == "sign"
    assert signed.confirmation is not None
    assert (signed.confirmation.approved, signed.confirmation.channel) == (True, "page")


def test_a_rule_that_allows_is_no_persons_yes(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        person = Person([Answer.ONCE, Answer.ALWAYS])
        rule = Rule(effect=Effect.ALLOW, action="sign", pattern="*")
        gate = gate_of(desk, tmp_path, person, rule)
        for key, status in (("main", "pending"), ("bot", "ok")):
            arguments = {"key": key, "type": "message", "data": "hello"}
            result = await gate.call(ToolCall(name="sign", arguments=arguments), NOBODY)
            assert result.status == status
        # The caller's own channel was asked about the main key, and its yes did not count.
        assert [request.out_of_band_only for request in person.asked] == [True]

    at_desk(tmp_path, work)


def test_no_yes_to_a_signature_lasts(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        plan = desk.plan(key="bot", type="message", data="hello")
        (need,) = plan.needs
        assert need.effective_level == "sign"
        assert standing_patterns([need], "/w") == ()

    at_desk(tmp_path, work)

"""Tests of the tool `sign` in a house: the signer, the page, the tiers and the stop together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer, ApprovalError, ApprovalSettings
from skillhouse.audit import read_records
from skillhouse.floor import ConfigError, make_private
from skillhouse.house import Skillhouse, configured
from skillhouse.house.config import SignerSettings
from skillhouse.permission import Effect, Layer, Rule
from skillhouse_signer import KEYSTORE_FILE, STATE_FILE, KeyKind, terms_from
from tests.house.places import make_places
from tests.signer.places import ALICE, PASSWORD, payment, process
from tests.tools.test_gate_approvals import answer
from tests.tools.test_gate_tiers import policy

# The signer counts in a file, and refuses a state on a server (0531).
pytestmark = [pytest.mark.under("owliabot"), pytest.mark.file_state]

ALLOW = Rule(effect=Effect.ALLOW, action="sign", pattern="*")
VARIABLE = "KEYSTORE_WORD"


def house_with_keys(base: Path, *rules: Rule) -> Skillhouse:
    """Return a house with the key `main` and the session key `bot`, whose questions wait."""
    places = make_places(base, {VARIABLE: PASSWORD})
    config = configured(places)

    async def make() -> None:
        make_private(config.state_directory)
        with process(config.state_directory) as signer:
            await signer.new_key("main", KeyKind.SECP256K1)
            terms = terms_from(("message=9/9", "eip155:1=1/1"))
            await signer.new_session("bot", KeyKind.SECP256K1, terms=terms, seconds=3_600)

    if not (config.state_directory / KEYSTORE_FILE).exists():
        anyio.run(make)
    return Skillhouse(
        config,
        layers=(Layer(name="user", rules=rules),),
        signer=SignerSettings(password=f"env:{VARIABLE}"),
        approvals=ApprovalSettings(unattended="pending"),
    )


def message(key: str, text: str = "hello") -> dict[str, Any]:
    return {"key": key, "type": "message", "data": text}


def test_without_keys_there_is_no_tool_that_signs(tmp_path: Path) -> None:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        assert "sign" not in {tool.name for tool in house.tools()}


@pytest.mark.slow
@pytest.mark.req("S000-86")
def test_a_signature_waits_for_the_page_and_is_made_once(tmp_path: Path) -> None:
    with house_with_keys(tmp_path, ALLOW) as house:
        call = {
            "key": "main",
            "type": "transaction",
            "data": "0x" + payment().unsigned().hex(),
            "purpose": "a gift",
        }
        asked = house.call_sync("sign", call)
        assert asked.status == "pending"
        # Nothing was started for a question.
        assert house.services.enforcement.signer.pid is None
        request = house.approvals.get(asked.approval_id or "").request
        assert dict(request.found)["to"] == ALICE
        assert request.always == ()
        with pytest.raises(ApprovalError, match="transaction page or a paired device only"):
            answer(house, asked.approval_id, Answer.ONCE)
        answer(house, asked.approval_id, Answer.ONCE, channel="page")
        other = house.call_sync("sign", {**call, "data": "0x" + payment(7).unsigned().hex()})
        assert other.status == "pending"
        signed = house.call_sync("sign", call)
        assert signed.status == "ok"
        assert signed.data is not None
        from eth_account import Account  # noqa: PLC0415 - half a second, for whoever reads this.

        sender: str = Account.recover_transaction(signed.data["transaction"])
        assert sender.lower() == signed.data["key"]
        assert house.call_sync("sign", call).status == "pending"
        signer = house.services.enforcement.signer
        assert signer.pid is not None
    assert signer.pid is None


@pytest.mark.slow
def test_a_rule_lets_a_session_key_sign_and_no_log_holds_the_password(tmp_path: Path) -> None:
    with house_with_keys(tmp_path, ALLOW) as house:
        assert house.call_sync("sign", message("bot", f"my {PASSWORD}")).status == "ok"
        (entry,) = read_records(house.audit_log.path)
        assert entry.record.session_key.startswith("0x")
        assert PASSWORD not in house.audit_log.path.read_text()


@pytest.mark.slow
@pytest.mark.req("S000-97", "S000-108")
def test_a_stop_ends_the_session_keys_and_then_a_person_signs(tmp_path: Path) -> None:
    policy(tmp_path, "sign: {tier: 2, escalateAbove: {eth: 1}}")
    with house_with_keys(tmp_path, ALLOW) as house:
        assert house.call_sync("sign", message("bot")).status == "ok"
        report = house.services.enforcement.stop("local", "a test")
        assert (report.done[0], report.failed) == ("end the session keys", ())
        assert house.call_sync("sign", message("bot")).status == "denied"
        house.services.enforcement.resume("local", "terminal")
        ended = house.call_sync("sign", message("bot"))
        assert "sign with a key that a person confirms" in ended.content
        risen = house.call_sync("sign", message("main"))
        assert risen.status == "pending"
        (entry, *_) = read_records(house.audit_log.path)
        assert (entry.record.tier, entry.record.effective_tier) == ("2", "1")
        assert (entry.status, entry.record.detail["tier_reason"]) == (
            "escalated",
            "session-key-unavailable",
        )


@pytest.mark.slow
def test_what_a_session_key_spends_is_known_to_the_tiers_by_what_was_decoded(
    tmp_path: Path,
) -> None:
    policy(tmp_path, "sign: {tier: 2, escalateAbove: {eth: 0.5}}")
    with house_with_keys(tmp_path, ALLOW) as house:
        for value, status in ((10**17, "ok"), (6 * 10**17, "pending")):
            data = "0x" + payment(value).unsigned().hex()
            told = house.call_sync("sign", {"key": "bot", "type": "transaction", "data": data})
            assert told.status == status
        # It is asked about on the page, and the yes is for exactly this.
        answer(house, told.approval_id, Answer.ONCE, channel="page")
        arguments = {"key": "bot", "type": "transaction", "data": data}
        assert house.call_sync("sign", arguments).status == "ok"


@pytest.mark.slow
@pytest.mark.req("S000-55")
@pytest.mark.parametrize(
    ("written", "asks"),
    [
        ("{tier: 3, escalateAbove: {eth: 1}}", False),
        ("{tier: 2, escalateAbove: {eth: 1}}", False),
        ("{tier: 2, requireConfirmation: true, escalateAbove: {eth: 1}}", True),
        ("{tier: 1, requireConfirmation: false}", True),
    ],
)
def test_each_tier_confirms_a_signature_in_its_own_way(
    tmp_path: Path, written: str, asks: bool
) -> None:
    """Tiers 3 and 2 let a session key sign, 2 asks where it is told to, and 1 always does."""
    policy(tmp_path, f"sign: {written}")
    with house_with_keys(tmp_path, ALLOW) as house:
        told = house.call_sync("sign", message("bot"))
        assert told.status == ("pending" if asks else "ok")
        if asks:
            # A signature is decided where all of it is shown.
            with pytest.raises(ApprovalError, match="transaction page or a paired device only"):
                answer(house, told.approval_id, Answer.ONCE)
            answer(house, told.approval_id, Answer.ONCE, channel="page")
            assert house.call_sync("sign", message("bot")).status == "ok"


def test_a_password_in_the_configuration_is_refused_and_not_repeated(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text('[signer]\npassword = "hunter2-hunter2"\n')
    with pytest.raises(ConfigError, match="expected `terminal`, `keyring`") as caught:
        configured(places)
    assert "hunter2" not in str(caught.value)


@pytest.mark.slow
def test_file_tools_and_commands_never_reach_the_state_in_a_workspace(tmp_path: Path) -> None:
    """The state directory lies in the workspace, and rules allow everything."""
    everything = Rule(effect=Effect.ALLOW, action="*", pattern="*")
    with house_with_keys(tmp_path, everything) as house:
        config = house.config
    state = config.state_directory
    places = make_places(tmp_path)
    inside = places.start / "state"
    state.rename(inside)
    with Skillhouse(
        configured(places),
        state_directory=inside,
        layers=(Layer(name="user", rules=(everything,)),),
    ) as house:
        house.call_sync("list", {"path": "."})
        kept = {path.name: path.read_bytes() for path in inside.iterdir() if path.is_file()}
        names = {KEYSTORE_FILE, STATE_FILE, "audit.jsonl", "audit.jsonl.key", "audit.jsonl.head"}
        assert names <= set(kept)
        for name in (*sorted(kept), "audit-archive/x", "audit-checkpoints/x", "new.txt"):
            path = f"state/{name}"
            refused = house.call_sync("read", {"path": path})
            assert refused.is_error, path
            for call in (
                ("write", {"path": path, "content": "x"}),
                ("edit", {"path": path, "old": "a", "new": "b"}),
                ("exec", {"command": "cat", "params": [path]}),
                ("exec", {"command": "cp", "params": ["/dev/null", path]}),
                ("exec", {"command": f"echo x > {path}"}),
            ):
                told = house.call_sync(*call)
                assert told.is_error, (call, told.content)
        now = {path.name: path.read_bytes() for path in inside.iterdir() if path.is_file()}
        assert json.loads(now[KEYSTORE_FILE]) == json.loads(kept[KEYSTORE_FILE])
        assert now["audit.jsonl"].startswith(kept["audit.jsonl"])
        assert now["audit.jsonl.key"] == kept["audit.jsonl.key"]
        assert "new.txt" not in now

"""The published rules of a tier policy, as calls and the audit log show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillhouse import ApprovalSettings, Skillhouse, Tool, tool
from skillhouse.approval import Answer, ApprovalError
from skillhouse.audit import read_records
from skillhouse.house import configured
from skillhouse.house.config import SignerSettings
from skillhouse.permission import Layer
from tests.house.places import make_places
from tests.tools.test_gate_approvals import answer
from tests.tools.test_gate_signing import ALLOW, VARIABLE, house_with_keys, message

pytestmark = pytest.mark.under("owliabot")

POLICY = """\
version: "1"
tools:
  gas-refuel: {tier: 3}
  dex-swap: {tier: 2, escalateAbove: {usd: 40}}
  pay: {tier: 2}
  token-approve-small: {tier: 3}
wildcards:
  - {pattern: "*-approve-*", tier: 1}
  - {pattern: "*-approve-all", tier: 3}
  - {pattern: "*-transfer", tier: 2}
fallback: {tier: 1, requireConfirmation: true, confirmationChannel: companion-app}
"""


def spending(name: str) -> Tool:
    """Return an own tool that spends an amount and asks for nothing by itself."""

    def spend(amount: float | str | None = None, currency: str = "USD") -> str:
        """Spend."""
        return f"spent {amount} {currency}"

    return tool(name=name, default="allow")(spend)


def house_of(base: Path, *names: str, text: str = POLICY, **values: Any) -> Skillhouse:
    """Return a house with a tier policy and one tool for each name."""
    places = make_places(base)
    places.policy_file.parent.mkdir(parents=True, exist_ok=True)
    places.policy_file.write_text(text)
    # The design denies what stays unanswered, after its wait; here a question stays open.
    values.setdefault("approvals", ApprovalSettings(unattended="pending"))
    return Skillhouse(configured(places), tools=[spending(name) for name in names], **values)


def called(house: Skillhouse, name: str, amount: object = None, **more: object) -> tuple[str, ...]:
    """Call a tool; return status, tier, effective tier, and source and reason from the log."""
    given = {} if amount is None else {"amount": amount}
    status = house.call_sync(name, {**given, **more}).status
    record = next(iter(read_records(house.audit_log.path))).record
    detail = record.detail
    why = (str(detail.get("tier_source", "")), str(detail.get("tier_reason", "")))
    return (status, record.tier, record.effective_tier, *why)


@pytest.mark.slow
@pytest.mark.req("S000-88", "S000-89", "S000-107")
def test_an_exact_name_goes_before_the_first_wildcard_and_that_before_the_fallback(
    tmp_path: Path,
) -> None:
    names = ("token-approve-small", "token-approve-all", "bank-transfer", "new-tool")
    with house_of(tmp_path, *names) as house:
        found = {name: called(house, name) for name in names}
    assert found == {
        "token-approve-small": ("ok", "3", "3", "tools.token-approve-small", ""),
        "token-approve-all": ("pending", "1", "1", "wildcards *-approve-*", ""),
        "bank-transfer": ("ok", "2", "2", "wildcards *-transfer", ""),
        "new-tool": ("pending", "1", "1", "fallback", ""),
    }


@pytest.mark.req("S000-107")
def test_a_tool_that_nothing_names_is_approved_on_a_paired_device_or_the_page(
    tmp_path: Path,
) -> None:
    with house_of(tmp_path, "new-tool") as house:
        asked = house.call_sync("new-tool", {"amount": 1})
        for channel in ("cli", "library", "mcp"):
            with pytest.raises(ApprovalError, match="transaction page or a paired device only"):
                answer(house, asked.approval_id, Answer.ONCE, channel=channel)
        answer(house, asked.approval_id, Answer.ONCE, channel="device")
        assert house.call_sync("new-tool", {"amount": 1}).content == "spent 1.0 USD"


@pytest.mark.slow
@pytest.mark.req("S000-90")
def test_defaults_fill_what_a_tool_leaves_open_and_no_more(tmp_path: Path) -> None:
    text = (
        'version: "1"\ndefaults: {tier: 2, requireConfirmation: true, timeout: 1}\n'
        "tools:\n  bare: {tier: 2}\n  silent: {requireConfirmation: false}\n"
        "  low: {tier: 3, requireConfirmation: false}\n"
    )
    denies = ApprovalSettings(wait_seconds=60, unattended="deny")
    with house_of(tmp_path, "bare", "silent", "low", text=text, approvals=denies) as house:
        assert called(house, "silent") == ("ok", "2", "2", "tools.silent", "")
        assert called(house, "low") == ("ok", "3", "3", "tools.low", "")
        asked = house.call_sync("bare", {})
        assert (asked.status, "within 1 seconds" in asked.content) == ("denied", True)


@pytest.mark.slow
@pytest.mark.req("S000-93", "S000-94", "S000-95", "S000-111")
def test_an_amount_stays_at_its_bound_and_escalates_above_it(tmp_path: Path) -> None:
    with house_of(tmp_path, "gas-refuel", "dex-swap", "pay") as house:
        assert called(house, "gas-refuel", 5.00)[:3] == ("ok", "3", "3")
        over = ("tools.gas-refuel", "tier3-max-exceeded")
        for amount in (5.01, "5.01", "$5.01", "5.01 USD"):
            assert called(house, "gas-refuel", amount) == ("ok", "3", "2", *over), amount
        assert called(house, "dex-swap", "40.00")[:3] == ("ok", "2", "2")
        over = ("tools.dex-swap", "escalate-above-threshold")
        assert called(house, "dex-swap", "40.01") == ("pending", "2", "1", *over)
        assert called(house, "pay", 50)[:3] == ("ok", "2", "2")
        over = ("tools.pay", "tier2-max-exceeded")
        for amount in (50.01, "50.01"):
            assert called(house, "pay", amount) == ("pending", "2", "1", *over)


@pytest.mark.slow
@pytest.mark.req("S000-111", "S000-112")
def test_an_amount_that_is_not_known_in_dollars_needs_a_person(tmp_path: Path) -> None:
    with house_of(tmp_path, "pay") as house:
        for amount in ("1,000", "five", "1e3"):
            assert called(house, "pay", amount)[::4] == ("pending", "amount-unknown"), amount
        assert called(house, "pay", 1, currency="USD")[0] == "ok"
        for currency in ("EUR", "BTC", "usdx"):
            found = called(house, "pay", 1, currency=currency)
            assert found[::4] == ("pending", "currency-unknown"), currency


@pytest.mark.slow
@pytest.mark.req("S000-96")
def test_above_200_dollars_a_day_a_payment_needs_a_person_in_each_process(tmp_path: Path) -> None:
    with house_of(tmp_path, "pay") as house:
        assert [called(house, "pay", 50)[0] for _ in range(4)] == ["ok"] * 4
    with house_of(tmp_path, "pay") as later:
        over = ("pending", "2", "1", "tools.pay", "daily-limit-exceeded")
        assert called(later, "pay", "0.01") == over
        assert called(later, "pay")[0] == "ok"


@pytest.mark.req("S000-87")
@pytest.mark.parametrize("version", ['version: "2"', "version: 1.0", "version: one", "{}"])
def test_a_policy_file_of_another_version_leaves_reads_alone(tmp_path: Path, version: str) -> None:
    text = POLICY.replace('version: "1"', version if version != "{}" else "")
    with house_of(tmp_path, "pay", text=text) as house:
        (tmp_path / "project/a.txt").write_text("text")
        refused = house.call_sync("pay", {"amount": 1})
        assert (refused.status, 'expected version "1"' in refused.content) == ("denied", True)
        assert house.call_sync("read", {"path": "a.txt"}).content == "text"
    with house_of(tmp_path, "pay") as mended:
        assert mended.call_sync("pay", {"amount": 1}).status == "ok"


@pytest.mark.slow
def test_500_dollars_in_a_day_stop_every_tool(tmp_path: Path) -> None:
    text = 'version: "1"\nthresholds: {tier2DailyUsd: 9000, tier2MaxUsd: 9000}\n'
    with house_of(tmp_path, "pay", text=f"{text}tools:\n  pay: {{tier: 2}}\n") as house:
        (tmp_path / "project/a.txt").write_text("text")
        assert called(house, "pay", "499.99")[0] == "ok"
        assert house.call_sync("read", {"path": "a.txt"}).status == "ok"
        assert called(house, "pay", "0.01")[0] == "ok"
        for name, given in (("pay", {"amount": 1}), ("read", {"path": "a.txt"})):
            stopped = house.call_sync(name, given)
            assert (stopped.status, "500.00 USD were spent" in stopped.content) == ("denied", True)


@pytest.mark.slow
@pytest.mark.file_state
def test_five_failed_signatures_stop_every_tool(tmp_path: Path) -> None:
    house_with_keys(tmp_path, ALLOW).close()
    places = make_places(tmp_path, {VARIABLE: "another password"})
    places.policy_file.parent.mkdir(parents=True, exist_ok=True)
    places.policy_file.write_text('version: "1"\ntools:\n  sign: {tier: 2}\n')
    layers = (Layer(name="user", rules=(ALLOW,)),)
    signer = SignerSettings(password=f"env:{VARIABLE}")
    with Skillhouse(configured(places), layers=layers, signer=signer) as house:
        (tmp_path / "project/a.txt").write_text("text")
        for _ in range(5):
            assert house.call_sync("read", {"path": "a.txt"}).status == "ok"
            assert house.call_sync("sign", message("bot")).status == "error"
        stopped = house.call_sync("read", {"path": "a.txt"})
        assert (stopped.status, "5 signatures failed" in stopped.content) == ("denied", True)


@pytest.mark.req("S000-88")
@pytest.mark.parametrize(
    ("profile", "called_as", "arguments", "entry", "source"),
    [
        ("owliabot", "web_fetch", {"url": "http://a.test/"}, "web_fetch", "tools.web_fetch"),
        ("owliabot", "fetch", {"url": "http://a.test/"}, "web_fetch", "tools.web_fetch"),
        ("owliabot", "web_fetch", {"url": "http://a.test/"}, "fetch", "tools.fetch"),
        ("owliabot", "web_fetch", {"url": "http://a.test/"}, "web_*", "wildcards web_*"),
        ("owliabot", "read-file", {"path": "a.txt"}, "read-file", "tools.read-file"),
        ("openseed", "exec", {"command": "ls"}, "run_shell_command", "tools.run_shell_command"),
        # Another profile does not have that name, so that the entry is about no tool.
        ("default", "fetch", {"url": "http://a.test/"}, "web_fetch", "fallback"),
    ],
)
def test_a_policy_may_have_the_designs_name_of_a_tool_or_ours(
    tmp_path: Path,
    profile: str,
    called_as: str,
    arguments: dict[str, object],
    entry: str,
    source: str,
) -> None:
    named = f"wildcards:\n  - {{pattern: '{entry}', tier: 3}}" if "*" in entry else ""
    named = named or f"tools:\n  {entry}: {{tier: 3}}"
    text = f'version: "1"\n{named}\nfallback: {{tier: 2}}\n'
    with house_of(tmp_path, text=text, profile=profile) as house:
        (house.services.project / "a.txt").write_text("a")
        house.call_sync(called_as, arguments)
        record = next(iter(read_records(house.audit_log.path))).record
    assert (record.detail["tier_source"], record.tier) == (
        source,
        "2" if source == "fallback" else "3",
    )

"""Calls, rules, skills, clients, findings and questions lead to each other, both ways."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient
from tests.approval.questions import question
from tests.extensions.server.pages.rich import rich_house

from skillhouse.audit import AuditEntry, Query, entries_of
from skillhouse.extensions.server.pages.object_links import client_path
from skillhouse.house import Caller, Skillhouse


class Place(NamedTuple):
    house: Skillhouse
    client: TestClient

    def page(self, address: str) -> str:
        answer = self.client.get(address.partition("#")[0])
        assert answer.status_code == 200, address
        return answer.text

    def links(self, address: str) -> set[str]:
        found = re.findall(r'<a\b[^>]*?href="(/[^"]*)"', self.page(address))
        return {html.unescape(one) for one in found}

    def call(self, fits: Callable[[AuditEntry], bool]) -> str:
        log = self.house.audit_log
        entries = entries_of(log.path, Query(), key=log.key)
        return f"/calls/{next(one for one in entries if fits(one)).record.id}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with rich_house(tmp_path_factory.mktemp("rich")) as (house, client):
        info = "codex-mcp-client 0.9"
        caller = Caller(client="codex-mcp-client", client_info=info, channel="mcp")
        house.call_sync("exec", {"command": "git status"}, caller=caller)
        house.call_sync("exec", {"command": "git push"}, caller=caller)
        house.call_sync("skill", {"name": "pdf"}, caller=caller)
        yield Place(house, client)


def is_denied_push(entry: AuditEntry) -> bool:
    return "git push *" in entry.record.reason


def is_status(entry: AuditEntry) -> bool:
    return any(one.resource == "git status" for one in entry.record.permissions)


def is_pdf(entry: AuditEntry) -> bool:
    return entry.record.skill == "pdf"


@pytest.mark.parametrize("fits", [is_denied_push, is_status])
def test_a_call_leads_to_its_rule_at_its_line_and_the_rule_to_its_calls(
    place: Place, fits: Callable[[AuditEntry], bool]
) -> None:
    call = place.call(fits)
    (rule,) = {one for one in place.links(call) if one.startswith("/policy#rule-")}
    assert re.search(r"line \d+", place.page(call))
    layer, index = rule.removeprefix("/policy#rule-").split("-")
    assert f'id="rule-{layer}-{index}"' in place.page(rule)
    calls = f"/audit?rule={layer}.{index}"
    assert calls in place.links(rule)
    decided = {one for one in place.links(calls) if one.startswith("/calls/")}
    assert call in decided
    others = place.call(lambda entry: entry.record.tool == "read")
    assert others not in decided
    assert rule in place.links(calls)


@pytest.mark.parametrize("rule", ["", "x", "99.0", "0.9999", "-1.0", "1", "０.０", "0.0.0"])
def test_what_names_no_rule_filters_nothing(place: Place, rule: str) -> None:
    text = place.client.get("/audit", params={"rule": rule}).text
    assert "Calls that this rule decided" not in text


def test_a_call_leads_to_its_skill_and_the_skill_to_its_calls(place: Place) -> None:
    call = place.call(is_pdf)
    assert "/skills/user:pdf" in place.links(call)
    of_skill = place.links("/skills/user:pdf")
    assert call in of_skill
    assert "/audit?skill=pdf" in of_skill
    assert call in place.links("/audit?skill=pdf")
    code = place.call(lambda entry: entry.record.tool.startswith("spoof"))
    assert "/skills/spoof" in place.links(code)


def test_a_call_leads_to_its_client_and_the_client_to_its_calls(place: Place) -> None:
    call = place.call(lambda entry: entry.record.client.startswith("codex-mcp-client"))
    client = "/clients/codex-mcp-client"
    assert client in place.links(call)
    assert call in place.links(client)
    assert call in place.links("/audit?client=codex-mcp-client%200.9")


def test_a_skill_leads_to_its_clients_and_a_client_to_its_skills(place: Place) -> None:
    assert "/seen/user:pdf" in place.links("/skills/user:pdf")
    assert "/skills/user:pdf" in place.links("/clients/codex")


def test_a_finding_leads_to_the_editor_at_its_line_and_a_skill_to_its_findings(
    place: Place,
) -> None:
    edits = {one for one in place.links("/system") if one.startswith("/edit/") and "#L" in one}
    assert edits
    broken = next(one for one in edits if "mail" in one or "Upper" in one)
    assert 'id="writing"' in place.page(broken)
    page = place.page("/skills/user:mail")
    assert 'id="findings-title"' in page
    assert re.search(r'href="/edit/user:mail#L\d+"', page)


def test_a_question_leads_to_its_rule_its_skill_and_its_client(place: Place) -> None:
    asked = place.house.approvals.open(
        question(
            client="shelly 2.0",
            found=(("skill", "spoof 1.0.0"),),
            reasons=("rule `exec git push *` of user policy",),
        )
    ).request
    links = place.links(f"/approvals/{asked.id}")
    assert {"/clients/shelly", "/skills/spoof"} < links
    # No call of this client is recorded by now.
    assert f"/approvals/{asked.id}" in place.links("/clients/shelly")
    pending = next(one for one in place.house.approvals.pending() if one.request.tool == "exec")
    deciding = {one for one in place.links(f"/approvals/{pending.id}") if "#try" in one}
    assert any(one.startswith("/policy?action=") for one in deciding)


@pytest.mark.parametrize("name", ["..", "a/../../x", "%2e%2e", "<b>", "a?b#c", "x" * 300])
def test_a_name_of_a_client_makes_no_other_address(place: Place, name: str) -> None:
    path = client_path(name)
    assert path == "" or re.fullmatch(r"/clients/[\w%.~-]+", path)
    assert ".." not in path.split("/")

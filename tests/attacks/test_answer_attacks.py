"""Attacks on who answers: a model that is told how, stolen tokens and devices (G15, E3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import (
    Answer,
    Approval,
    ApprovalError,
    ApprovalState,
    Devices,
    Issuer,
    SignatureError,
    Tokens,
    signed_headers,
)
from skillhouse.approval.devices import REFUSED_SECONDS, TOKEN_SECONDS, TOKEN_TRIES
from skillhouse.approval.webhook import secret_bytes
from skillhouse.audit import read_records
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from tests.approval.questions import begun, broker_at, question, said
from tests.frontends.mcp_peer import Peer
from tests.harness import Clock
from tests.house.places import make_places, write_skill
from tests.person_answers import ANSWERING


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.slow
def test_no_refusal_tells_a_model_a_command_that_answers(tmp_path: Path) -> None:
    """Every way in which a call is refused, as the library gives it; MCP gives the same texts."""
    ask = Rule(effect=Effect.ASK, action="exec", pattern="*")
    deny = Rule(effect=Effect.DENY, action="read", pattern="*/private/*")
    write_skill(tmp_path / "project/.agents/skills/pdf")
    layer = Layer(name="user", rules=(ask, deny))
    told: list[str] = []
    with Skillhouse(configured(make_places(tmp_path)), layers=(layer,)) as house:

        def call(tool: str, **arguments: Any) -> str:
            result = house.call_sync(tool, arguments)
            told.append(result.content)
            return result.approval_id or ""

        call("skill", name="pdf")
        call("write", path="a.txt", content="1")
        house.approvals.page = "http://127.0.0.1:8600"
        first = call("exec", command="id")
        call("exec", command="sh", params=["-c", "id"])
        call("read", path="private/x")
        call("read", path="/etc/shadow")
        call("fetch", url="https://example.org/")
        call("search_skills", query="pdf")
        call("write", path=".git/config", content="1")
        said(house.approvals, first, Answer.NO, message="not now")
        call("exec", command="id")
        house.project_trust.trust()
        (tmp_path / "project/.agents/skills/pdf/SKILL.md").write_text(
            "---\nname: pdf\ndescription: Other.\n---\nOther.\n"
        )
        call("skill", name="pdf")
        for at in range(60):
            call("write", path=f"{at}.txt", content="1")
        house.services.enforcement.stop("local", "a test")
        call("exec", command="id")
    assert any("ask the user to approve" in text for text in told)
    assert any("no more are taken" in text for text in told)
    assert any("everything is stopped" in text for text in told)
    assert [text for text in told if ANSWERING.search(text)] == []


@pytest.mark.slow
async def test_over_mcp_nothing_that_a_client_gets_holds_such_a_command(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    write_skill(peer.project / ".agents/skills/pdf")
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("write", {"path": "a.txt", "content": "1"}),
        ("exec", {"command": "sh", "params": ["-c", "id"]}),
        ("skill", {"name": "pdf"}),
        ("search_skills", {"query": "pdf"}),
        ("fetch", {"url": "https://example.org/"}),
        ("read", {"path": "/etc/shadow"}),
    )
    told: list[str] = []
    async with peer.client() as client:
        told.append((await client.list_tools()).model_dump_json())
        told.append((await client.list_resources()).model_dump_json())
        for name, arguments in calls:
            told.append((await client.call_tool(name, arguments)).model_dump_json())
        peer.skillhouse("stop")
        told.append((await client.call_tool(*calls[0])).model_dump_json())
    assert sum("ask the user to approve" in text for text in told) >= 2
    assert "everything is stopped" in told[-1]
    assert [text for text in told if ANSWERING.search(text)] == []


def test_a_token_ends_with_time_with_tries_and_with_the_next_one(
    tmp_path: Path, clock: Clock
) -> None:
    broker, tokens = broker_at(tmp_path, clock=clock), Tokens(tmp_path, clock=clock)
    opened = broker.open(question())
    issuer = Issuer(user="local")

    def is_taken(token: str) -> bool:
        try:
            return tokens.take(opened, token) == issuer
        except ApprovalError:
            return False

    first, second = tokens.issue(opened, issuer), tokens.issue(opened, issuer)
    assert not is_taken(first)
    assert is_taken(second)
    assert not is_taken(second)
    late = tokens.issue(opened, issuer)
    clock.now += TOKEN_SECONDS
    assert not is_taken(late)
    guessed = tokens.issue(opened, issuer)
    assert not any(is_taken(f"guess {at}") for at in range(TOKEN_TRIES))
    assert not is_taken(guessed)
    # A new token has all its tries, whatever was tried with the one that it replaces.
    for _ in range(2):
        newest = tokens.issue(opened, issuer)
        assert not any(is_taken(f"guess {at}") for at in range(TOKEN_TRIES - 1))
    assert is_taken(newest)
    with pytest.raises(ApprovalError, match="on the page itself"):
        tokens.issue(broker.open(question(level="sign")), issuer)
    said(broker, opened.id, Answer.NO)
    with pytest.raises(ApprovalError, match="is not open"):
        tokens.issue(broker.get(opened.id), issuer)


# A stolen device (E3).


class Phone:
    """A paired device, whoever holds it."""

    def __init__(self, path: Path, clock: Clock, **options: Any) -> None:
        self.path, self.clock, self.sent = path, clock, 0
        self.broker = broker_at(path, clock=clock)
        self.events: list[tuple[str, str, str]] = []
        self.devices = Devices(path, clock=clock, record=self.record)
        self.device = self.devices.pair("phone", user="local")

    def record(self, what: str, device: Any, detail: str) -> None:
        self.events.append((what, device.name if device else "", detail))

    def message(self, opened: Approval, answer: Answer) -> tuple[Mapping[str, str], bytes]:
        self.sent += 1
        request = opened.request
        body = json.dumps(
            {
                "device": self.device.id,
                "approval": request.id,
                "nonce": request.nonce,
                "content_digest": request.content_digest,
                "answer": answer.value,
            }
        ).encode()
        secret = secret_bytes(self.device.secret)
        number, now = f"m{self.sent}", self.clock.now
        return signed_headers(body, secret=secret, message_id=number, now_seconds=now), body

    def says(self, answer: Answer, resource: str = "/w/a.txt") -> Approval:
        opened = self.broker.open(question(resource))
        return self.devices.answer(self.broker, *self.message(opened, answer))


@pytest.fixture
def phone(tmp_path: Path, clock: Clock) -> Phone:
    return Phone(tmp_path, clock)


def test_an_approval_and_a_standing_approval_name_their_device(phone: Phone) -> None:
    found = phone.says(Answer.ALWAYS)
    assert (found.device, found.device_name) == (phone.device.id, "phone")
    begun(phone.broker, found.id)
    (grant,) = phone.broker.grant_store.all()
    assert (grant.device, grant.device_name) == (phone.device.id, "phone")
    assert [event[:2] for event in phone.events] == [("paired", "phone"), ("answered", "phone")]


def test_unpairing_ends_every_approval_that_the_device_gave(phone: Phone) -> None:
    own = phone.broker.open(question("/own/a.txt"))
    said(phone.broker, own.id, Answer.ALWAYS)
    begun(phone.broker, own.id)
    unused = phone.says(Answer.ONCE)
    standing = phone.says(Answer.PROJECT, "/x/a.txt")
    begun(phone.broker, phone.says(Answer.ALWAYS, "/z/a.txt").id)
    session = phone.says(Answer.SESSION, "/y/a.txt")
    elsewhere = broker_at(phone.path, clock=phone.clock)
    begun(elsewhere, session.id)
    assert len(elsewhere.session_grants(session.request.session)) == 1

    ended = phone.devices.unpair(phone.device.id)
    assert ended is not None
    assert (ended.approvals, ended.grants) == (2, 1)
    for found in (unused, standing):
        with pytest.raises(ApprovalError, match="the device was unpaired"):
            phone.broker.redeem(found.id, found.request.content_digest, found.request.session)
    assert [grant.pattern for grant in phone.broker.grant_store.all()] == ["/own/"]
    assert elsewhere.session_grants(session.request.session) == ()
    assert phone.broker.get(own.id).state is ApprovalState.USED
    assert phone.events[-1] == ("unpaired", "phone", "2 unused and 1 standing approvals ended")
    assert phone.devices.unpair(phone.device.id) is None


def test_a_device_cannot_prolong_or_take_over_a_person_s_standing_approval(phone: Phone) -> None:
    opened = phone.broker.open(question())
    said(phone.broker, opened.id, Answer.ALWAYS)
    begun(phone.broker, opened.id)
    phone.clock.now += 3600
    (before,) = phone.broker.grant_store.all()
    begun(phone.broker, phone.says(Answer.ALWAYS).id)
    phone.devices.unpair(phone.device.id)
    (after,) = phone.broker.grant_store.all()
    assert (after.id, after.expires_ms) == (before.id, before.expires_ms)


def test_a_device_that_is_unpaired_while_its_call_begins_stores_no_rule(phone: Phone) -> None:
    found = phone.says(Answer.ALWAYS)
    request = found.request
    used = phone.broker.redeem(found.id, request.content_digest, request.session)
    phone.devices.unpair(phone.device.id)
    assert not phone.broker.store_rules(used)
    assert phone.broker.grant_store.all() == ()


def test_an_answer_on_its_way_while_its_device_is_unpaired_does_not_count(phone: Phone) -> None:
    opened = phone.broker.open(question())
    phone.devices.unpair(phone.device.id)
    with pytest.raises(ApprovalError, match="not paired any more"):
        phone.broker.answer(
            opened.id,
            Answer.ALWAYS,
            by="local",
            channel="device",
            nonce=opened.request.nonce,
            device=phone.device.id,
            device_name="phone",
        )
    assert phone.broker.get(opened.id).state is ApprovalState.OPEN
    assert phone.broker.grant_store.all() == ()


def test_a_device_s_token_ends_with_it_and_only_a_yes_gives_one(phone: Phone) -> None:
    opened = phone.broker.open(question())
    with pytest.raises(ApprovalError, match="a token approves once"):
        phone.devices.token(phone.broker, *phone.message(opened, Answer.NO))
    token = phone.devices.token(phone.broker, *phone.message(opened, Answer.ONCE))
    tokens = Tokens(phone.path, clock=phone.clock)
    assert tokens.take(opened, token).device_name == "phone"
    token = phone.devices.token(phone.broker, *phone.message(opened, Answer.ONCE))
    phone.devices.unpair(phone.device.id)
    with pytest.raises(ApprovalError, match="the token is wrong"):
        tokens.take(opened, token)


def test_refused_messages_are_recorded_and_cannot_flood_the_log(phone: Phone) -> None:
    opened = phone.broker.open(question())
    headers, body = phone.message(opened, Answer.ONCE)
    for _ in range(100):
        with pytest.raises(SignatureError):
            phone.devices.answer(phone.broker, {**headers, "webhook-id": "x"}, body)
    phone.clock.now += REFUSED_SECONDS
    with pytest.raises(SignatureError):
        phone.devices.answer(phone.broker, {}, b'{"device": "nobody"}')
    refused = [event for event in phone.events if event[0] == "refused"]
    assert [event[1] for event in refused] == ["phone", ""]
    assert "since the last: 100" in refused[1][2]


def test_pairing_unpairing_and_a_device_s_answer_are_in_the_audit_log(tmp_path: Path) -> None:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        write = ("write", {"path": "a.txt", "content": "text"})
        devices = house.services.enforcement.devices
        device = devices.pair("phone", user="local")
        opened = house.approvals.get(house.call_sync(*write).approval_id or "")
        house.approvals.answer(
            opened.id,
            Answer.ONCE,
            by="local",
            channel="device",
            nonce=opened.request.nonce,
            device=device.id,
            device_name=device.name,
        )
        assert house.call_sync(*write).status == "ok"
        devices.unpair(device.id)
        log = house.audit_log.path
    records = [entry.record for entry in read_records(log, newest_first=False)]
    events = [record for record in records if record.tool == "system:device"]
    assert [record.reason.partition(":")[0] for record in events] == ["paired", "unpaired"]
    assert all(record.detail["device"] == device.id for record in events)
    (ran,) = [one for one in records if one.tool == "write" and one.kind == "intent"]
    assert ran.detail["device"] == f"phone ({device.id})"
    assert device.secret not in log.read_text()

"""Tests of approval/webhook.py: what is sent, where to, and how it is signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import SignatureError, WebhookChannel, checked_url, rows_of, verified_id
from skillhouse.approval.webhook import chat_text, secret_bytes, signed_headers
from skillhouse.floor import ConfigError
from tests.approval.questions import broker_at, question
from tests.harness import Clock

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


class Wire:
    """Stands for the network: keeps what is sent."""

    def __init__(self, status: int = 204, error: Exception | None = None) -> None:
        self.sent: list[tuple[str, Mapping[str, str], bytes]] = []
        self.status = status
        self.error = error

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        self.sent.append((url, headers, body))
        if self.error is not None:
            raise self.error
        return self.status


def test_a_question_is_sent_signed_with_all_that_a_yes_is_about(tmp_path: Path) -> None:
    wire, clock = Wire(), Clock()
    page = "http://127.0.0.1:8600"
    channel = WebhookChannel("https://a.test/in", SECRET, wire.post, page=page, clock=clock)
    broker = broker_at(tmp_path, channel, clock=clock)
    settled = anyio.run(broker.request_approval, question())
    assert settled.status == "pending"
    ((url, headers, body),) = wire.sent
    request = broker.pending()[0].request
    assert url == "https://a.test/in"
    # As a receiver that knows only Standard Webhooks computes it.
    signed = f"{request.id}.{int(clock.now)}.".encode() + body
    wanted = base64.b64encode(hmac.new(b"s" * 32, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    told = json.loads(body)
    assert told["content"] == request.content
    assert told["nonce"] == request.nonce
    assert told["page"] == f"{page}/approvals/{request.id}"
    assert told["answers"] == ["once", "session", "project", "always", "no"]


@pytest.mark.req("S000-80")
def test_a_chat_is_shown_tool_file_and_how_the_texts_begin(tmp_path: Path) -> None:
    asked = question(sent=(("path", "a.txt"), ("old", "x" * 200), ("new", "y" * 201)))
    assert chat_text(asked).splitlines()[1:] == [
        f"tool: {asked.tool}",
        "sent by the agent:",
        "  path: a.txt",
        *rows_of(f"  old: {'x' * 200}"),
        *rows_of(f"  new: {'y' * 200}…"),
    ]


@pytest.mark.parametrize("wire", [Wire(500), Wire(error=OSError("unreachable"))])
def test_a_receiver_that_fails_leaves_the_question_open(tmp_path: Path, wire: Wire) -> None:
    broker = broker_at(tmp_path, WebhookChannel("https://a.test/in", SECRET, wire.post))
    assert anyio.run(broker.request_approval, question()).status == "pending"
    assert len(wire.sent) == 1


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://a.test/in", True),
        ("http://127.0.0.1:9000/in", True),
        ("http://[::1]/in", True),
        ("http://localhost/in", True),
        ("http://a.test/in", False),
        ("http://127.0.0.1.a.test/", False),
        ("https://me:word@a.test/", False),
        ("https://a.test\\@b.test/", False),
        ("https://a.test/ b", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("https://a.test:port/", False),
        ("https://[::1/", False),
    ],
)
def test_questions_go_to_https_or_to_this_machine_only(url: str, taken: bool) -> None:
    if taken:
        assert checked_url(url) == url
        return
    with pytest.raises(ConfigError):
        checked_url(url)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "not base64 !", base64.b64encode(b"short").decode()]
)
def test_a_weak_secret_is_refused(secret: str) -> None:
    with pytest.raises(SignatureError):
        secret_bytes(secret)


def test_one_of_several_signatures_is_enough_for_a_change_of_secrets() -> None:
    body, now = b"{}", 1_800_000_000.0
    new = b"n" * 32
    headers = signed_headers(body, secret=new, message_id="m", now_seconds=now)
    old = signed_headers(body, secret=b"o" * 32, message_id="m", now_seconds=now)
    both = {
        **headers,
        "webhook-signature": f"{old['webhook-signature']} {headers['webhook-signature']}",
    }
    assert verified_id(both, body, secret=new, now_seconds=now) == "m"

"""Attacks by who reaches the port of Telegram's webhook."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from skillhouse.extensions.channels import telegram_webhook
from skillhouse.extensions.channels.telegram_webhook import BODY_MAX
from tests.extensions.channels.bots import bot, free_address
from tests.extensions.channels.fake_telegram import FakeTelegram, fake_telegram
from tests.extensions.chat.test_conversation import Script

pytestmark = pytest.mark.slow


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as made:
        yield made


@pytest.fixture
def webhook() -> str:
    return free_address()


def update(text: str = "forged") -> bytes:
    person = {"id": 42, "is_bot": False, "first_name": "Ada"}
    chat = {"id": 42, "type": "private"}
    message = {"message_id": 7, "date": 1, "chat": chat, "from": person, "text": text}
    return json.dumps({"update_id": 7, "message": message}).encode()


def test_without_the_secret_nothing_is_taken(
    tmp_path: Path, fake: FakeTelegram, webhook: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    script = Script("real")
    with bot(tmp_path, fake, script.model, webhook=webhook):
        for secret in ("", "x", "A" * 43, "\u00e9"):
            assert fake.bring(body=update(), secret=secret) == 403
        kept = fake.webhook["secret_token"]
        assert fake.bring(body=update(), secret=kept[:-1]) == 403
        assert fake.bring(body=update(), secret=f"{kept}x") == 403
        assert fake.bring(body=update(), path="/") == 404
        assert fake.bring(body=update(), path="/from-telegram/") == 404
        assert fake.bring(body=update(), method="GET") == 405
        assert fake.bring(body=update(), method="PUT") == 405
        fake.write("hello")
        assert fake.bring() == 200
        fake.said("real")
    assert len(script.sent) == 1
    assert "forged" not in str(script.sent)
    assert kept not in caplog.text
    assert len(kept) >= 43


def test_an_update_that_is_brought_again_is_answered_once(
    tmp_path: Path, fake: FakeTelegram, webhook: str
) -> None:
    script = Script("first", "second")
    with bot(tmp_path, fake, script.model, webhook=webhook):
        for _ in range(3):
            assert fake.bring(body=update("once")) == 200
        fake.said("first")
        assert fake.bring(body=update("once")) == 200
        fake.write("next")
        assert fake.bring() == 200
        fake.said("second")
    assert fake.texts() == ["first", "second"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b'{"update_id": "1"}', b"\xff\xfe", b"[" * 200_000],
    ids=["empty", "cut", "list", "text", "no number", "no text", "deep"],
)
def test_what_is_no_update_is_refused_and_ends_nothing(
    tmp_path: Path, fake: FakeTelegram, webhook: str, body: bytes
) -> None:
    with bot(tmp_path, fake, Script("real").model, webhook=webhook):
        assert fake.bring(body=body) == 400
        fake.write("hello")
        assert fake.bring() == 200
        fake.said("real")


def test_a_body_of_more_than_a_megabyte_is_refused(
    tmp_path: Path, fake: FakeTelegram, webhook: str
) -> None:
    with bot(tmp_path, fake, Script("real").model, webhook=webhook):
        fake.wait(lambda one: one.webhook)
        said = answered(fake, b"content-length: 1000001\r\n", b"")
        assert b" 413 " in said
        chunk = b"x" * 100_000
        chunks = (b"%x\r\n%s\r\n" % (len(chunk), chunk)) * (BODY_MAX // len(chunk) + 1)
        assert b" 413 " in answered(fake, b"transfer-encoding: chunked\r\n", chunks)
        fake.write("hello")
        assert fake.bring() == 200
        fake.said("real")


def test_a_body_that_does_not_end_holds_no_one_up(
    tmp_path: Path, fake: FakeTelegram, webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telegram_webhook, "BODY_SECONDS", 1.0)
    with bot(tmp_path, fake, Script("real").model, webhook=webhook):
        fake.wait(lambda one: one.webhook)
        begun = time.monotonic()
        with opened(fake, b"content-length: 100\r\n", b"{") as slow:
            fake.write("hello")
            assert fake.bring() == 200
            fake.said("real")
            assert b" 408 " in slow.recv(1_000)
        assert time.monotonic() - begun < 20


def test_who_has_no_secret_is_refused_before_the_body(
    tmp_path: Path, fake: FakeTelegram, webhook: str
) -> None:
    with bot(tmp_path, fake, Script("real").model, webhook=webhook):
        fake.wait(lambda one: one.webhook)
        with opened(fake, b"content-length: 100\r\n", b"", secret=b"wrong") as slow:
            assert b" 403 " in slow.recv(1_000)


def opened(
    fake: FakeTelegram, headers: bytes, body: bytes, *, secret: bytes = b""
) -> socket.socket:
    """Send a request with the secret whose body is not whole."""
    address = urlsplit(fake.webhook["url"])
    found = socket.create_connection((address.hostname or "", address.port or 0), timeout=20)
    given = secret or fake.webhook["secret_token"].encode()
    found.sendall(
        b"POST /from-telegram HTTP/1.1\r\nhost: x\r\n"
        b"x-telegram-bot-api-secret-token: " + given + b"\r\n" + headers + b"\r\n" + body
    )
    return found


def answered(fake: FakeTelegram, headers: bytes, body: bytes) -> bytes:
    with opened(fake, headers, body) as connection:
        return connection.recv(1_000)

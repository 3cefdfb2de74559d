"""Telegram brings its updates to a webhook: confirmed when they are stored."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.channels.bots import bot, free_address
from tests.extensions.channels.fake_telegram import TOKEN, FakeTelegram, fake_telegram
from tests.extensions.chat.test_conversation import Script

from skillhouse.extensions.channels.chat_channel import ChatUpdate
from skillhouse.extensions.channels.mailbox import Mailbox
from skillhouse.extensions.channels.telegram import ALLOWED_UPDATES, TelegramChannel
from skillhouse.floor import ConfigError

pytestmark = pytest.mark.slow


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as made:
        yield made


def test_what_is_brought_is_answered_and_nothing_is_asked_for(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    address = free_address()
    with bot(tmp_path, fake, Script("an answer").model, webhook=address):
        fake.write("hello")
        assert fake.bring() == 200
        fake.said("an answer")
        assert fake.webhook["url"] == address
        assert fake.webhook["allowed_updates"] == ALLOWED_UPDATES
        assert fake.webhook["max_connections"] == "1"
    assert fake.of("getUpdates") == []
    assert fake.webhook, "while the bot is away, Telegram keeps what comes for the webhook"


def test_an_update_is_confirmed_only_after_it_is_stored(
    tmp_path: Path, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Mailbox.take
    fails = [True]

    def failing(self: Mailbox, channel: str, messages: Sequence[ChatUpdate], idle: Any) -> Any:
        if fails.pop() if fails else False:
            raise sqlite3.OperationalError("disk I/O error")
        found = take(self, channel, messages, idle)
        stored.append(fake.of("sendMessage") == [])
        return found

    stored: list[bool] = []
    monkeypatch.setattr(Mailbox, "take", failing)
    with bot(tmp_path, fake, Script("an answer").model, webhook=free_address()):
        fake.write("hello")
        assert fake.bring() == 500
        assert stored == []
        assert fake.bring() == 200
        assert stored == [True]
        fake.said("an answer")


def test_a_webhook_that_cannot_be_set_now_is_set_later(tmp_path: Path, fake: FakeTelegram) -> None:
    fake.faults["setWebhook"] = deque([500, "before", 429])
    with bot(tmp_path, fake, Script("an answer").model, webhook=free_address()):
        fake.write("hello")
        assert fake.bring() == 200
        fake.said("an answer", seconds=60)


def test_another_start_has_another_secret_and_asking_ends_the_webhook(
    tmp_path: Path, fake: FakeTelegram
) -> None:
    address = free_address()
    secrets = set()
    for _ in range(2):
        with bot(tmp_path, fake, Script().model, webhook=address):
            secrets.add(fake.wait(lambda one: one.webhook)["secret_token"])
        fake.webhook.clear()
    assert len(secrets) == 2
    fake.webhook = {"url": address}
    with bot(tmp_path, fake, Script("an answer").model):
        fake.write("hello")
        fake.said("an answer")
    assert fake.webhook == {}


def test_an_address_that_cannot_be_is_said_at_the_start() -> None:
    with pytest.raises(ConfigError, match="an address with https"):
        TelegramChannel(TOKEN, commands={}, webhook="http://bot.example.org/x")
    taken = free_address()
    port = int(taken.split(":")[2].split("/")[0])
    first = TelegramChannel(TOKEN, commands={}, webhook=taken, listen=("127.0.0.1", port))
    with pytest.raises(ConfigError, match="cannot listen on 127"):
        TelegramChannel(TOKEN, commands={}, webhook=taken, listen=("127.0.0.1", port))
    anyio.run(first.close)

"""Tests of change_webhook.py."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from tests.extensions.registry.hosting.test_release_store_contract import add
from tests.harness import until

from skillhouse.approval.webhook import verified_id
from skillhouse.extensions.registry import change_webhook
from skillhouse.extensions.registry.change_webhook import ChangeWebhook
from skillhouse.extensions.registry.hosting import HostedRepository, open_repository
from skillhouse.extensions.registry.hosting.release_store import Actor
from skillhouse.floor import ConfigError
from skillhouse.net import NetError

SECRET = base64.b64encode(b"s" * 32).decode()
URL = "https://hooks.example.com/skills"


class Receiver:
    """Takes messages, or answers what it is set to."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.taken: list[dict[str, object]] = []
        self.ids: list[str] = []
        self.tries = 0

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        self.tries += 1
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 0:
            raise NetError("unreachable", "no answer")
        if status == 204:
            assert url == URL
            now = int(headers["webhook-timestamp"])
            self.ids.append(verified_id(headers, body, secret=b"s" * 32, now_seconds=now))
            self.taken.append(json.loads(body))
        return status


@pytest.fixture
def repository(tmp_path: Path) -> HostedRepository:
    return open_repository(tmp_path / "registry", name="skills.example.com")


def hook(repository: HostedRepository, receiver: Receiver) -> ChangeWebhook:
    return ChangeWebhook(repository, URL, SECRET, receiver, look_seconds=0.01)


def test_each_change_is_sent_signed_with_who_made_it(repository: HostedRepository):
    add(repository.store, skill="before")
    receiver = Receiver()
    with closing(repository.store), hook(repository, receiver) as webhook:
        add(repository.store, skill="pdf", actor=Actor("3f2a9c81d0b4", "", "192.0.2.7"))
        (message,) = until(lambda: receiver.taken[:])
        until(lambda: not webhook.waiting)
    assert receiver.ids == ["skills.example.com-2"]
    assert message == {
        "type": "skill.publish",
        "timestamp": "2026-11-23T12:00:00Z",
        "data": {
            "registry": "skills.example.com",
            "seq": 2,
            "kind": "publish",
            "name": "pdf",
            "version": "1.0.0",
            "at": "2026-11-23T12:00:00Z",
            "actor": {"token": "3f2a9c81d0b4", "claims": "", "address": "192.0.2.7"},
        },
    }


def test_what_is_not_taken_is_sent_again_in_its_order(repository: HostedRepository):
    receiver = Receiver(0, 503, 429)
    with closing(repository.store), hook(repository, receiver) as webhook:
        for skill in ("pdf", "csv"):
            add(repository.store, skill=skill)
        until(lambda: len(receiver.taken) == 2)
        assert (webhook.failures, webhook.dropped) == (3, 0)
    assert receiver.ids == ["skills.example.com-1", "skills.example.com-2"]


def test_what_is_refused_holds_up_no_other(repository: HostedRepository):
    receiver = Receiver(400, 400, 400)
    with closing(repository.store), hook(repository, receiver) as webhook:
        for skill in ("pdf", "csv"):
            add(repository.store, skill=skill)
        until(lambda: bool(receiver.taken))
        assert (webhook.failures, webhook.dropped) == (3, 1)
    assert receiver.ids == ["skills.example.com-2"]


def test_a_receiver_that_hangs_holds_up_no_publishing_and_a_restart_goes_on(
    repository: HostedRepository,
):
    release = threading.Event()

    class Hung(Receiver):
        def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
            release.wait(20)
            return 503

    with closing(repository.store):
        with hook(repository, Hung()) as webhook:
            for number in range(20):
                add(repository.store, version=f"1.0.{number}")
            assert webhook.waiting == 20
            release.set()
        receiver = Receiver()
        with hook(repository, receiver):
            until(lambda: len(receiver.taken) == 20)
        assert receiver.ids == [f"skills.example.com-{number}" for number in range(1, 21)]


def test_of_too_many_the_oldest_are_passed_over(
    repository: HostedRepository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(change_webhook, "WAITING_MAX", 3)
    repository.store.set_setting("webhook", b"0")
    for number in range(5):
        add(repository.store, version=f"1.0.{number}")
    receiver = Receiver()
    with closing(repository.store), hook(repository, receiver) as webhook:
        until(lambda: len(receiver.taken) == 3)
        assert webhook.dropped == 2


@pytest.mark.parametrize(
    "url", ["http://hooks.example.com/", "https://u:p@hooks.example.com/", "ftp://x/", "no address"]
)
def test_an_address_that_would_carry_it_in_clear_is_refused(repository: HostedRepository, url: str):
    with closing(repository.store), pytest.raises(ConfigError):
        ChangeWebhook(repository, url, SECRET, Receiver())

"""Tests of the companion app's pushes: sent, encrypted, given up, and led nowhere private."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import http_ece
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.approval.questions import question
from tests.extensions.server.companion.app_device import AppDevice, code_of
from tests.extensions.server.pages.served import PORT, client_of
from tests.house.places import make_places
from tests.loopback_http import QuietHandler, serving_http

from skillhouse.extensions.server.api.events import EventLog
from skillhouse.extensions.server.app import make_app
from skillhouse.extensions.server.companion import app_pushes
from skillhouse.extensions.server.companion.app_pushes import (
    BACK_OFF_SECONDS,
    FAILURES_MAX,
    KEY_FILE,
    SENDING_MS,
    Pushes,
)
from skillhouse.extensions.server.companion.companion_watch import CompanionWatch
from skillhouse.house import Skillhouse, configured

pytestmark = pytest.mark.slow


class PushService(ThreadingHTTPServer):
    """A push service on this machine, and the browser that decrypts what it gets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PushHandler)
        self.status = 201
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.auth = bytes(range(16))

    def subscription(self, path: str = "/push/1") -> dict[str, str]:
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return {
            "endpoint": f"http://127.0.0.1:{self.server_address[1]}{path}",
            "p256dh": base64.urlsafe_b64encode(point).decode().rstrip("="),
            "auth": base64.urlsafe_b64encode(self.auth).decode().rstrip("="),
        }

    def notes(self) -> list[dict[str, str]]:
        return [
            json.loads(
                http_ece.decrypt(
                    body, private_key=self.key, auth_secret=self.auth, version="aes128gcm"
                )
            )
            for _, body in self.got
        ]


class _PushHandler(QuietHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, PushService)
        body = self.rfile.read(int(self.headers["content-length"]))
        server.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.answer(server.status)


class Scene:
    def __init__(self, house: Skillhouse, service: PushService) -> None:
        self.house = house
        self.service = service
        self.now = 2_000_000_000.0
        app = make_app(house, token="token-of-this-start", port=PORT)
        self.phone = AppDevice(client_of(app, {})).paired(house)
        self.pushes = Pushes(
            house.config.state_directory, house.services.network.push, clock=lambda: self.now
        )
        self.watch = CompanionWatch(house, self.pushes, EventLog())

    def look(self) -> None:
        anyio.run(self.watch.look)

    @property
    def is_subscribed(self) -> bool:
        return self.pushes.has(self.phone.id)


@pytest.fixture
def service() -> Iterator[PushService]:
    with serving_http(PushService()) as server:
        yield server


def scene_of(base: Path, service: PushService, *, config: str) -> Iterator[Scene]:
    places = make_places(base)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text(config)
    with Skillhouse(configured(places)) as house:
        yield Scene(house, service)


@pytest.fixture
def scene(tmp_path: Path, service: PushService) -> Iterator[Scene]:
    yield from scene_of(tmp_path, service, config='[net]\nprivate = ["127.0.0.1/32"]\n')


@pytest.fixture
def guarded(tmp_path: Path, service: PushService) -> Iterator[Scene]:
    yield from scene_of(tmp_path, service, config="")


def test_a_question_is_pushed_once_encrypted_and_without_its_content(scene: Scene) -> None:
    assert scene.phone.say("subscribe", **scene.service.subscription()).status_code == 200
    asked = scene.house.approvals.open(question("/w/secret-plan.txt", user="local"))
    scene.look()
    scene.look()
    ((headers, body),) = scene.service.got
    assert headers["content-encoding"] == "aes128gcm"
    assert headers["ttl"] == "600"
    assert scene.service.notes() == [{"kind": "question", "id": asked.id, "tool": "write"}]
    assert b"write" not in body
    # The service knows us by our key, which the subscription was made for.
    scheme, token, key = headers["authorization"].replace(",", " ").split()
    assert (scheme, key) == ("vapid", f"k={scene.pushes.public_key}")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["aud"] == scene.service.subscription()["endpoint"].rpartition("/push")[0]
    assert scene.phone.say("look").json()["push_key"] == scene.pushes.public_key
    assert (scene.house.config.state_directory / KEY_FILE).stat().st_mode & 0o777 == 0o600
    scene.phone.say("unsubscribe")
    scene.house.approvals.open(question("/w/other.txt"))
    scene.look()
    assert len(scene.service.got) == 1


def test_two_servers_of_a_state_send_a_note_once(scene: Scene) -> None:
    scene.phone.say("subscribe", **scene.service.subscription())
    beside = CompanionWatch(scene.house, scene.pushes, EventLog())
    first = scene.house.approvals.open(question("/w/a.txt"))
    scene.look()
    anyio.run(beside.look)
    second = scene.house.approvals.open(question("/w/b.txt"))
    anyio.run(beside.look)
    scene.look()
    assert [one["id"] for one in scene.service.notes()] == [first.id, second.id]
    # One that began to send and ended is followed by another one.
    third = scene.house.approvals.open(question("/w/c.txt"))
    assert scene.pushes.take(scene.phone.id, third.id) == "taken"
    scene.look()
    assert len(scene.service.got) == 2
    scene.now += SENDING_MS / 1000 + 1
    anyio.run(beside.look)
    assert [one["id"] for one in scene.service.notes()][2:] == [third.id]


def test_a_user_is_woken_by_questions_that_are_theirs(scene: Scene) -> None:
    robin = AppDevice(scene.phone.client).paired(scene.house, user="robin")
    assert robin.say("subscribe", **scene.service.subscription()).status_code == 200
    scene.house.approvals.open(question("/w/a.txt"))
    scene.look()
    assert scene.service.got == []
    own = scene.house.approvals.open(question("/w/b.txt", user="robin"))
    scene.look()
    assert [one["id"] for one in scene.service.notes()] == [own.id]


@pytest.mark.parametrize("status", [404, 410])
def test_what_is_gone_for_good_is_deleted(scene: Scene, status: int) -> None:
    scene.phone.say("subscribe", **scene.service.subscription())
    scene.service.status = status
    scene.house.approvals.open(question())
    scene.look()
    assert not scene.is_subscribed


def test_a_failure_waits_longer_each_time_and_ends(scene: Scene) -> None:
    scene.phone.say("subscribe", **scene.service.subscription())
    scene.service.status = 503
    scene.house.approvals.open(question())
    scene.look()
    scene.look()
    assert len(scene.service.got) == 1
    scene.now += 2 * BACK_OFF_SECONDS
    scene.look()
    scene.now += 2 * BACK_OFF_SECONDS
    scene.look()
    assert len(scene.service.got) == 2
    scene.service.status = 201
    scene.now += 2 * BACK_OFF_SECONDS
    scene.look()
    assert len(scene.service.got) == 3
    (due,) = scene.pushes.due()
    assert due.failures == 0
    scene.service.status = 503
    scene.house.approvals.open(question("/w/b.txt"))
    for _ in range(FAILURES_MAX):
        scene.look()
        scene.now += 3_601
    assert not scene.is_subscribed


def test_a_lost_device_gets_no_more_pushes(scene: Scene) -> None:
    scene.phone.say("subscribe", **scene.service.subscription())
    scene.house.services.enforcement.devices.unpair(scene.phone.id)
    scene.house.approvals.open(question())
    scene.look()
    assert scene.service.got == []
    assert not scene.is_subscribed


def test_an_address_in_a_private_network_is_not_reached(guarded: Scene) -> None:
    """A browser names it: else any app could have us post to what only this machine reaches."""
    endpoint = guarded.service.subscription()
    assert guarded.phone.say("subscribe", **endpoint).status_code == 200
    guarded.house.approvals.open(question())
    guarded.look()
    assert guarded.service.got == []
    (failed,) = Pushes(
        guarded.house.config.state_directory,
        guarded.house.services.network.push,
        clock=lambda: guarded.now + 3_601,
    ).due()
    assert failed.failures == 1


def test_what_is_no_subscription_is_not_kept(guarded: Scene) -> None:
    good = guarded.service.subscription()
    bad: list[dict[str, Any]] = [
        {"endpoint": "http://push.example/1"},
        {"endpoint": "http://10.0.0.1/1"},
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": "https://user:password@push.example/1"},
        {"endpoint": "https://push.example/" + "a" * 2_000},
        {"endpoint": "https://push.example/\r\nx: y"},
        {"endpoint": "https://[::1"},
        {"p256dh": ""},
        {"p256dh": "A" * 87},
        {"auth": "AAAA"},
        {"auth": "\u202e"},
    ]
    for wrong in bad:
        answer = guarded.phone.say("subscribe", **{**good, **wrong})
        assert (answer.status_code, code_of(answer)) == (409, "no-push"), wrong
    assert not guarded.is_subscribed


@pytest.mark.file_state
def test_a_key_that_was_cut_off_while_it_was_written_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def post(*_: Any) -> int:
        return 201

    def cut_off() -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(app_pushes, "new_key", cut_off)
        with pytest.raises(KeyboardInterrupt):
            Pushes(tmp_path, post).public_key.encode()
    made = Pushes(tmp_path, post).public_key
    assert made
    assert Pushes(tmp_path, post).public_key == made
    assert [one.name for one in tmp_path.iterdir()] == [KEY_FILE]


def test_a_failure_holds_the_look_up_once_however_many_questions_wait(scene: Scene) -> None:
    scene.phone.say("subscribe", **scene.service.subscription())
    scene.service.status = 500
    for name in ("a", "b", "c"):
        scene.house.approvals.open(question(f"/w/{name}.txt"))
    scene.look()
    assert len(scene.service.got) == 1

"""Attacks on the companion app: forged and repeated signatures, guessed codes, lost devices."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import ApprovalState, signed_headers
from skillhouse.approval.pairing_codes import CODE_SECONDS, CODE_TRIES
from skillhouse.approval.webhook import WINDOW_SECONDS
from skillhouse.extensions.server.app import make_app
from skillhouse.house import Skillhouse, configured
from tests.approval.questions import question
from tests.extensions.server.companion.app_device import ORIGIN, AppDevice, code_of
from tests.extensions.server.companion.test_companion_browser import RECIPIENT, payment
from tests.extensions.server.pages.served import COOKIE, PORT, client_of
from tests.house.places import make_places

pytestmark = pytest.mark.slow


class Scene:
    """A house, a stranger's client without any key, and a phone that is paired."""

    def __init__(self, house: Skillhouse) -> None:
        self.house = house
        app = make_app(
            house, token="token-of-this-start", port=PORT, session="session-of-this-start"
        )
        self.client = client_of(app, {})
        self.owner = client_of(app, COOKIE)
        self.phone = AppDevice(self.client).paired(house)
        self.asked = house.approvals.open(question())

    def state(self, asked: Any = None) -> ApprovalState:
        return self.house.approvals.get((asked or self.asked).id).state

    def other(self) -> AppDevice:
        return AppDevice(self.client).paired(self.house)


@pytest.fixture
def scene(tmp_path: Path):
    with Skillhouse(configured(make_places(tmp_path))) as house:
        yield Scene(house)


def test_the_app_answers_and_nothing_of_it_is_a_secret_of_ours(scene: Scene) -> None:
    assert scene.phone.answer(scene.asked).json() == {"done": "approved"}
    found = scene.house.approvals.get(scene.asked.id)
    assert (found.state, found.channel, found.device) == (
        ApprovalState.APPROVED,
        "device",
        scene.phone.id,
    )


def test_a_signature_is_of_one_device_one_message_and_one_time(scene: Scene) -> None:
    phone, other = scene.phone, scene.other()
    text = phone.text(**phone.given(scene.asked))
    good = phone.headers(text)
    forged = other.headers(text)
    changed = text.replace(b'"once"', b'"no"')
    as_alive = text.replace(b'"answer"', b'"stop"', 1)
    attempts = [
        (text, ORIGIN, "missing"),
        (text, forged, "wrong"),
        (changed, good, "wrong"),
        (as_alive, good, "wrong"),
        (text.replace(phone.id.encode(), other.id.encode()), good, "wrong"),
        (text, {**good, "webhook-id": "another"}, "wrong"),
        (text, {**good, "webhook-timestamp": str(int(time.time()) + 1)}, "wrong"),
        (
            text,
            {**good, "webhook-signature": good["webhook-signature"].replace("p256", "v1")},
            "wrong",
        ),
        (text, {**good, "webhook-signature": "p256," + "A" * 88}, "wrong"),
        (text, {**good, "webhook-signature": "p256,"}, "wrong"),
        (text, phone.headers(text, at=time.time() - WINDOW_SECONDS - 5), "old"),
        (text, phone.headers(text, at=time.time() + WINDOW_SECONDS + 5), "old"),
        (b"[]", good, "missing"),
        (b"{" * 9_000, good, "missing"),
        (phone.text("resume"), phone.headers(phone.text("resume")), "missing"),
    ]
    for sent, headers, code in attempts:
        answer = scene.client.post("/companion/message", content=sent, headers=headers)
        assert (answer.status_code, code_of(answer)) == (401, code), (sent, headers)
    assert scene.state() is ApprovalState.OPEN
    assert not scene.house.services.enforcement.tiers.is_stopped
    assert phone.send(text, good).status_code == 200
    assert code_of(phone.send(text, good)) == "repeated"


def test_a_shared_secret_and_a_key_are_two_kinds_that_stay_apart(scene: Scene) -> None:
    """An app has no secret: an empty one must sign nothing at the door of the other devices."""
    request = scene.asked.request
    body = json.dumps(
        {
            "device": scene.phone.id,
            "approval": request.id,
            "nonce": request.nonce,
            "content_digest": request.content_digest,
            "answer": "once",
        }
    ).encode()
    now = time.time()
    for secret in (b"", b"\0" * 32):
        headers = signed_headers(body, secret=secret, message_id="m", now_seconds=now)
        answer = scene.client.post("/approvals/device", content=body, headers=headers)
        assert (answer.status_code, code_of(answer)) == (401, "wrong")
    answer = scene.client.post("/approvals/device", content=body, headers=scene.phone.headers(body))
    assert answer.status_code == 401
    # Nor does a device with a secret pass for an app.
    tablet = scene.house.services.enforcement.devices.pair("tablet", user="local")
    scene.phone.id = tablet.id
    assert code_of(scene.phone.answer(scene.asked)) == "wrong"
    assert scene.state() is ApprovalState.OPEN


def test_an_answer_is_to_the_question_that_was_shown(scene: Scene) -> None:
    other = scene.house.approvals.open(question("/w/other.txt"))
    for values, code in (
        ({"nonce": other.request.nonce}, "wrong-nonce"),
        ({"content_digest": other.request.content_digest}, "another-call"),
        ({"approval": other.id}, "another-call"),
        ({"answer": "always"}, "not-offered"),
        ({"answer": "session"}, "not-offered"),
    ):
        answer = scene.phone.say(**{**scene.phone.given(scene.asked), **values})
        assert (answer.status_code, code_of(answer)) == (409, code)
    assert [scene.state(), scene.state(other)] == [ApprovalState.OPEN] * 2


def test_what_signs_is_approved_by_who_typed_amount_and_recipient(scene: Scene) -> None:
    asked = scene.house.approvals.open(question(**payment()))
    for typed in ("", "1.5", "2.5 11CE", f"1.5 {RECIPIENT[:4]}"):
        assert code_of(scene.phone.answer(asked, typed=typed)) == "wrong-phrase"
    assert scene.state(asked) is ApprovalState.OPEN
    assert scene.phone.answer(asked, typed="1.5 11ce").json() == {"done": "approved"}


def test_a_device_of_one_user_sees_and_answers_nothing_of_another(scene: Scene) -> None:
    stranger = AppDevice(scene.client).paired(scene.house, user="robin")
    seen = stranger.say("look").json()
    assert (seen["waiting"], scene.asked.id in seen["html"]) == (0, False)
    assert code_of(stranger.answer(scene.asked)) == "unknown"
    own = scene.house.approvals.open(question("/w/robin.txt", user="robin"))
    assert stranger.say("look").json()["waiting"] == 1
    assert stranger.answer(own, "no").json() == {"done": "denied"}
    assert "write: /w/a.txt" not in stranger.say("look", part="activity").json()["html"]


def test_a_lost_device_ends_at_once(scene: Scene) -> None:
    devices = scene.house.services.enforcement.devices
    assert scene.phone.answer(scene.asked).status_code == 200
    later = scene.house.approvals.open(question("/w/later.txt"))
    ended = devices.unpair(scene.phone.id)
    assert ended is not None
    assert ended.approvals == 1
    assert scene.state() is ApprovalState.EXPIRED
    for answer in (scene.phone.answer(later), scene.phone.say("look"), scene.phone.say("alive")):
        assert (answer.status_code, code_of(answer)) == (401, "wrong")
    assert scene.state(later) is ApprovalState.OPEN


def test_codes_are_guessed_a_few_times_used_once_and_end(scene: Scene) -> None:
    codes = scene.house.services.companion.codes
    code = codes.issue("tablet", user="local")
    for _ in range(CODE_TRIES):
        guess = code[:5] + "2222-2222"
        assert code_of(AppDevice(scene.client).pair(guess)) == "wrong-code"
    assert code_of(AppDevice(scene.client).pair(code)) == "wrong-code"
    # Guesses that name no code end none.
    fresh = codes.issue("tablet", user="local")
    for letter in "ABCDEFGHJ":
        AppDevice(scene.client).pair(f"{letter * 4}-2222-2222")
    device = AppDevice(scene.client)
    answer = device.pair(fresh.lower().replace("-", " "))
    assert (answer.status_code, answer.json()["name"]) == (200, "tablet")
    assert code_of(AppDevice(scene.client).pair(fresh)) == "wrong-code"
    for wrong in ("", "-", "x" * 60, "\u202e" * 12):
        assert code_of(AppDevice(scene.client).pair(wrong)) == "wrong-code"


def test_an_old_code_pairs_nothing(tmp_path: Path) -> None:
    from skillhouse.approval import ApprovalError, PairingCodes  # noqa: PLC0415

    now = [1_000_000.0]
    codes = PairingCodes(tmp_path, clock=lambda: now[0])
    old, back = codes.issue("a", user="local"), codes.issue("b", user="local")
    now[0] += CODE_SECONDS
    with pytest.raises(ApprovalError, match="has ended"):
        codes.take(old)
    now[0] -= 10 * CODE_SECONDS
    with pytest.raises(ApprovalError, match="has ended"):
        codes.take(back)


def test_a_key_pairs_only_who_has_it(scene: Scene) -> None:
    """Else a stranger with a code could answer under the key, and so the name, of another."""
    codes = scene.house.services.companion.codes
    thief = AppDevice(scene.client)
    thief.public_key = scene.phone.public_key
    code = codes.issue("tablet", user="local")
    assert code_of(thief.pair(code)) == "wrong"
    for key in ("", "AAAA", "BA" * 44, scene.phone.public_key[:-4]):
        thief.public_key = key
        assert code_of(thief.pair(code)) in ("missing", "wrong")
    assert len(scene.house.services.enforcement.devices.all()) == 1
    assert AppDevice(scene.client).pair(code).status_code == 200


def test_without_the_key_a_cookie_a_token_or_an_id_read_nothing(scene: Scene) -> None:
    """There is no session to steal: each message is signed, also one that only reads."""
    text = scene.phone.text("look")
    for client in (scene.client, scene.owner):
        for headers in ({}, {"authorization": "Bearer token-of-this-start"}):
            answer = client.post("/companion/message", content=text, headers={**headers, **ORIGIN})
            assert (answer.status_code, code_of(answer)) == (401, "missing")
    answer = scene.phone.say("look")
    assert "set-cookie" not in answer.headers
    # The other way round, a device's signature opens no page and no API.
    for path in ("/", "/approvals", "/system", "/api/v1/approvals", "/api/v1/devices"):
        assert scene.client.get(path, headers=scene.phone.headers(text)).status_code == 401


def test_another_page_cannot_reach_it(scene: Scene) -> None:
    text = scene.phone.text("stop")
    headers = scene.phone.headers(text)
    for changed in (
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"sec-fetch-site": "cross-site"},
    ):
        answer = scene.phone.send(text, {**headers, **changed})
        assert answer.status_code in (403, 421)
    assert not scene.house.services.enforcement.tiers.is_stopped
    for path in ("/companion/message", "/companion/pair"):
        assert scene.client.get(path).status_code == 405
    assert scene.client.post("/companion/", headers=ORIGIN).status_code == 405


def test_texts_of_a_call_are_no_markup_in_the_app(scene: Scene) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>\u202e\x1b[2J"
    scene.house.approvals.open(
        question("/w/" + evil, title=evil, sent=((evil, evil),), found=(("note", evil),))
    )
    html = scene.phone.say("look").json()["html"]
    assert "&lt;img src=x" in html
    assert not re.search(r"<(img|script)|\u202e|\x1b", html)


def test_a_code_is_made_by_the_key_of_this_start_alone(scene: Scene) -> None:
    """A browser's cookie, which another server of this machine may have, pairs no device."""
    wanted = {"name": "phone", "page": "https://house.example"}
    proof = scene.owner.get(
        "/api/v1/proof", params={"method": "POST", "path": "/api/v1/devices/codes"}
    ).json()["proof"]
    answer = scene.owner.post(
        "/api/v1/devices/codes", json=wanted, headers={**ORIGIN, "skillhouse-proof": proof}
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "owner-wanted")
    bearer = {"authorization": "Bearer token-of-this-start"}
    made = scene.client.post("/api/v1/devices/codes", json=wanted, headers=bearer)
    assert made.status_code == 201
    assert made.json()["address"].startswith("https://house.example/companion/#code=")
    assert made.json()["picture"].startswith("<svg")
    for page in ("javascript:alert(1)", "https://a@b", "https://a/b", "https://a#b"):
        refused = scene.client.post(
            "/api/v1/devices/codes", json={**wanted, "page": page}, headers=bearer
        )
        assert refused.status_code == 422 or refused.status_code == 400


def test_the_worker_reaches_no_further_than_the_app(scene: Scene) -> None:
    """A service worker answers for its scope: from the root it could answer for every page."""
    worker = scene.client.get("/companion/worker.js")
    assert worker.status_code == 200
    assert "service-worker-allowed" not in worker.headers
    assert scene.owner.get("/worker.js").status_code == 404
    policy = scene.client.get("/companion/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    # What it keeps is the same for everyone.
    kept = re.findall(r'^  (?:HOME|"(/[^"]+)"),$', worker.text, re.MULTILINE)
    assert len(kept) == 8
    for path in ("/companion/", *filter(None, kept)):
        bare, owned = scene.client.get(path), scene.owner.get(path)
        assert (bare.status_code, bare.content) == (200, owned.content), path

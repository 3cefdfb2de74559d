"""Tests of the companion app's absence under the design that has it (S000-100, S000-110)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.server.companion.app_device import AppDevice
from tests.extensions.server.pages.served import COOKIE, PORT, client_of
from tests.states import state_at
from tests.tools.houses import Person, house_at
from tests.tools.test_gate_tiers import ALLOW, WRITE, policy, records

from skillhouse.approval import ApprovalState
from skillhouse.extensions.server.api.events import EventLog
from skillhouse.extensions.server.app import make_app
from skillhouse.extensions.server.companion.app_pushes import Pushes
from skillhouse.extensions.server.companion.companion_watch import CompanionWatch
from skillhouse.house import Skillhouse
from skillhouse.store import STATE_FILE

pytestmark = [pytest.mark.slow, pytest.mark.under("owliabot")]

MINUTE_MS = 60_000


class Events(EventLog):
    def __init__(self) -> None:
        super().__init__()
        self.published: list[tuple[str, Any]] = []

    def publish(self, kind: str, value: Any, *, user: str = "") -> None:
        self.published.append((kind, value))


class Scene:
    def __init__(self, house: Skillhouse) -> None:
        self.house = house
        app = make_app(
            house, token="token-of-this-start", port=PORT, session="session-of-this-start"
        )
        self.owner = client_of(app, COOKIE)
        self.phone = AppDevice(client_of(app, {})).paired(house)
        self.events = Events()
        network = house.services.network
        pushes = Pushes(house.config.state_directory, network.push)
        self.watch = CompanionWatch(house, pushes, self.events)

    def passes(self, minutes: float) -> None:
        """Have the last sign of life be so much longer ago."""
        path = self.house.config.state_directory / STATE_FILE
        with state_at(path) as connection:
            changed = connection.execute(
                "UPDATE tier_mark SET at_ms = at_ms - ? WHERE name = 'companion'",
                (int(minutes * MINUTE_MS),),
            )
            assert changed.rowcount == 1

    def said(self) -> list[tuple[str, int | None]]:
        self.watch.look_at_absence()
        return [
            (one.state, one.minutes) for kind, one in self.events.published if kind == "companion"
        ]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    policy(tmp_path, "write: {tier: 3}\n  edit: {tier: 1}")
    (tmp_path / "project").mkdir()
    with house_at(tmp_path, ALLOW, person=Person(), profile="owliabot") as house:
        yield Scene(house)


EDIT = ("edit", {"path": "a.txt", "old": "x", "new": "y"})


@pytest.mark.req("S000-100", "S000-107")
def test_tier_1_is_asked_in_the_companion_app(scene: Scene) -> None:
    assert scene.house.call_sync(*WRITE).status == "ok"
    asked = scene.house.call_sync(*EDIT)
    assert asked.status == "pending", asked.content
    approval = scene.house.approvals.get(asked.approval_id or "")
    # Neither the conversation nor a rule of the model answers it.
    html = scene.phone.say("look").json()["html"]
    assert f'data-approval="{approval.id}"' in html
    assert scene.phone.answer(approval).json() == {"done": "approved"}
    assert scene.house.call_sync(*EDIT).status == "ok"
    run = records(scene.house)[-1][2]
    assert run.confirmation is not None
    assert (run.tier, run.confirmation.channel) == ("1", "device")


@pytest.mark.req("S000-110")
def test_away_for_30_minutes_only_reads_go_on_until_one_touch(scene: Scene) -> None:
    assert scene.house.call_sync(*WRITE).status == "ok"
    scene.passes(19)
    assert scene.said() == []
    scene.passes(2)
    assert scene.said() == [("soon", 9)]
    assert scene.house.call_sync(*WRITE).status == "ok"
    assert "Minutes until only reads go on: 9" in " ".join(scene.owner.get("/").text.split())
    scene.passes(10)
    assert scene.said() == [("soon", 9), ("now", 0)]
    refused = scene.house.call_sync(*WRITE)
    assert refused.status == "denied"
    assert "only reads go on until it is back" in refused.content
    assert records(scene.house)[-1][2].detail["tier_reason"] == "companion-app-offline"
    assert scene.house.call_sync("read", {"path": "a.txt"}).status == "ok"
    assert "Only reads go on, since" in scene.owner.get("/").text
    # One touch opens the app, which says so.
    assert scene.phone.say("look").json()["was_away"] is True
    assert scene.phone.say("look").json()["was_away"] is False
    assert scene.said()[-1] == ("back", None)
    assert scene.house.call_sync(*WRITE).status == "ok"


@pytest.mark.req("S000-110")
def test_an_open_app_and_an_answer_are_signs_of_life_and_others_are_not(scene: Scene) -> None:
    assert scene.house.call_sync(*WRITE).status == "ok"
    warning = scene.house.services.companion.warning
    asked = scene.house.approvals.get(scene.house.call_sync(*EDIT).approval_id or "")
    for sign in (
        lambda: scene.phone.say("look"),
        lambda: scene.phone.answer(asked, "no"),
        lambda: scene.phone.say("alive"),
    ):
        scene.passes(25)
        assert warning() == 5
        # Neither what is not signed by the device nor the owner's own page is one.
        text = scene.phone.text("alive")
        stranger = AppDevice(scene.phone.client)
        stranger.id = scene.phone.id
        assert scene.phone.send(text, stranger.headers(text)).status_code == 401
        assert scene.owner.get("/approvals").status_code == 200
        assert warning() == 5
        assert sign().status_code == 200
        assert warning() is None
    assert scene.house.approvals.get(asked.id).state is ApprovalState.DENIED


@pytest.mark.req("S000-110")
def test_an_app_that_is_lost_for_good_is_not_waited_for(scene: Scene) -> None:
    other = AppDevice(scene.phone.client).paired(scene.house)
    scene.passes(31)
    devices = scene.house.services.enforcement.devices
    devices.unpair(other.id)
    assert scene.house.call_sync(*WRITE).status == "denied"
    devices.unpair(scene.phone.id)
    assert scene.house.call_sync(*WRITE).status == "ok"
    assert scene.house.services.companion.warning() is None


@pytest.mark.req("S000-110")
def test_another_profile_waits_for_no_app(tmp_path: Path) -> None:
    policy(tmp_path, "write: {tier: 3}")
    (tmp_path / "project").mkdir()
    with house_at(tmp_path, ALLOW, person=Person(), profile="owliabot") as house:
        scene = Scene(house)
        scene.passes(31)
        assert house.call_sync(*WRITE).status == "denied"
    with house_at(tmp_path, ALLOW, profile="default") as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.services.companion.warning() is None

"""Tests of install/refresh.py: repositories are asked in the background, and seldom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse
from skillhouse.install.refresh import RETRY_SECONDS, WAKE_SECONDS, RepositoryRefresh
from skillhouse.manage import trust_notes
from skillhouse.registry import TrustMemory
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import UNSIGNED, configure
from tests.harness import until
from tests.loopback_http import QuietHandler, served
from tests.registry.repositories import StaticRepository, static_server

__all__ = ["place", "run"]
DAY = 86_400.0
DAILY = 'refresh = "24h"\n'


class Scene:
    """A repository on a server, a skill that is installed from it, and a clock."""

    def __init__(self, place: Path, run: Run, address: str, repository: StaticRepository) -> None:
        self.repository = repository
        self.now = 1_800_000_000.0
        self.down = threading.Event()
        configure(place, ("official", address, True), more=DAILY)
        assert run("install", "notes", *UNSIGNED)[0] == 0
        self.house = Skillhouse()
        self.memory = TrustMemory(self.house.config.state_directory)

    def refresh(self) -> RepositoryRefresh:
        """Return what another process would look with."""
        return RepositoryRefresh(
            self.house, start_seconds=0, clock=lambda: self.now, chance=lambda: 0.5
        )

    def fault(self) -> str:
        (skill,) = (one for one in self.house.index.skills if one.name == "notes")
        return self.house.services.composition.fault(skill)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def scene(place: Path, run: Run, asked: list[str]) -> Iterator[Scene]:
    repository = StaticRepository(place / "official")
    repository.make("1.0.0")
    made: list[Scene] = []

    def instead(handler: QuietHandler) -> bool:
        asked.append(handler.path)
        if made and made[0].down.is_set():
            handler.answer(503, b"")
            return True
        return False

    with served(static_server(repository.place, instead)) as address:
        made.append(Scene(place, run, address, repository))
        asked.clear()
        with made[0].house:
            yield made[0]


def test_what_was_taken_down_is_learned_without_a_verb(scene: Scene, asked: list[str]) -> None:
    scene.repository.change("notes", "1.0.0", state="revoked", reason="steals keys")
    assert scene.fault() == ""
    assert scene.refresh().look() == WAKE_SECONDS
    assert "revoked by its repository: steals keys" in scene.fault()
    (look,) = scene.memory.looks()
    assert (look.asked_ms, look.failures, look.problem) == (int(scene.now * 1000), 0, "")
    assert look.next_ms == int((scene.now + DAY) * 1000)
    assert "was asked 2027-01-15 08:00 UTC what it took down" in trust_notes(scene.house)[-1]


def test_it_is_asked_once_in_its_time_by_all_processes_together(
    scene: Scene, asked: list[str]
) -> None:
    scene.refresh().look()
    first = len(asked)
    assert first
    for _ in range(3):
        scene.refresh().look()
    scene.now += 0.8 * DAY
    scene.refresh().look()
    assert len(asked) == first
    scene.now += 0.3 * DAY
    scene.refresh().look()
    assert len(asked) == 2 * first


def test_a_repository_that_is_down_is_asked_less_and_less_often(
    scene: Scene, asked: list[str]
) -> None:
    scene.refresh().look()
    before = scene.memory.looks()[0].asked_ms
    scene.down.set()
    scene.now += 1.2 * DAY
    pauses = []
    for _ in range(12):
        scene.refresh().look()
        (look,) = scene.memory.looks()
        pauses.append(look.next_ms / 1000 - scene.now)
        scene.now = look.next_ms / 1000
    assert [round(one) for one in pauses[:4]] == [RETRY_SECONDS * 2**one for one in range(4)]
    assert round(pauses[-1]) == DAY
    assert (look.asked_ms, look.failures) == (before, 12)
    assert "12 tries failed since: repository `official`" in trust_notes(scene.house)[-1]
    scene.down.clear()
    scene.refresh().look()
    assert scene.memory.looks()[0].failures == 0


def test_a_clock_that_was_ahead_holds_up_no_look(scene: Scene, asked: list[str]) -> None:
    scene.now += 3_650 * DAY
    scene.refresh().look()
    scene.now -= 3_650 * DAY
    asked.clear()
    scene.refresh().look()
    assert asked


def test_a_thread_looks_and_ends_with_the_process(scene: Scene) -> None:
    scene.repository.change("notes", "1.0.0", state="revoked")
    with scene.refresh():
        until(lambda: scene.memory.of_skill("notes"))
        (thread,) = (one for one in threading.enumerate() if one.name == "refresh")
        assert thread.daemon
    thread.join(10)
    assert not thread.is_alive()


def test_without_the_setting_there_is_no_thread(place: Path, run: Run) -> None:
    repository = StaticRepository(place / "official")
    repository.make("1.0.0")
    configure(place, ("official", repository.address, True))
    with Skillhouse() as house, RepositoryRefresh(house, start_seconds=0):
        assert "refresh" not in {one.name for one in threading.enumerate()}
        assert RepositoryRefresh(house).look() == WAKE_SECONDS
        assert trust_notes(house) == []


def test_the_log_has_each_look(scene: Scene, run: Run) -> None:
    scene.refresh().look()
    assert "manage:refresh" in run("audit", "list", "--json")[1]


@pytest.mark.parametrize("value", ["59m", "31d", "0h", "1", "soon", "999999d", "-1h"])
def test_a_time_that_is_none_is_refused(place: Path, run: Run, value: str) -> None:
    configure(place, ("official", "/mirror", True), more=f'refresh = "{value}"\n')
    code, _, err = run("list")
    assert (code, "expected from 1h to 30d as its `refresh`" in err) == (2, True)

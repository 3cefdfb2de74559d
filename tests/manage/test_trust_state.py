"""Tests of what lists, `doctor`, the API and the pages say of what ended or soon does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse
from skillhouse.registry.freshness import Freshness
from tests.extensions.server.api.place import COOKIE, client_of
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import configure
from tests.registry.rooted import RootedRegistry

__all__ = ["place", "run"]
AGREED = ("--yes", "--allow-unsigned", "--accept-untrusted")
NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.fixture
def registry(place: Path) -> Iterator[RootedRegistry]:
    """A registry that was last signed three days ago, with a certificate that soon ends."""
    made = RootedRegistry(place, age=timedelta(days=3), days=30)
    made.publish("pdf", "1.0.0", "acme")
    yield made
    made.close()


def reaches(place: Path, registry: RootedRegistry, more: str = "") -> None:
    pinned = f'root = "{registry.root}"\n'
    configure(place, ("team", registry.directory.as_uri(), True), more=pinned + more)


def test_what_ended_or_soon_does_is_said_in_the_same_words_everywhere(
    run: Run, place: Path, registry: RootedRegistry
) -> None:
    reaches(place, registry)
    assert run("install", "pdf", *AGREED)[0] == 0
    listed = json.loads(run("list", "--json")[1])
    stale, ending = listed["trust"]
    assert "says is current ended 2 days ago: a newer version, or a takedown" in stale
    assert ending.startswith("user:pdf: the certificate of acme ends on ")
    (known,) = listed["repositories"]
    assert (known["repository"], known["warning"]) == ("team", stale)
    assert known["ends_at"] < known["asked_at"]
    warnings = {one["name"]: one["warning"] for one in listed["skills"]}
    assert f"user:pdf: {warnings.pop('pdf')}" == ending
    assert set(warnings.values()) <= {""}
    text = run("list")[1]
    assert stale in text
    assert ending in text
    report = json.loads(run("doctor", "--json")[1])
    assert (report["trust"], report["repositories"]) == ([stale, ending], [known])
    with Skillhouse() as house:
        client = client_of(house)
        status = client.get("/api/v1/status").json()
        assert (status["trust"], status["repositories"]) == ([stale, ending], [known])
        skills = client.get("/api/v1/skills").json()["skills"]
        assert [f"user:pdf: {one['warning']}" for one in skills if one["name"] == "pdf"] == [ending]
        page = client_of(house, COOKIE).get("/packages").text
        assert "ended 2 days ago" in page
        assert page.count("the certificate of acme ends on") == 2, "as a note, and on its line"


def test_what_is_current_says_nothing(run: Run, place: Path, registry: RootedRegistry) -> None:
    registry.age = timedelta()
    registry.hosted.sign_changes()
    reaches(place, registry)
    assert json.loads(run("list", "--json")[1])["repositories"] == [], "it was not asked yet"
    assert run("outdated")[0] == 0
    assert run("install", "pdf", *AGREED)[0] == 0
    listed = json.loads(run("list", "--json")[1])
    (known,) = listed["repositories"]
    assert (known["warning"], known["ends_at"] > known["asked_at"]) == ("", True)
    assert not [one for one in listed["trust"] if "is current ended" in one]


def test_what_was_refused_is_said_until_it_is_asked_again(
    run: Run, place: Path, registry: RootedRegistry
) -> None:
    reaches(place, registry, "stale_days = 1\n")
    assert run("install", "pdf", *AGREED)[0] == 1
    (line,) = json.loads(run("list", "--json")[1])["trust"]
    assert "ended more than 1 days ago" in line
    registry.age = timedelta()
    registry.hosted.sign_changes()
    assert run("install", "pdf", *AGREED)[0] == 0
    assert "ended more than" not in run("list")[1]


@pytest.mark.parametrize(
    ("asked", "ends", "now", "expected"),
    [
        (0, 1, 0, ""),
        (0, 1, 72, ""),
        (10, 9, 10, "ended 1 hours ago"),
        (100, 52, 100, "ended 2 days ago"),
        (100, 52, 148, "ended 4 days ago"),
    ],
)
def test_only_what_had_ended_when_it_was_asked_for_is_stale(
    asked: int, ends: int, now: int, expected: str
) -> None:
    """That this machine did not ask for long says nothing of the repository."""

    def hour(number: int) -> datetime:
        return NOW + timedelta(hours=number)

    found = Freshness(address="/mirror", asked=hour(asked), ends=hour(ends)).warning(hour(now))
    assert (expected in found, bool(found)) == (True, bool(expected))

"""Tests of manage/rule_editor.py: changes of the user's file at one moment."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.frontends.cli.configuration import add_rule
from skillhouse.house import Skillhouse, configured
from skillhouse.manage import only_editor
from skillhouse.permission import Effect, Rule
from tests.house.places import make_places

AT_ONCE = 8


def test_no_rule_is_lost_that_is_added_while_another_one_is(tmp_path: Path) -> None:
    """Of 12 at once one was left, and each had said that it was added: a deny can be among them."""
    places = make_places(tmp_path)
    start = threading.Barrier(AT_ONCE)
    failed: list[Exception] = []

    def add(number: int) -> None:
        rule = Rule(effect=Effect.DENY, action="exec", pattern=f"rm x{number}")
        try:
            with Skillhouse(configured(places)) as house:
                start.wait(60)
                add_rule(house, rule)
        except Exception as error:  # noqa: BLE001 - it is told below.
            failed.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    text = places.user_file.read_text()
    assert [f'pattern = "rm x{number}"' in text for number in range(AT_ONCE)] == [True] * AT_ONCE


def test_who_waits_too_long_for_the_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = make_places(tmp_path)
    monkeypatch.setattr("skillhouse.floor.lock.LOCK_SECONDS", 0.0)
    with (
        only_editor(places, tmp_path / "state"),
        pytest.raises(ConfigError, match="another process is changing the configuration"),
        only_editor(places, tmp_path / "state"),
    ):
        raise AssertionError

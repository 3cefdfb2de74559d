"""Tests of the configuration's `[bot]`: who may talk is written so that it can mean someone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import convert

from skillhouse.extensions.channels.bot import _model
from skillhouse.floor import ConfigError
from skillhouse.house import BotSettings, Skillhouse, configured
from tests.house.places import make_places


@pytest.mark.parametrize(
    "entry",
    [
        *("@ada", "42", "", "telegram:", "telegram:@ada", "telegram: 42", "Telegram:42"),
        *("telegram:chat:@team", "telegram:+42", "discord:ada#1", "slack: U1", "chat:telegram:4"),
    ],
)
@pytest.mark.parametrize("key", ["allow", "approvers"])
def test_an_entry_that_can_mean_no_one_is_refused(entry: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{key}`"):
        convert({key: ["telegram:1", entry]}, BotSettings)


def test_an_approver_is_a_person() -> None:
    with pytest.raises(ConfigError, match="`approvers`"):
        BotSettings(approvers=("telegram:chat:-100",))


def test_ids_of_each_service_are_taken() -> None:
    people = ("telegram:42", "discord:123456789012345678", "slack:U0123", "matrix:@ada:e.org")
    assert BotSettings(allow=people, approvers=people).approvers == people
    assert BotSettings(allow=("telegram:chat:-100123", "slack:chat:C1")).allow


def test_without_a_model_it_says_where_the_configuration_names_one(tmp_path: Path) -> None:
    with (
        Skillhouse(configured(make_places(tmp_path))) as house,
        pytest.raises(ConfigError, match=r"`model = .*` in `\[bot\]`"),
    ):
        _model(BotSettings(), house)

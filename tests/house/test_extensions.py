"""Tests of the `[extensions]` of house/config: who may turn what on."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.house import ExtensionSettings, Skillhouse, configured, load_config
from skillhouse.skill import Extensions
from tests.house.places import make_places
from tests.house.test_config import write_user


def extensions(base: Path, profile: str) -> Extensions:
    with Skillhouse(configured(make_places(base)), profile=profile) as house:
        return house.policy.profile.extensions


def test_who_starts_a_skill_and_arguments_are_heeded_and_the_rest_where_it_is_turned_on(
    tmp_path: Path,
) -> None:
    off = Extensions(invocation=False, substitution=False)
    every = Extensions(
        invocation=True, substitution=True, when_to_use=True, paths=True, commands=True
    )
    assert extensions(tmp_path, "default") == Extensions()
    assert extensions(tmp_path, "claude-code") == every
    for client in ("claude-desktop", "owliabot", "openseed", "codex", "gemini-cli"):
        assert extensions(tmp_path, client) == off
    assert extensions(tmp_path, "opencode") == Extensions(
        invocation=False, positions_from=1, commands=True
    )
    assert extensions(tmp_path, "zed") == Extensions(substitution=False)
    write_user(make_places(tmp_path), "[extensions]\ninvocation = false\npaths = true\n")
    assert extensions(tmp_path, "default") == Extensions(invocation=False, paths=True)
    write_user(make_places(tmp_path), "[extensions]\ncommands = false\n")
    assert not extensions(tmp_path, "claude-code").commands


def test_what_is_managed_holds_value_by_value(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    write_user(places, "[extensions]\ncommands = true\npaths = true\n")
    places.managed_file.write_text("[extensions]\ncommands = false\n")
    assert load_config(places).extensions == ExtensionSettings(commands=False, paths=True)


@pytest.mark.parametrize("text", ["[extensions]\ncommands = true\n", "extensions.paths = true\n"])
def test_no_project_turns_anything_on(tmp_path: Path, text: str) -> None:
    places = make_places(tmp_path)
    (places.start / "skillhouse.toml").write_text(text)
    assert load_config(places).extensions == ExtensionSettings()
    config = load_config(places, project=places.start)
    assert "`extensions` cannot be set by a project" in config.problems[0].message
    assert config.extensions == ExtensionSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[extensions]\ncomands = true\n", "did you mean `commands`"),
        ("[extensions]\ncommands = 'yes'\n", "wrong value"),
        ("extensions = true\n", "wrong value"),
    ],
)
def test_a_wrong_key_or_value_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    places = make_places(tmp_path)
    write_user(places, text)
    with pytest.raises(ConfigError, match=message):
        load_config(places)

"""Tests of house/config."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skillhouse.floor import ConfigError
from skillhouse.floor.structs import field_names, replace
from skillhouse.house import Locations, Settings, configured, load_config
from skillhouse.permission import Effect, Layer, Rule
from tests.house.places import make_places


def write_user(places: Locations, text: str) -> Path:
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text(text, encoding="utf-8")
    return places.user_file


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    config = load_config(places)
    assert (config.profile, config.roots, config.layers) == ("default", (), ())
    assert config.cache_directory == places.home / ".cache/skillhouse"
    assert config.state_directory == places.home / ".local/state/skillhouse"


def test_managed_beats_flags_beats_environment_beats_project_beats_user(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"SKILLHOUSE_CATALOG_BUDGET_TOKENS": "3"})
    write_user(places, "catalog_budget_tokens = 1\n")
    (places.start / "skillhouse.toml").write_text("catalog_budget_tokens = 2\n")
    flags = Settings(catalog_budget_tokens=4)
    silent = replace(places, environment={})

    def budget(at: Locations, given: Settings | None, project: Path | None) -> int | None:
        return load_config(at, given, project=project).catalog_budget_tokens

    assert budget(silent, None, None) == 1
    assert budget(silent, None, places.start) == 2
    assert budget(places, None, places.start) == 3
    assert budget(places, flags, places.start) == 4
    places.managed_file.write_text("catalog_budget_tokens = 5\n")
    assert budget(places, flags, places.start) == 5


def test_rules_become_layers_from_far_to_near_and_the_projects_is_untrusted(
    tmp_path: Path,
) -> None:
    places = make_places(tmp_path)
    rule = '[[rules]]\neffect = "{}"\naction = "exec"\npattern = "git *"\n'
    places.managed_file.write_text(rule.format("deny"))
    write_user(places, rule.format("ask"))
    (places.start / "skillhouse.toml").write_text(rule.format("allow"))

    def layer(name: str, effect: Effect, *, trusted: bool = True) -> Layer:
        return Layer(
            name=name,
            rules=(Rule(effect=effect, action="exec", pattern="git *"),),
            trusted=trusted,
        )

    assert load_config(places, project=places.start).layers == (
        layer("managed", Effect.DENY),
        layer("user", Effect.ASK),
        layer("project", Effect.ALLOW, trusted=False),
    )


def test_roots_of_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    file = write_user(places, 'roots = ["mine", "/abs"]\n')
    assert load_config(places).roots == (file.parent / "mine", Path("/abs"))


@pytest.mark.parametrize(
    ("text", "message", "suggestion"),
    [
        ('profil = "x"\n', "unknown key `profil`", "profile"),
        (
            '[[rules]]\neffect = "deny"\naktion = "x"\npattern = "y"\n',
            "unknown rule key `aktion`",
            "action",
        ),
        ("nothing_like_it = 1\n", "known are agents, approvals, assignees", ""),
        ('catalog_budget_tokens = "many"\n', "must be a whole number, got 'many'", ""),
        ('[[rules]]\neffect = "maybe"\naction = "x"\npattern = "y"\n', "wrong value", ""),
        ('[[rules]]\naction = "x"\npattern = "y"\n', "`effect` is missing", ""),
        ("rules = 3\n", "wrong value", ""),
        ("catalog_budget_tokens = -1\n", "0 tokens or more, got -1", ""),
        ("this is not toml\n", "not TOML", ""),
        (
            '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "git *"\nmatch = ["gitk"]\n',
            "`git *` does not match its example `gitk`",
            "",
        ),
        (
            '[[rules]]\neffect = "ask"\naction = "exec"\npattern = "git*"\nnot_match = ["gitk"]\n',
            "`git*` matches its counterexample `gitk`",
            "",
        ),
        *(
            (
                f'rules = [{{effect="{effect}", action="{action}", pattern="x", unbound=true}}]\n',
                'rule 1: `unbound` is for rules with effect "allow" of "exec" only',
                "",
            )
            for effect, action in (("deny", "exec"), ("ask", "exec"), ("allow", "*"))
        ),
        (
            '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "x"\nunbound = 1\n',
            "wrong value",
            "",
        ),
        (
            '[[agents.a.rules]]\neffect = "ask"\naction = "exec"\npattern = "x"\nunbound = true\n',
            "rule 1: `unbound`",
            "",
        ),
    ],
)
def test_a_faulty_file_is_an_error_that_names_the_place(
    tmp_path: Path, text: str, message: str, suggestion: str
) -> None:
    places = make_places(tmp_path)
    write_user(places, text)
    with pytest.raises(ConfigError) as caught:
        load_config(places)
    assert message in str(caught.value)
    assert caught.value.suggestion == suggestion


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    write_user(places, "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not TOML"):
        load_config(places)


def test_limits_of_commands_are_merged_one_by_one_and_no_project_sets_them(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    for file, text in (
        (places.managed_file, "[sandbox]\nseconds = 60\nmemory = 1073741824\nmounts = ['/x']\n"),
        (places.user_file, '[sandbox]\nlevel = "bubblewrap"\nseconds = 6000\nprocesses = 64\n'),
        (places.start / "skillhouse.toml", '[sandbox]\nseconds = 80000\npath = ["bin"]\n'),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    config = load_config(places, project=places.start)
    (problem,) = config.problems
    assert "`sandbox` cannot be set by a project" in problem.message
    limits = config.sandbox_limits
    assert (config.sandbox, limits.path, limits.mounts) == ("bubblewrap", None, ("/x",))
    assert limits.values() == {
        "seconds": 60,
        "processes": 64,
        "memory_bytes": 1 << 30,
    }


def test_a_level_alone_is_short_for_the_table(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    for file, text in (
        (places.managed_file, 'sandbox = "bubblewrap"\n'),
        (places.user_file, '[sandbox]\nlevel = "any"\nseconds = 6000\n'),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    config = load_config(places)
    assert (config.sandbox, config.sandbox_limits.seconds) == ("bubblewrap", 6000)


def test_a_project_cannot_set_what_could_loosen(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (places.start / "skillhouse.toml").write_text('roots = ["/"]\n')
    config = load_config(places, project=places.start)
    (problem,) = config.problems
    assert "`roots` cannot be set by a project" in problem.message
    assert (config.roots, config.layers) == ((), ())


@pytest.mark.parametrize(
    ("variable", "value", "message", "suggestion"),
    [
        ("SKILLHOUSE_PROFLE", "x", "unknown environment variable", "SKILLHOUSE_PROFILE"),
        ("SKILLHOUSE_CACHE", "perhaps", "expected true or false", ""),
        ("SKILLHOUSE_CATALOG_BUDGET_TOKENS", "x", "expected a number", ""),
    ],
)
def test_a_faulty_variable_is_an_error(
    tmp_path: Path, variable: str, value: str, message: str, suggestion: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(make_places(tmp_path, {variable: value}))
    assert caught.value.suggestion == suggestion


def test_the_environment_can_turn_the_cache_off_and_move_directories(tmp_path: Path) -> None:
    moved = {
        "SKILLHOUSE_CACHE_DIRECTORY": "/c",
        "SKILLHOUSE_STATE_DIRECTORY": "/s",
        "SKILLHOUSE_YAML_FAST_PATH": "no",
        "SKILLHOUSE_SKILLS_DIR": "/elsewhere",
    }
    config = load_config(make_places(tmp_path, moved))
    assert (config.cache_directory, config.state_directory) == (Path("/c"), Path("/s"))
    assert config.yaml_fast_path is False
    assert load_config(make_places(tmp_path, {"SKILLHOUSE_CACHE": "0"})).cache_directory is None


def test_xdg_directories_are_honoured(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"XDG_CACHE_HOME": "/xc", "XDG_STATE_HOME": "/xs"})
    config = load_config(places)
    assert config.cache_directory == Path("/xc/skillhouse")
    assert config.state_directory == Path("/xs/skillhouse")


def test_where_a_configuration_is_from_is_neither_shown_nor_compared(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"MY_TOKEN": "do-not-show"})
    read = configured(places)
    made = load_config(places)
    assert read.source is not None
    assert (made.source, made) == (None, read)
    # Nor are the variables of the process: any may hold a secret.
    shown = f"{read!r} {read.__rich_repr__()} {places!r} {read.source!r}"
    assert "ConfigSource" not in repr(read)
    assert "do-not-show" not in shown
    assert repr(made) == repr(read)
    for name in {*field_names(read)} - {"source"}:
        change: dict[str, Any] = {name: "another"}
        assert replace(read, **change) != read, name


def test_a_configuration_is_changed_by_our_replace_and_is_not_written_as_a_whole(
    tmp_path: Path,
) -> None:
    config = configured(make_places(tmp_path))
    assert replace(config, profile="opencode").profile == "opencode"
    with pytest.raises(TypeError):
        replace(config, profil="opencode")  # type: ignore[call-arg] # It has none.
    with pytest.raises(AttributeError):
        config.profile = "opencode"  # type: ignore[misc] # Frozen.
    standard: Any = dataclasses.replace
    with pytest.raises(TypeError):
        standard(config, profile="opencode")
    with pytest.raises(TypeError):
        msgspec.json.encode(config)

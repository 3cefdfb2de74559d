"""Tests of skill/profile.py: the values of the default profile, and how one is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import ConfigError, structs
from skillhouse.skill import DEFAULT_PROFILE, Profile, load_profile, profile_names, read_profile
from skillhouse.skill.profile import SHIPPED_DIRECTORY


def test_the_scopes_of_the_default_profile_are_those_of_the_design() -> None:
    assert [
        (rule.name, rule.default_effect, rule.max_depth, rule.max_directories)
        for rule in DEFAULT_PROFILE.scopes
    ] == [
        ("project", "allow", 6, 2_000),
        ("explicit", "allow", 12, 100_000),
        ("user", "allow", 6, 20_000),
        ("plugin", "ask", 6, 2_000),
        ("remote", "ask", 6, 2_000),
        ("builtin", "allow", 2, 2_000),
    ]
    assert DEFAULT_PROFILE.scope("user") is DEFAULT_PROFILE.scopes[2]


def test_an_unknown_scope_or_profile_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as scope:
        DEFAULT_PROFILE.scope("projects")
    assert str(scope.value) == "unknown scope `projects`; did you mean `project`"
    assert (scope.value.key, scope.value.suggestion) == ("projects", "project")
    with pytest.raises(ConfigError, match=r"unknown scope `zzz`$"):
        DEFAULT_PROFILE.scope("zzz")
    with pytest.raises(ConfigError, match="unknown profile `defualt`; did you mean `default`"):
        load_profile("defualt")


def test_a_profile_is_loaded_by_its_name_or_passed_on() -> None:
    own = Profile(name="own", nested_skills=True)
    assert load_profile("default") is DEFAULT_PROFILE
    assert load_profile(own) is own


PLACEHOLDERS = (
    "line 1: `roots`: expected `{explicit}`, `{builtin}`, `${NAME}` or `${NAME:-~/path}` and "
    "perhaps more of a path, got `${HOME` in `FILE`"
)
DESIGNS = ("claude-desktop", "default", "openseed", "opencode", "owliabot", "owliabot-js")


def test_the_file_of_the_default_profile_says_what_the_type_does() -> None:
    path = SHIPPED_DIRECTORY / "default.toml"
    assert read_profile(path) == Profile() == DEFAULT_PROFILE
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    assert [key for key in _unset(Profile(), table) if f"# {key}\n" not in text] == []


def _unset(value: Any, table: dict[str, Any]) -> list[str]:
    """Return the fields that the table leaves out, those of its inner tables included."""
    missing = [name for name in structs.field_names(value) if name not in table]
    for name in structs.field_names(value):
        inner = getattr(value, name)
        if structs.is_struct(inner) and name in table:
            missing += _unset(inner, table[name])
    return missing


@pytest.mark.parametrize("name", DESIGNS)
def test_each_design_has_a_profile_that_is_called_as_its_file(name: str) -> None:
    assert name in profile_names()
    profile = load_profile(name)
    assert (profile.name, bool(profile.title)) == (name, True)


@pytest.mark.parametrize("name", profile_names())
def test_each_shipped_profile_can_be_read(name: str) -> None:
    assert read_profile(SHIPPED_DIRECTORY / f"{name}.toml") == load_profile(name)


@pytest.mark.parametrize("name", sorted(set(DESIGNS) - {"default"}))
def test_each_value_of_a_design_is_one_that_a_profile_has(name: str) -> None:
    profile = read_profile(SHIPPED_DIRECTORY / f"{name}.toml")
    assert profile != Profile(name=name, title=profile.title, facts=profile.facts)
    assert profile.facts


def broken(tmp_path: Path, text: str) -> str:
    """Return the message about a profile of that text, its path shortened."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_profile(path)
    assert caught.value.path == path
    return str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "x"\nwalks = "home"\n',
         "line 2: unknown key `walks` in `FILE`; did you mean `walk`"),
        ('walk = "up"\n', "line 1: `walk`: invalid enum value 'up' in `FILE`"),
        ('dotfiles = "yes"\n', "line 1: `dotfiles`: expected `bool`, got `str` in `FILE`"),
        ('title = "x"\n\n[parse_policy]\nmissing_nam = "skip"\n',
         "line 4: unknown key `missing_nam` in `FILE`; did you mean `missing_name`"),
        ('[[roots]]\nscope = "user"\npath = "~/a"\n\n[[roots]]\nscope = "users"\npath = "~/b"\n',
         "line 6: no scope is called `users` in `FILE`"),
        ('title = "x"\nparse_policy = { missing_nam = "skip" }\n',
         "line 2: unknown key `missing_nam` in `FILE`; did you mean `missing_name`"),
        ('name = "other"\n', "line 1: expected the name of the file, `mine` in `FILE`"),
        ("walk = \n", "line 1: not TOML: invalid value in `FILE`"),
        ('[[roots]]\nscope = "user"\npath = "~/a/*"\nnamespace = 2\n',
         "line 1: `roots`: expected a namespace from 1 to 1, got 2 in `FILE`"),
        ('[[roots]]\nscope = "user"\npath = "skills"\n',
         "line 1: `roots`: expected the scope project for `skills`, got user in `FILE`"),
        ('[[roots]]\nscope = "user"\npath = "${HOME"\n',
         PLACEHOLDERS),
        ('[[roots]]\nscope = "user"\npath = ""\n',
         "line 1: `roots`: expected a path, got nothing in `FILE`"),
        ('[[roots]]\nscope = "user"\npath = "~/a"\nmax_depth = 0\n',
         "line 1: `roots`: expected a depth of 1 or more, got 0 in `FILE`"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_line_and_key(
    tmp_path: Path, text: str, message: str
) -> None:
    assert broken(tmp_path, text) == message


def test_a_file_that_is_too_large_or_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    assert "at most 262144 bytes" in broken(tmp_path, "#" * 262_145)
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not TOML"):
        read_profile(tmp_path / "odd.toml")
    with pytest.raises(ConfigError, match="cannot read the profile"):
        read_profile(tmp_path / "missing.toml")


def test_a_profile_of_the_users_own_goes_before_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('walk = "none"\n')
    (tmp_path / "openseed.toml").write_text('title = "my own"\n')
    (tmp_path / "default.toml").write_text("dotfiles = false\n")
    assert load_profile("mine", tmp_path) == Profile(name="mine", walk="none")
    assert load_profile("openseed", tmp_path).title == "my own"
    assert load_profile("default", tmp_path) == Profile(dotfiles=False)
    assert "mine" in profile_names(tmp_path)
    assert "mine" not in profile_names()
    with pytest.raises(ConfigError, match="did you mean `mine`"):
        load_profile("mien", tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/secret", "sub/secret", ""])
def test_a_name_never_leads_out_of_the_directory_of_profiles(tmp_path: Path, name: str) -> None:
    own = tmp_path / "own"
    (own / "sub").mkdir(parents=True)
    for place in (tmp_path, own / "sub"):
        (place / "secret.toml").write_text('title = "secret"\n')
    with pytest.raises(ConfigError, match="unknown profile"):
        load_profile(name, own)

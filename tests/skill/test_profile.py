"""Tests of skill/profile.py: the values of the default profile, and how one is named."""

from __future__ import annotations

import pytest

from skillhouse.floor import ConfigError
from skillhouse.skill import DEFAULT_PROFILE, Profile, load_profile


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

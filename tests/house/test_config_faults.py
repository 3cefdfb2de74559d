"""Tests of house/config/config_faults.py: each fault is named, and the rest is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.house import load_config, usable_config
from tests.house.places import make_places

BROKEN = (
    '# mine\nprofile = "default"\n\n[[rules]]\neffect = "alow"\naction = "exec"\npattern = "x"\n'
)
SECOND_RULE = (
    '[[rules]]\neffect = "deny"\naction = "exec"\npattern = "a"\n'
    '[[rules]]\neffect = "deny"\naction = "exec"\npattern = "b"\nmatch = ["c"]\n'
)


def user_file(places: object) -> Path:
    file: Path = places.user_file  # type: ignore[attr-defined]
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (BROKEN, 5, "`effect` is one of allow, ask, deny, got 'alow'"),
        (BROKEN.replace("alow", "allow").replace("exec", "exek"), 6, "unknown action `exek`"),
        ('\nsandbox = "bubble"\n', 2, "`sandbox` is one of any, bubblewrap"),
        ('[sandbox]\nlevel = "bubble"\n', 2, "`level` is one of any, bubblewrap"),
        ("[sandbox]\nseconds = -1\n", 2, "a whole number from 1 to 86400 in `seconds`, got -1"),
        ("[sandbox]\n\nseconds = 0\n", 3, "in `seconds`, got 0"),
        ("[sandbox]\nseconds = true\n", 2, "`seconds` must be a whole number, got true"),
        (f"[sandbox]\nmemory = 1{'0' * 17}\n", 2, "in `memory`, got 1"),
        ("[sandbox]\ntmp_bytes = 0\n", 2, "in `tmp_bytes`, got 0"),
        ("[sandbox]\noutput_bytes = 99999999999\n", 2, "in `output_bytes`, got 99999999999"),
        ("[sandbox]\n\npath = ['a:b']\n", 3, "at most 24 directories in `path`, got ['a:b']"),
        ("[sandbox]\nmounts = ['lib']\n", 2, "expected absolute paths in `mounts`, got 'lib'"),
        ("[sandbox]\nsecond = 5\n", 2, "unknown sandbox key `second`"),
        ('[approvals]\nunattended = "no"\n', 2, "`unattended` is one of pending, deny"),
        (
            '[agents.a]\n[[agents.a.rules]]\neffect = "x"\naction = "exec"\n',
            3,
            "`effect` is one of",
        ),
        (
            "\n\ncatalog_budget_tokens = true\n",
            3,
            "`catalog_budget_tokens` must be a whole number, got true",
        ),
        ('cache = "yes"\n', 1, "`cache` must be true or false, got 'yes'"),
        ("\nroots = 5\n", 2, "`roots` must be a list, got 5"),
        ("[approvals]\nwait_seconds = 'x'\n", 2, "`wait_seconds` must be a number, got 'x'"),
        (f"cache = '{'y' * 41}'\n", 1, "`cache` must be true or false, got text in quotes"),
        ("[agents.a]\npreload = [3]\n", 2, "`preload[0]` must be text in quotes"),
        ("[agents]\na = 5\n", 1, "`agents.NAME` must be a table"),
        ('[[rules]]\neffect = "deny"\npattern = "x"\n', 1, "`action` is missing"),
        ('[[remotes]]\nurl = "https://a.test"\nkind = 3\n', 3, "`kind` must be text in quotes"),
        ('a = 1\n\nprofle = "x"\n', 1, "unknown key `a`"),
        (
            SECOND_RULE,
            9,
            "does not match its example",
        ),
    ],
)
def test_an_error_has_the_line_the_key_and_what_is_allowed(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    places = make_places(tmp_path)
    user_file(places).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(places)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"line {line}: ")
    assert said in str(caught.value)
    assert caught.value.key


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1.5", "1e3"])
def test_a_limit_of_commands_is_a_whole_number(tmp_path: Path, number: str) -> None:
    places = make_places(tmp_path)
    user_file(places).write_text(f"[sandbox]\nseconds = {number}\n")
    with pytest.raises(ConfigError, match="number"):
        load_config(places)


@pytest.mark.parametrize("action", ["deploy", "*", "ex*", "skill_tool", "invoke", "count"])
def test_an_action_that_a_program_may_bring_is_taken(tmp_path: Path, action: str) -> None:
    places = make_places(tmp_path)
    rule = f'[[rules]]\neffect = "deny"\naction = "{action}"\npattern = "x"\n'
    user_file(places).write_text(rule)
    assert load_config(places).layers[0].rules[0].action == action


@pytest.mark.parametrize(
    ("action", "meant"),
    [("exek", "exec"), ("Exec", "exec"), ("reads", "read"), ("wirte", "write"), ("skil", "skill")],
)
def test_a_misspelt_action_is_an_error_that_names_the_right_one(
    tmp_path: Path, action: str, meant: str
) -> None:
    places = make_places(tmp_path)
    rule = f'[[rules]]\neffect = "deny"\naction = "{action}"\npattern = "x"\n'
    user_file(places).write_text(rule)
    with pytest.raises(ConfigError) as caught:
        load_config(places)
    assert caught.value.suggestion == meant


def test_each_broken_file_is_a_fault_and_the_rest_is_used(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"SKILLHOUSE_CATALOG_BUDGET_TOKENS": "many"})
    user_file(places).write_text(BROKEN)
    places.policy_file.write_text("version: 2\n")
    config, faults = usable_config(places)
    assert [(one.code, one.path, one.line) for one in faults] == [
        ("config-unusable", places.user_file, 5),
        ("config-unusable", None, None),
        ("policy-unusable", places.policy_file, None),
    ]
    assert "only reads are allowed" in faults[2].advice
    assert config.layers == ()


def test_every_faulty_key_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    lines = (
        'profile = "codex"',
        'policy = "devloper"',
        "cach = true",
        "[search]",
        'encoder = "grany"',
        "[[remotes]]",
        'url = "https://a.example"',
        "kind = 3",
        "[approvals]",
        "grant_days = 0",
    )
    user_file(places).write_text("\n".join(lines))
    config, faults = usable_config(places)
    assert [(one.code, one.path) for one in faults] == [("config-unusable", places.user_file)] * 5
    # What is met first is first: unknown keys come before values.
    assert [one.line for one in faults] == [3, 2, 5, 8, 10]
    assert [one.field for one in faults] == [
        "cach",
        "policy",
        "encoder",
        "kind",
        "approvals.grant_days",
    ]
    assert "did you mean `developer`" in faults[1].message
    # Nothing of such a file is used, for a rule in it may deny anything.
    assert config.profile == "default"


def test_a_file_of_nothing_but_unknown_keys_has_a_bounded_list(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    user_file(places).write_text("".join(f"unknown_{n} = 1\n" for n in range(500)))
    assert len(usable_config(places).faults) <= 51


def test_a_whole_configuration_has_no_faults(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    user_file(places).write_text('profile = "codex"\n')
    config, faults = usable_config(places)
    assert (config.profile, faults) == ("codex", ())


def test_a_profile_that_does_not_exist_is_a_fault(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    user_file(places).write_text('profile = "codx"\n')
    config, faults = usable_config(places)
    assert config.profile == "default"
    assert "did you mean `codex`" in faults[0].message

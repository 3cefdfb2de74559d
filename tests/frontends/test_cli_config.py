"""Tests of `config`, and of `policy allow`, `ask` and `deny`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from skillhouse.house.config import CONFIG_KEYS, keys_in_use
from tests.frontends.conftest import Run
from tests.house.places import make_places

Typing = Run


@pytest.fixture
def file(place: Path) -> Path:
    path = place / "home/.config/skillhouse/config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_a_rule_is_added_behind_what_is_there(run: Run, file: Path) -> None:
    before = "# mine\nprofile = 'default' # keep\n"
    file.write_text(before)
    assert run("policy", "allow", "exec", "git log *", "--yes")[0] == 0
    assert run("policy", "deny", "skill", "in-*", "--reason", 'a "b" \\', "--yes")[0] == 0
    assert file.read_text().startswith(before)
    assert tomllib.loads(file.read_text())["rules"] == [
        {"effect": "allow", "action": "exec", "pattern": "git log *", "match": ["git log x"]},
        {
            "effect": "deny",
            "action": "skill",
            "pattern": "in-*",
            "reason": 'a "b" \\',
            "match": ["in-x"],
        },
    ]
    assert run("policy", "explain", "exec", "git", "log", "-5")[1].startswith("allow")


@pytest.mark.parametrize(
    "words",
    [
        ("allow", "exek", "git *"),
        ("allow", "exec", "git *", "--match", "rm x"),
        ("allow", "exec", "git *", "--not-match", "git log"),
        ("allow", "exec", "git *"),
    ],
)
def test_a_rule_that_is_wrong_or_not_confirmed_is_not_written(
    run: Run, file: Path, words: tuple[str, ...]
) -> None:
    file.write_text("# mine\n")
    confirmed = () if words == ("allow", "exec", "git *") else ("--yes",)
    assert run("policy", *words, *confirmed)[0] == 2
    assert file.read_text() == "# mine\n"


@pytest.mark.parametrize("before", ["rules = []\n", "profil = 1\n", "x = [\n"])
def test_a_file_that_cannot_be_extended_stays(run: Run, file: Path, before: str) -> None:
    file.write_text(before)
    assert run("policy", "deny", "exec", "rm *", "--yes")[0] == 2
    assert file.read_text() == before


def test_a_pattern_cannot_write_other_keys(run: Run, file: Path) -> None:
    pattern = 'x"\n[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*'
    run("policy", "deny", "skill", pattern, "--yes")
    rules = tomllib.loads(file.read_text())["rules"] if file.exists() else []
    assert [rule["effect"] for rule in rules] in ([], ["deny"])


def test_a_person_is_asked(typing: Typing, file: Path) -> None:
    assert typing("no", "policy", "allow", "exec", "git *")[0] == 1
    assert not file.exists()
    assert typing("y", "policy", "allow", "exec", "git *")[0] == 0
    assert "git *" in file.read_text()


def test_a_coding_agent_adds_no_rule(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    code, _, err = run("policy", "allow", "exec", "*", "--yes")
    assert (code, "is for a person" in err, file.exists()) == (1, True, False)


def test_config_shows_its_files_and_their_faults(run: Run, file: Path) -> None:
    paths = {one["name"]: one for one in json.loads(run("config", "--json")[1])["files"]}
    assert paths["user"] == {"name": "user", "path": str(file), "exists": False}
    assert "(not there)" in run("config")[1]
    assert run("config", "show")[0] == 1
    assert run("config", "check")[0] == 0
    file.write_text("profil = 'x'\n")
    assert run("config", "show")[1] == "profil = 'x'\n"
    code, out, _ = run("config", "check")
    assert (code, "unknown key `profil`" in out) == (1, True)


def test_config_check_names_actions_that_no_tool_of_ours_needs(run: Run, file: Path) -> None:
    rule = '[[rules]]\neffect = "deny"\naction = "{}"\npattern = "x"\n'
    file.write_text(rule.format("invoke") + rule.format("teleport"))
    code, out, _ = run("config", "check")
    assert code == 0
    assert out.startswith("rule user 2: no built-in tool needs the action `teleport`; only a")
    assert len(json.loads(run("config", "check", "--json")[1])["unknown_actions"]) == 1


def test_b5_config_check_names_variables_that_no_setting_sets(run: Run, file: Path) -> None:
    file.write_text('exec_environment = ["LANG", "PATH"]\n')
    code, out, err = run("config", "check")
    why = "commands have a PATH of their own, to which `path` of `[sandbox]` adds directories"
    assert (code, out) == (0, f"exec_environment: `PATH` has no effect: {why}\n")
    assert err == "the configuration has 0 faults\n"
    assert json.loads(run("config", "check", "--json")[1])["void_variables"] == ["PATH"]


def test_a_key_is_shown_with_its_value_and_what_sets_it(run: Run, file: Path) -> None:
    file.write_text("tool_count = 3\n[sandbox]\nseconds = 5\n")
    status, out, _ = run("config", "show", "tool_count", "sandbox", "tools")
    assert (status, out.splitlines()) == (
        0,
        [
            "tool_count = 3  (set by: user)",
            'sandbox = {"seconds": 5}  (set by: user)',
            "tools is not set: the default holds",
        ],
    )
    found = json.loads(run("config", "show", "tools", "tool_count", "--json")[1])
    assert found["keys"] == [
        {"key": "tools", "value": None, "set_by": []},
        {"key": "tool_count", "value": 3, "set_by": ["user"]},
    ]


def test_the_stronger_source_of_a_key_is_named_first(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("catalog_budget_tokens = 3\n")
    monkeypatch.setenv("SKILLHOUSE_CATALOG_BUDGET_TOKENS", "4")
    out = run("config", "show", "catalog_budget_tokens")[1]
    assert out == "catalog_budget_tokens = 4  (set by: environment, user)\n"


def test_each_key_can_be_shown_and_another_is_refused_with_the_nearest(run: Run) -> None:
    assert len(run("config", "show", *sorted(CONFIG_KEYS))[1].splitlines()) == len(CONFIG_KEYS)
    status, _, noted = run("config", "show", "tool_coun")
    assert status == 2
    assert "unknown key `tool_coun`" in noted
    assert "tool_count" in noted


def test_rules_of_all_files_are_shown(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    text = '[[rules]]\neffect = "deny"\naction = "fetch"\npattern = "{}"\n'
    for path, pattern in (
        (places.managed_file, "https://x.example/?token=*"),
        (places.user_file, "mine"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(pattern))
    (found,) = keys_in_use(places, ["rules"])
    patterns = [one["pattern"] for one in found.value]
    assert (patterns, found.set_by) == (
        ["https://x.example/?token=*", "mine"],
        ("managed", "user"),
    )


def test_no_secret_is_shown(run: Run, file: Path) -> None:
    file.write_text(
        '[[mcp_servers]]\nlabel = "a"\n'
        'command = ["/bin/a", "--token", "hunter2", "--api-key=hunter2"]\n'
        'environment = { API_URL = "hunter2" }\n'
        '[[mcp_servers]]\nlabel = "b"\nurl = "https://me:hunter2@b.example/mcp?api_key=hunter2"\n'
    )
    for words in (("mcp_servers",), ("mcp_servers", "--json")):
        code, out, _ = run("config", "show", *words)
        assert (code, "hunter2" in out) == (0, False)
        assert "b.example/mcp" in out
        assert "API_URL" in out

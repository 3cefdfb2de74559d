"""Tests of what a newcomer types first: help, groups without a verb, commands without quotes."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.cli import browse
from skillhouse.frontends.cli.verbs import VERBS, parser_of
from tests.frontends.conftest import Run

CLONE = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("words", [("list",), ("policy", "explain"), ("new",)])
def test_help_with_a_verb_explains_the_verb(
    run: Run, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("help", *words)
    said = capsys.readouterr().out
    assert (ended.value.code, said.split(" [")[0]) == (0, f"usage: skillhouse {' '.join(words)}")


def _verbs_below(
    parser: argparse.ArgumentParser, words: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [one.choices for one in parser._actions if isinstance(one.choices, dict)]  # noqa: SLF001
    if not groups:
        yield words, parser
    for name, below in (groups[0] if groups else {}).items():
        yield from _verbs_below(below, f"{words} {name}")


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_each_verb_has_an_example_of_its_own(verb: str) -> None:
    for words, parser in _verbs_below(parser_of(verb)[1], verb):
        _, _, examples = parser.format_help().partition("\nexamples:\n")
        assert f"  skillhouse {words}" in examples, words


@pytest.mark.parametrize(
    ("group", "verb"),
    [
        ("profiles", "list"),
        ("approvals", "list"),
        ("audit", "list"),
        ("policy", "list"),
        ("tools", "list"),
        ("keys", "list"),
        ("remote", "list"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_group_without_a_verb_lists(
    run: Run, group: str, verb: str, options: tuple[str, ...]
) -> None:
    assert run(group, *options) == run(group, verb, *options)
    assert run(group, *options)[0] == 0


def test_sessions_are_listed_without_a_verb(run: Run) -> None:
    assert run("keys", "session") == run("keys", "session", "list")
    assert json.loads(run("keys", "session", "--json")[1])["sessions"] == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("exec", "rm", "-rf", "/"), "rm -rf /"),
        (("rm", "-rf", "/"), "rm -rf /"),
        (("exec", "git", "-C", "x", "log"), "git -C x log"),
        (("exec", "ls", "--agent", "x"), "ls --agent x"),
        (("rm -rf /",), "rm -rf /"),
        (("exec", "rm -rf /"), "rm -rf /"),
        (("exec", "--", "rm", "-rf", "/"), "rm -rf /"),
    ],
)
def test_a_command_is_explained_as_it_is_typed(run: Run, words: tuple[str, ...], line: str) -> None:
    _, out, err = run("policy", "explain", "--json", *words)
    assert err == ""
    assert (json.loads(out)["action"], json.loads(out)["resource"]) == ("exec", line)


def test_options_behind_a_quoted_command_are_ours(run: Run) -> None:
    code, _, err = run("policy", "explain", "exec", "git log", "--agent", "unknown")
    assert (code, "unknown" in err) == (2, True)


def test_policy_lists_the_rules_of_each_layer(run: Run, place: Path) -> None:
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[[rules]]\neffect = "deny"\naction = "exec"\npattern = "rm *"\nreason = "use the bin"\n'
    )
    assert run("policy") == (0, "user\n  1: deny exec rm *  (use the bin)\n", "1 rule\n")


@pytest.mark.slow
def test_profiles_begin_with_what_people_have_installed(run: Run) -> None:
    names = [one["name"] for one in json.loads(run("profiles", "--json")[1])["profiles"]]
    clients = {
        one["name"] for one in json.loads(run("profiles", "--json")[1])["profiles"] if one["client"]
    }
    assert set(names[: len(clients)]) == clients
    assert names[len(clients)] == "default"


def test_the_user_of_a_call_is_in_the_log(run: Run) -> None:
    assert run("call", "skill", "--user", "ann", "--args", '{"name": "weather"}')[0] == 0
    listed = json.loads(run("audit", "--user", "ann", "--json")[1])["records"]
    assert listed
    assert json.loads(run("audit", "--user", "bob", "--json")[1])["records"] == []


def test_a_missing_part_is_advised_without_a_package_index() -> None:
    said = str(MissingExtraError("chat", "pydantic_ai"))
    assert re.search(r"run (in the clone )?`.*\[chat\]'`$", said)
    assert "skillhouse[" not in said.replace(f"{CLONE}[", "")


def test_the_searches_of_the_help_find_something_in_a_fresh_home(run: Run) -> None:
    lines = re.findall(r"skillhouse search ([^-].+)", browse.VERBS["search"].examples)
    for line, found in zip(lines, ("weather", "github"), strict=True):
        code, out, _ = run("search", *shlex.split(line))
        assert (code, found in out) == (0, True), line

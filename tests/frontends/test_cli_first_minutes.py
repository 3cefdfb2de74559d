"""Tests of what a newcomer types first: help, groups without a verb, commands without quotes."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.cli import browse
from skillhouse.frontends.cli.verbs import VERBS, parser_of
from tests.frontends.conftest import Run
from tests.frontends.terminals import Seat

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
    """Yield the verbs that help lists; older words for one are taken, and named nowhere."""
    groups = [one for one in parser._actions if isinstance(one.choices, dict)]  # noqa: SLF001
    if not groups:
        yield words, parser
        return
    listed = {one.dest for one in groups[0]._choices_actions}  # type: ignore[attr-defined]  # noqa: SLF001
    choices: dict[str, argparse.ArgumentParser] = groups[0].choices  # type: ignore[assignment]
    for name, below in choices.items():
        if name not in listed:
            continue
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


@pytest.fixture
def pdf(run: Run, place: Path) -> Path:
    assert run("new", "pdf", "--description", "Read and merge PDF files.")[0] == 0
    return place / "home/.agents/skills/pdf"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trust nope", "expected a directory, got `nope`"),
        ("call", "the following arguments are required: tool;"),
        ("new 'My Skill'", "did you mean `skillhouse new my-skill`"),
        ("info pdf", "it was not installed by skillhouse; `skillhouse show pdf` has the rest"),
        ("uninstall pdf", "and `skillhouse delete pdf` removes it"),
        ("pin pdf", "it was not installed by skillhouse"),
        ("info nope", "no installed skill `nope`"),
        ("pack nope", "expected the directory of a skill, or the name of one, got `nope`"),
        ("sign nope", "expected the directory of a skill, or the name of one, got `nope`"),
        ("update", "nothing was installed here"),
        ("trust --list", "no project is trusted"),
        ("doctor --client nope", "unknown client `nope`, `skillhouse profiles list` has them"),
        ("outdated", "nothing was installed here"),
        ("verify", "nothing was installed here"),
    ],
)
def test_a_message_is_about_what_was_typed(run: Run, pdf: Path, line: str, said: str) -> None:
    assert said in run(*shlex.split(line))[2]


@pytest.mark.parametrize("verb", VERBS)
def test_what_may_be_left_out_is_never_named_as_missing(verb: str) -> None:
    for words, parser in _verbs_below(parser_of(verb)[1], verb):
        needed = [one for one in parser._actions if one.required and not one.option_strings]  # noqa: SLF001
        assert not [one.dest for one in needed if one.nargs in ("*", "?")], words


def test_a_skill_is_packed_by_its_name(run: Run, pdf: Path) -> None:
    code, out, _ = run("pack", "pdf", "--json")
    assert (code, json.loads(out)["path"]) == (0, "pdf.tar.gz")


def test_paths_and_digests_stay_whole_at_80_columns(run: Run, pdf: Path) -> None:
    lines = run("show", "pdf")[1].splitlines()
    assert [line for line in lines if line.endswith(str(pdf / "SKILL.md"))]
    assert [line for line in lines if re.search(r" skilltree1:[0-9a-f]{64}$", line)]


def test_what_an_author_meant_for_people_is_no_problem(run: Run, pdf: Path) -> None:
    file = pdf / "SKILL.md"
    file.write_text(file.read_text().replace("---\n", "---\ndisable-model-invocation: true\n", 1))
    assert run("list", "--problem")[::2] == (0, "0 problems\n")
    code, out, err = run("list", "--problem", "people-only")
    assert (code, "for people alone: 1\n" in out, err) == (1, True, "1 problem\n")


def test_rules_of_a_project_that_count_for_nothing_are_said(run: Run, place: Path) -> None:
    rule = '[[rules]]\neffect = "{}"\naction = "exec"\npattern = "git *"\n'
    (place / "project/skillhouse.toml").write_text(rule.format("allow") + rule.format("deny"))
    assert run("trust", "--yes")[0] == 0
    code, out, err = run("config", "check")
    why = "a layer that is not trusted allows nothing"
    assert (code, out, err) == (
        0,
        f"project 1: allow exec git *\n  {why} [rule-no-effect]\n",
        "the configuration has 0 faults, and 1 rule without effect\n",
    )
    found = json.loads(run("config", "check", "--json")[1])["void_rules"]
    assert [one["rule_index"] for one in found] == [0]


def test_export_and_doctor_make_links_of_one_kind(run: Run, pdf: Path, place: Path) -> None:
    assert run("export", "--to", "claude-code", "--link", "pdf")[0] == 0
    link = place / "home/.claude/skills/pdf"
    assert link.readlink() == Path("../../.agents/skills/pdf")


def test_a_server_says_at_a_terminal_what_it_waits_for(place: Path) -> None:
    ours, theirs = pty.openpty()
    command = (sys.executable, "-m", "skillhouse", "mcp")
    with (
        os.fdopen(ours, "wb", buffering=0) as keys,
        subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as server,
    ):
        os.close(theirs)
        assert server.stderr is not None
        assert server.stderr.readline().startswith(b"an MCP client starts this")
        keys.write(b"\x04")
        assert server.wait(30) == 0


@pytest.mark.slow
def test_the_page_says_at_a_terminal_what_to_do_with_its_address(place: Path) -> None:
    seat = Seat(place, "up", "--port", "0")
    seat.until("open this address in a browser; Ctrl-C ends the page")
    seat.type("\x03")
    assert seat.end() == 0

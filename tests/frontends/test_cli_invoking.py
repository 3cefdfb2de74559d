"""Tests of `skillhouse invoke`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontends.conftest import Run


def write(place: Path, name: str, fields: str, body: str) -> Path:
    directory = place / "home/.config/skillhouse/skills" / name
    directory.mkdir(parents=True)
    head = f"---\nname: {name}\ndescription: About {name}.\n{fields}---\n"
    (directory / "SKILL.md").write_text(head + body)
    return directory


def turn_on(place: Path, text: str) -> None:
    (place / "home/.config/skillhouse/config.toml").write_text(text)


def test_without_a_skill_it_lists_what_can_be_started(run: Run, place: Path) -> None:
    write(place, "fix", "argument-hint: '[issue]'\n", "Fix it.\n")
    turn_on(place, "[extensions]\ninvocation = true\n")
    code, out, _ = run("invoke")
    assert (code, out.startswith("fix [issue]\n  About fix.\n")) == (0, True)
    first = json.loads(run("invoke", "--json")[1])["skills"][0]
    assert first == {
        "name": "fix",
        "description": "About fix.",
        "argument_hint": "[issue]",
        "arguments": [],
    }
    run("disable", "--all")
    assert run("invoke")[1:] == ("", "nothing can be started here\n")


def test_words_are_the_arguments_as_a_shell_would_split_them(run: Run, place: Path) -> None:
    write(place, "fix", "", "First: $0.\nSecond: $1.\nAll: $ARGUMENTS.\n")
    code, out, _ = run("invoke", "fix", "a b", "--", "--c")
    assert code == 0
    assert "First: a b.\nSecond: --c.\nAll: 'a b' --c.\n" in out
    turn_on(place, "[extensions]\nsubstitution = false\n")
    assert "ARGUMENTS: 'a b' c" in run("invoke", "fix", "a b", "c")[1]


def test_the_list_counts_what_is_for_people_alone(run: Run, place: Path) -> None:
    write(place, "deploy", "disable-model-invocation: true\n", "Deploy it.\n")
    turn_on(place, "[extensions]\ninvocation = true\n")
    out = run("list")[1]
    assert "1 for people alone" in out
    assert "disabled" not in out
    listed, alone = out.split("for people alone: 1\n")
    assert "deploy" not in listed
    assert "deploy" in alone


@pytest.mark.slow
def test_a_refusal_is_an_error_and_what_waits_says_so(run: Run, place: Path) -> None:
    write(place, "fix", "user-invocable: false\n", "Fix it.\n")
    write(place, "look", "", "Look: !`ls`\n")
    turn_on(place, "[extensions]\ninvocation = true\ncommands = true\n")
    code, out, err = run("invoke", "fix")
    assert (code, out) == (1, "")
    assert "for the model alone" in err
    assert run("invoke", "nobody")[0] == 1
    found = json.loads(run("invoke", "look", "--json")[1])
    (command,) = found["data"]["commands"]
    assert (found["status"], command["command"], command["status"]) == ("ok", "ls", "pending")
    assert f"ask the user to approve {command['approval_id']}" in found["content"]

"""`skillhouse policy suggest`, as a person uses it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.conftest import Run
from tests.house.recorded_week import get, record, write
from tests.house.recorded_week import run as called

KEPT = "# mine, kept\n[search]\nlearn = false  # this too\n"


@pytest.fixture
def week(place: Path) -> Path:
    """A log in which three commands and a directory were allowed four times each."""
    (place / "project/src").mkdir()
    allowed = [called("ls src"), called("git push"), write("src/a"), called("rg x -- 'a\u0300b'")]
    calls = [(call, True) for call in allowed] * 4
    record(place, [*calls, (called("cat a"), False), (get("https://a.example"), True)])
    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(KEPT)
    return config


def listed(run: Run, *options: str) -> dict[str, Any]:
    code, out, _ = run("policy", "suggest", *options, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_it_shows_each_rule_as_the_file_would_have_it(week: Path, run: Run) -> None:
    code, out, err = run("policy", "suggest")
    assert code == 0
    assert "18 questions in the last 7 days: 17 allowed, 1 refused; 16 of the allowed" in out
    assert '2  allow exec ls *  (b11422)\n  + [[rules]]\n  + effect = "allow"' in out
    assert "as in        ls src (4)" in out
    assert "covers too   harmless options and operands of `ls`" in out
    assert "    4  git push: `git push` sends to another place" in out
    assert "nothing was written" in err
    assert week.read_text() == KEPT
    assert [
        line for line in out.splitlines() if len(line) > 80 and str(week.parents[3]) not in line
    ] == []


def test_yes_adds_the_named_rules_and_keeps_every_byte_before(week: Path, run: Run) -> None:
    found = listed(run)
    _, second, third = found["suggestions"]
    assert (found["total"], found["questions"], found["answered"]) == (3, 18, 12)
    code, out, err = run("policy", "suggest", "--yes", "1", third["id"])
    assert (code, "2 rules" in err) == (0, True)
    text = week.read_text()
    assert text.startswith(KEPT)
    assert text.count("[[rules]]") == 2
    assert [one["rule"] for one in listed(run)["suggestions"]] == [second["rule"]]
    assert listed(run, "--yes", "1")["added"] == [second["id"]]
    assert listed(run)["suggestions"] == []
    code, out, _ = run("audit", "list", "--tool", "manage:rule-add", "--json")
    assert json.loads(out)["total"] == 3


@pytest.mark.parametrize("word", ["0", "9", "ffffff", "x"])
def test_a_number_that_is_not_there_adds_nothing(word: str, week: Path, run: Run) -> None:
    code, _, err = run("policy", "suggest", "--yes", "1", word)
    assert (code, f"no suggestion is `{word}`" in err) == (2, True)
    assert week.read_text() == KEPT


def test_a_coding_agent_adds_nothing(week: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    code, _, err = run("policy", "suggest", "--yes", "1")
    assert (code, week.read_text()) == (1, KEPT)
    assert "nothing was changed" in err
    assert run("policy", "suggest")[0] == 0


def test_each_rule_is_asked_about_at_a_terminal(
    week: Path, typing: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = typing("n\ny\n\n", "policy", "suggest")
    assert code == 0
    assert [f"Add {number}, allow" in out + err for number in (1, 2, 3)] == [True] * 3
    assert week.read_text().count("[[rules]]") == 1


def test_nothing_asked_is_said(place: Path, run: Run) -> None:
    assert run("policy", "suggest") == (
        0,
        "",
        "no questions in the last 7 days that the rules of now would not answer\n",
    )


def test_text_of_the_log_cannot_act_on_the_terminal(place: Path, run: Run) -> None:
    odd = called("ls 'a\x1b]0;x\x07\u202eb' 'c'")
    record(place, [(odd, True)] * 4 + [(called(f"frobnicate {os.sep}"), True)] * 4)
    _, out, err = run("policy", "suggest")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", out + err)

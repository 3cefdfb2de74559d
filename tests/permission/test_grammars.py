"""The tables of programs: their format, their lines, and what the installed programs say."""

from __future__ import annotations

import functools
import shlex
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skillhouse.permission import Effect, Layer, LayerRules, PathPolicy, Rule, grammar, judge_line
from skillhouse.permission.command_reader import program_of, read_command
from skillhouse.permission.grammar import (
    COMMAND_KEYS,
    GRAMMAR_KEYS,
    OPERAND_KINDS,
    _entry,
    _names,
    all_grammars,
    grammar_of,
    names_of,
)
from skillhouse.permission.operand_readers import READERS

LINES = Path(__file__).parent / "lines_of"


def entries(stem: str, kind: str) -> list[dict[str, Any]]:
    content = tomllib.loads((LINES / f"{stem}.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = content.get(kind, [])
    return found


def effect_of(entry: dict[str, Any], tree: Path) -> tuple[Effect, tuple[str, ...]]:
    denies = "deny" in entry
    rule = Rule(
        effect=Effect.DENY if denies else Effect.ALLOW,
        action="exec",
        pattern=entry["deny" if denies else "rule"],
        unbound=entry.get("unbound", False),
    )
    wide = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
    layer = Layer(name="user", rules=(wide, rule) if denies else (rule,))
    places = PathPolicy(tree, writable=(tree,))
    verdict = judge_line(entry["line"], LayerRules([layer]), places)
    return verdict.effect, verdict.reasons


# A test for each program: pytest's own work for some ten thousand lines would cost a minute.
@pytest.mark.slow
@pytest.mark.parametrize("stem", all_grammars())
def test_lines_are_judged_as_the_manual_says(stem: str, tmp_path: Path) -> None:
    wrong = []
    for entry in entries(stem, "harmless"):
        effect, reasons = effect_of(entry, tmp_path)
        if effect is not Effect.ALLOW or reasons:
            wrong.append(("not covered", entry["rule"], entry["line"], reasons))
    for entry in entries(stem, "hostile"):
        assert entry["why"]
        if effect_of(entry, tmp_path)[0] is Effect.ALLOW:
            wrong.append(("covered", entry["rule"], entry["line"], (entry["why"],)))
    wrong += [
        ("not denied", entry["deny"], entry["line"], ())
        for entry in entries(stem, "denied")
        if effect_of(entry, tmp_path)[0] is not Effect.DENY
    ]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.slow
@pytest.mark.parametrize("stem", all_grammars())
def test_a_table_keeps_the_format(stem: str) -> None:
    names = names_of(stem)
    assert names
    grammar = grammar_of(names[0], module=True)
    assert grammar is not None
    tables = [grammar.program]
    for table in tables:
        tables += table.commands.values()
        assert not table.reader or table.reader in READERS
    assert (LINES / f"{stem}.toml").exists()


@pytest.mark.slow
def test_lines_are_of_programs_with_a_table() -> None:
    for file in LINES.glob("*.toml"):
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        assert content.keys() <= {"harmless", "hostile", "denied"}
        for kind in content.values():
            for entry in kind:
                assert shlex.split(entry["line"])


def test_the_reference_has_every_key_and_kind() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/grammars.md").read_text(encoding="utf-8")
    keys = {*GRAMMAR_KEYS, *COMMAND_KEYS, *OPERAND_KINDS} - {"program", "commands"}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_a_name_has_the_table_that_all_files_together_give_it() -> None:
    assert {name: _entry(name) for name in _names()} == _names()
    assert [_entry(name) for name in ("_text", "GIT", "no-such-program", "../git", "")] == [
        None
    ] * 5


def test_a_program_has_its_name_without_its_grammar_being_read() -> None:
    names = [*_names(), "/usr/bin/git", "python3.11", "gsed", "x86_64-linux-gnu-gcc-12", "./a"]
    assert [n for n in names if program_of(n) != read_command((n,)).program] == []


def test_a_table_is_read_once_however_many_threads_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty calls at once would else each read it, and none would be answered in time."""
    stems = []
    begin = threading.Barrier(8)

    def counted(name: str, table: dict[str, Any]) -> grammar.Grammar:
        stems.append(name)
        time.sleep(0.05)
        return grammar.Grammar(name=name, source="", program=grammar.CommandTable())

    def load(_: int) -> grammar.Grammar | None:
        begin.wait()
        return grammar_of("git")

    monkeypatch.setattr(grammar, "read_grammar", counted)
    monkeypatch.setattr(grammar, "_read", functools.cache(vars(grammar)["_read"].__wrapped__))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(load, range(8))))) == 1
    assert stems == ["git"]

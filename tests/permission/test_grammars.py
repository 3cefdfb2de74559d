"""The tables of programs: their format, their lines, and what the installed programs say."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from skillhouse.permission import Effect, Layer, LayerRules, PathPolicy, Rule, judge_line
from skillhouse.permission.grammar import all_grammars, grammar_of, names_of
from skillhouse.permission.operand_readers import READERS

LINES = Path(__file__).parent / "lines_of"


def entries(kind: str) -> list[Any]:
    return [
        pytest.param(entry, id=f"{file.stem}: {entry['line']}")
        for file in sorted(LINES.glob("*.toml"))
        for entry in tomllib.loads(file.read_text(encoding="utf-8")).get(kind, [])
    ]


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


@pytest.mark.parametrize("entry", entries("harmless"))
def test_a_harmless_line_is_covered(entry: dict[str, Any], tmp_path: Path) -> None:
    effect, reasons = effect_of(entry, tmp_path)
    assert (effect, reasons) == (Effect.ALLOW, ())


@pytest.mark.parametrize("entry", entries("hostile"))
def test_a_hostile_line_is_not_covered(entry: dict[str, Any], tmp_path: Path) -> None:
    assert entry["why"]
    effect, _ = effect_of(entry, tmp_path)
    assert effect is not Effect.ALLOW


@pytest.mark.parametrize("entry", entries("denied"))
def test_a_deny_reaches_every_spelling(entry: dict[str, Any], tmp_path: Path) -> None:
    effect, _ = effect_of(entry, tmp_path)
    assert effect is Effect.DENY


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


def test_lines_are_of_programs_with_a_table() -> None:
    for file in LINES.glob("*.toml"):
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        assert content.keys() <= {"harmless", "hostile", "denied"}
        for kind in content.values():
            for entry in kind:
                assert shlex.split(entry["line"])

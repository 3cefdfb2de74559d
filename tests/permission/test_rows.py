"""The files of several tables (grammars/_*.toml), and the other names of programs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from skillhouse.permission import Effect, Layer, LayerRules, PathPolicy, Rule, grammar, judge_line
from skillhouse.permission.grammar import grammar_of
from skillhouse.permission.operand_readers import READERS

TABLES = Path(grammar.__file__).with_name("grammars")
ROWS = {
    path.stem: tuple(tomllib.loads(path.read_text(encoding="utf-8")))
    for path in sorted(TABLES.glob("_*.toml"))
}
LINES = tomllib.loads(Path(__file__).with_name("rows.toml").read_text(encoding="utf-8"))


def effect_of(line: str, tree: Path) -> Effect:
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern=f"{line.split(maxsplit=1)[0]} *")
    rules = LayerRules([Layer(name="user", rules=(rule,))])
    return judge_line(line, rules, PathPolicy(tree, writable=(tree,))).effect


@pytest.mark.parametrize("file", ROWS)
def test_lines_are_judged_as_the_manuals_say(file: str, tmp_path: Path) -> None:
    for line in LINES[file]["harmless"]:
        assert effect_of(line, tmp_path) is Effect.ALLOW, line
    allowed = [line for line in LINES[file]["hostile"] if effect_of(line, tmp_path) is Effect.ALLOW]
    assert allowed == []


@pytest.mark.parametrize(("file", "stems"), ROWS.items())
def test_a_row_keeps_the_format(file: str, stems: tuple[str, ...]) -> None:
    for stem in stems:
        found = grammar_of(_names(file, stem)[0], module=True)
        assert found is not None, stem
        tables = [found.program, *found.program.commands.values()]
        assert all(not table.reader or table.reader in READERS for table in tables)


def _names(file: str, stem: str) -> list[str]:
    path = TABLES / f"{file}.toml"
    names: list[str] = tomllib.loads(path.read_text(encoding="utf-8"))[stem].get("names", [stem])
    return names


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        *(
            ("gsed", "sed"),
            ("gtar", "tar"),
            ("gawk", "awk"),
            ("gfind", "find"),
            ("gxargs", "xargs"),
        ),
        *(("gcc-12", "gcc"), ("python3.12", "python"), ("clang-15", "gcc"), ("lua5.4", "lua")),
        *(("x86_64-linux-gnu-gcc", "gcc"), ("aarch64-linux-gnu-g++-13", "gcc")),
        *(("arm-none-eabi-nm", "objdump"), ("x86_64-w64-mingw32-strip", "strip")),
    ],
)
def test_a_program_is_known_by_its_other_names(name: str, stem: str) -> None:
    found = grammar_of(name)
    assert found is not None
    assert found.name == stem


def test_a_name_that_only_looks_like_another_is_none() -> None:
    assert grammar_of("gzz") is None
    assert grammar_of("gfoo-1.2") is None
    assert grammar_of("http.server") is None

"""Tests of the spellings of options: a deny of one sees each (B15)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skillhouse.permission import judge_command
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.grammar import CommandTable, all_grammars, grammar_of, names_of
from skillhouse.permission.patterns import command_pattern, denies_command

PAIRS = [
    ("rm -rf *", "rm -Rf src"),
    ("rm -rf *", "rm -fR src"),
    ("rm -rf *", "rm --force --recursive src"),
    ("rm -R *", "rm -r src"),
    ("cp -r *", "cp -R a b"),
    ("cp -r *", "cp -a a b"),
    ("cp -r *", "cp --archive a b"),
    ("cp -R *", "cp -a a b"),
    ("cp -p *", "cp --preserve a b"),
    ("sed -i *", "sed --in-place s/a/b/ f"),
    ("sed -i *", "sed -i.bak s/a/b/ f"),
    ("sed -i *", "sed --in-place=.bak s/a/b/ f"),
    ("sed -i *", "sed -ni s/a/b/ f"),
    ("sed --in-place *", "sed -i s/a/b/ f"),
    ("sed -ni *", "sed --in-place --quiet s/a/b/ f"),
    ("sed -r *", "sed --regexp-extended s/a/b/ f"),
    ("grep -r *", "grep -R x ."),
    ("grep -r *", "grep --dereference-recursive x ."),
    ("grep -R *", "grep -nr x ."),
    ("grep -r *", "grep --directories=recurse x ."),
    ("grep -r *", "grep -d recurse x ."),
    ("grep -d recurse *", "grep -r x ."),
    ("chmod 777 *", "chmod 0777 f"),
    ("chmod 777 *", "chmod 00777 f"),
    ("chmod 777 *", "chmod 1777 f"),
    ("chmod 777 *", "chmod a+rwx f"),
    ("chmod 777 *", "chmod +rwx f"),
    ("chmod 777 *", "chmod ugo=rwx f"),
    ("chmod 777 *", "chmod u+rwx,g+rwx,o+wxr f"),
    ("chmod 777 *", "chmod -R a+rwx f"),
    ("chmod a+rwx *", "chmod 777 f"),
    ("chmod -R 777 *", "chmod 0777 --recursive f"),
    ("tar -x *", "tar --get -f a.tar"),
    ("tar --extract *", "tar -xf a.tar"),
    ("tar -d *", "tar --compare -f a.tar"),
    ("git branch -D *", "git branch --delete --force main"),
    ("git branch -D *", "git branch -d -f main"),
    ("git branch -d *", "git branch -D main"),
    ("git branch --force *", "git branch -M main"),
    ("git add -A *", "git add --no-ignore-removal"),
    ("git diff --cached *", "git diff --staged"),
    ("git switch -f *", "git switch --discard-changes main"),
    ("head -q *", "head --silent a"),
]
OTHERS = [
    ("chmod 777 *", "chmod 755 f"),
    ("chmod 4755 *", "chmod 755 f"),
    ("chmod 777 *", "chmod a-rwx f"),
    ("cp -a *", "cp -R a b"),
    ("git branch -D *", "git branch -d main"),
    ("rm -rf *", "rm -r a"),
    ("sed -i *", "sed -n s/a/b/ f"),
]


@pytest.mark.parametrize(("deny", "line"), PAIRS)
def test_a_deny_sees_each_spelling(deny: str, line: str) -> None:
    assert judge_command(line, allow=["*"], deny=[deny]).effect.value == "deny"


@pytest.mark.parametrize(("deny", "line"), OTHERS)
def test_a_deny_does_not_see_another_option(deny: str, line: str) -> None:
    assert not denies_command(command_pattern(deny), read_command(tuple(line.split())))


def tables(table: CommandTable, words: tuple[str, ...]) -> Iterator[tuple[CommandTable, list[str]]]:
    yield table, list(words)
    for name, inner in table.commands.items():
        yield from tables(inner, (*words, name))


@pytest.mark.slow
@pytest.mark.parametrize("stem", all_grammars())
def test_every_spelling_of_an_option_is_denied_by_a_deny_of_any_other(stem: str) -> None:
    program = names_of(stem)[0]
    grammar = grammar_of(program, module=True)
    assert grammar is not None
    wrong = []
    # Some tables are of modules only.
    start = (program,) if grammar_of(program) is not None else ("python", "-m", program)
    for table, words in tables(grammar.program, start):
        if table.commands:
            continue  # Without a sub-command that is known the words are compared as they stand.
        for name, rule in table.options.items():
            if "?" in name:
                continue  # In a rule it is a wildcard.
            for other in rule.spellings:
                takes = (rule.takes, table.options[other].takes)
                value = ["7"] if takes == ("=", "=") else []
                if "=" in takes and not value:
                    continue  # One of them takes a value of its own.
                deny = " ".join([*words, name, *value, "*"])
                line = (*words, other, *value, "a", "b")
                if not denies_command(command_pattern(deny), read_command(line)):
                    wrong.append((deny, " ".join(line)))
    assert not wrong, wrong[:10]

"""Tests of rules with several patterns, and of examples that are remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse import permission
from skillhouse.floor import ConfigError
from skillhouse.house import Locations, load_config
from skillhouse.house.config import rule_tables
from skillhouse.house.config.rule_tables import EXAMPLES_DIRECTORY, REMEMBERED_MAX
from skillhouse.permission import Effect, Rule
from tests.house.places import make_places

RULE = '[[rules]]\neffect = "allow"\naction = "exec"\n'


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    made = make_places(tmp_path)
    made.user_file.parent.mkdir(parents=True)
    return made


def remembered(places: Locations) -> list[Path]:
    directory = places.cache() / EXAMPLES_DIRECTORY
    return list(directory.iterdir()) if directory.exists() else []


def test_each_of_several_patterns_is_a_rule(places: Locations) -> None:
    places.user_file.write_text(
        f'{RULE}patterns = ["ls *", "cat *"]\nunbound = true\n'
        '[agents.a]\n[[agents.a.rules]]\neffect = "ask"\naction = "exec"\npatterns = ["x", "y"]\n'
    )
    config = load_config(places)
    assert config.layers[0].rules == tuple(
        Rule(effect=Effect.ALLOW, action="exec", pattern=pattern, unbound=True)
        for pattern in ("ls *", "cat *")
    )
    assert [rule.pattern for rule in config.agents["a"].rules] == ["x", "y"]


@pytest.mark.parametrize("value", ['"ls *"', "[]", "[1]", '["ls"]\npattern = "cat"'])
def test_patterns_is_a_list_of_texts_without_pattern(places: Locations, value: str) -> None:
    places.user_file.write_text(f"{RULE}patterns = {value}\n")
    with pytest.raises(ConfigError, match="expected a list of texts in `patterns`"):
        load_config(places)


@pytest.mark.parametrize(
    ("patterns", "examples", "message"),
    [
        ('["git log *"]', 'match = ["git --no-pager log"]\nnot_match = ["git push"]', ""),
        ('["git *"]', 'not_match = ["git push", "git -c a=b log", "cat x"]', ""),
        ('["cat *"]', 'not_match = ["cat .env", "cat /etc/passwd"]', ""),
        ('["ls *", "cat *"]', 'match = ["ls", "cat x"]\nnot_match = ["rm x"]', ""),
        ('["git *"]', 'match = ["git push"]', "rule 1: `git *` does not match its example"),
        ('["ls *", "rm *"]', 'match = ["mv a b"]', "rules 1 to 2: `ls *` and the others do not"),
        ('["ls *", "rm *"]', 'not_match = ["rm a"]', "and the others match their counterexample"),
    ],
)
def test_examples_of_commands_are_tried_by_the_grammar(
    places: Locations, patterns: str, examples: str, message: str
) -> None:
    places.user_file.write_text(f"{RULE}patterns = {patterns}\n{examples}\n")
    if not message:
        load_config(places)
        return
    for _ in range(2):  # What fails is not remembered.
        with pytest.raises(ConfigError, match=message.replace("*", r"\*")):
            load_config(places)
    assert not remembered(places)


def test_a_denials_examples_are_those_that_it_denies(places: Locations) -> None:
    rule = '[[rules]]\neffect = "deny"\naction = "exec"\npattern = "git push *"\n'
    places.user_file.write_text(
        f'{rule}match = ["git -C sub push", "env git push"]\nnot_match = ["git log", "sudo ls"]\n'
    )
    load_config(places)


def test_examples_are_tried_once_for_the_same_bytes(places: Locations, monkeypatch) -> None:
    tried: list[str] = []
    whole = permission.example_holds

    def counting(rule: Rule, example: str) -> bool:
        tried.append(example)
        return whole(rule, example)

    monkeypatch.setattr(permission, "example_holds", counting)
    places.user_file.write_text(f'{RULE}pattern = "ls *"\nmatch = ["ls src"]\n')
    for _ in range(3):
        load_config(places)
    assert tried == ["ls src"]
    assert len(remembered(places)) == 1
    places.user_file.write_text(f'{RULE}pattern = "ls *"\nmatch = ["ls tests"]\n')
    load_config(places)
    assert tried == ["ls src", "ls tests"]


def test_other_code_that_judges_tries_them_again(places: Locations, monkeypatch) -> None:
    places.user_file.write_text(f'{RULE}pattern = "ls *"\nmatch = ["ls src"]\n')
    load_config(places)
    monkeypatch.setattr(rule_tables, "_stamps", lambda _: [("grammar.py", 1, 1)])
    load_config(places)
    assert len(remembered(places)) == 2


def test_without_a_cache_they_are_tried_each_time(places: Locations) -> None:
    places.user_file.write_text(f'cache = false\n{RULE}pattern = "ls *"\nmatch = ["ls src"]\n')
    load_config(places)
    assert not remembered(places)


@pytest.mark.slow
def test_the_cache_does_not_grow_without_end(places: Locations) -> None:
    for number in range(REMEMBERED_MAX + 3):
        places.user_file.write_text(f'{RULE}pattern = "ls *"\nmatch = ["ls {number}"]\n')
        load_config(places)
    assert len(remembered(places)) == REMEMBERED_MAX


def test_a_cache_that_cannot_be_written_costs_nothing_else(places: Locations) -> None:
    places.cache().parent.mkdir(parents=True, exist_ok=True)
    places.cache().write_text("a file")
    places.user_file.write_text(f'{RULE}pattern = "ls *"\nmatch = ["ls src"]\n')
    assert load_config(places).layers

"""The public contract is what tests/data/contract.json lists: nothing of it is lost or changed.

What is new is no fault; `./x docs` adds it to the list. The list was made from the commit before
the tree was renamed, through public names, the installed command, MCP, HTTP and files only. What
other tests hold is not repeated here:

- signatures of the functions, word for word: tests/test_house.py
- texts of catalogs and loaded skills in every style: tests/golden
- what each design and client finds, lists, loads and answers: tests/profiles
- how paths, names, rules, commands and digests are judged: tests/vectors
- the chain of the log and what `verify` finds: tests/audit
- RPC between core and executor: tests/sandbox
- the exit code after Ctrl-C: tests/frontends/test_cli.py
- forms of the pages and of devices' answers: tests/extensions/server/pages/test_approval_pages.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts.contract import SECTIONS, added, broken, flat, merged

from tests.harness import ran

ROOT = Path(__file__).resolve().parents[1]
LISTED: dict[str, Any] = json.loads((ROOT / "tests/data/contract.json").read_text(encoding="utf-8"))

# Left out of the fast part: it starts processes.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("section", LISTED)
def test_nothing_of_the_public_contract_is_lost_or_changed(section):
    command = [sys.executable, "-m", "scripts.contract", section]
    done = ran(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def changed(value: Any, path: str) -> Any:
    """Return a copy in which the leaf at a path is another one."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in keys[:-1]:
        inner = (
            next(i for i in inner if i["name"] == key) if isinstance(inner, list) else inner[key]
        )
    if isinstance(inner, list):
        inner.remove(next(item for item in inner if str(item) == keys[-1]))
    else:
        inner[keys[-1]] = [inner[keys[-1]]]
    return copy


def test_every_section_is_listed_and_a_change_of_any_leaf_is_found():
    assert set(LISTED) == set(SECTIONS)
    leaves = flat(LISTED)
    assert broken(LISTED, LISTED) == []
    assert len(broken(LISTED, {})) == len(leaves)
    # With another name an item of a list is another one, of which each leaf is gone.
    for path in [path for path in leaves if not path.endswith("/name")][::50]:
        lines = broken(LISTED, changed(LISTED, path))
        assert [
            line.rpartition(": gone")[0] or line.partition(": listed")[0] for line in lines
        ] == [path]


VERB: dict[str, Any] = {"arguments": {"0": "takes 1"}, "options": {"--sort": {"takes": "takes 1"}}}
SCHEMA: dict[str, Any] = {
    "enum": ["a"],
    "properties": {"x": {}},
    "required": ["x"],
    "items": ["p", "q"],
}


@pytest.mark.parametrize(
    ("listed", "now"),
    [
        (VERB, {**VERB, "options": {**VERB["options"], "--new": "takes 0"}}),
        ({"choices": {"a": "yes"}}, {"choices": {"a": "yes", "b": "yes"}}),
        (VERB, {**VERB, "arguments": {"0": "takes 1", "1": "takes ?"}}),
        ({"a": VERB}, {"a": VERB, "b": {"arguments": {"0": "takes 1"}}}),
        ({"a": VERB}, {"a": VERB, "b": {"options": {"--to": "takes 1, required"}}}),
        (SCHEMA, {**SCHEMA, "enum": ["b", "a"]}),
        (SCHEMA, {**SCHEMA, "properties": {"x": {}, "y": {"type": "string"}}}),
        ({"required": ["x", "y"]}, {"required": ["y", "x"]}),
        ({"log version": [1]}, {"log version": [1, 2]}),
        ({"arguments": [{"name": "x"}]}, {"arguments": [{"name": "y"}, {"name": "x"}]}),
        ({"verb": {}}, {"verb": {"options": {"--json": "takes 0"}}}),
        ({"a": None}, {"a": None, "b": None}),
    ],
)
def test_what_is_new_is_no_break_and_is_added(listed, now):
    assert broken(listed, now) == []
    both = merged(listed, now)
    assert added(both, now) == []
    assert flat(both) == flat(now)


@pytest.mark.parametrize(
    ("listed", "now", "lines"),
    [
        (VERB, {**VERB, "options": {}}, ["/options/--sort/takes: gone"]),
        ({"choices": {"a": "yes", "b": "yes"}}, {"choices": {"a": "yes"}}, ["/choices/b: gone"]),
        (SCHEMA, {**SCHEMA, "enum": ["b"]}, ["/enum/a: gone"]),
        (
            SCHEMA,
            {**SCHEMA, "required": ["y", "x"]},
            ["/required: listed ['x'], now ['x', 'y']"],
        ),
        (SCHEMA, {**SCHEMA, "items": ["q", "p"]}, ["/items: listed ['p', 'q'], now ['q', 'p']"]),
        (
            {"a": VERB},
            {"a": {**VERB, "arguments": {"0": "takes 1", "1": "takes 1"}}},
            ["/a/arguments/1: new, and must be given: takes 1"],
        ),
        (
            {"a": VERB},
            {"a": {**VERB, "options": {**VERB["options"], "--to": "takes 1, required"}}},
            ["/a/options/--to: new, and must be given: takes 1, required"],
        ),
        ({"a": "takes 1"}, {"a": "takes 2"}, ["/a: listed 'takes 1', now 'takes 2'"]),
        ({"a": 1}, {"b": 1}, ["/a: gone"]),
    ],
)
def test_what_is_gone_changed_or_demanded_is_a_break_and_stays_listed(listed, now, lines):
    assert broken(listed, now) == lines
    kept = flat(merged(listed, now))
    for path, value in flat(listed).items():
        assert kept[path] == value

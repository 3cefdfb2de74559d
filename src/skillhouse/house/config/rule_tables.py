"""Rules as a file writes them, and the policies of rules that come with the program.

One table may have several patterns, and examples that are tried. Trying the examples of commands
costs 20 to 30 ms for a few dozen rules, so it is done once for a file's bytes: the cache holds an
empty file named by their digest and that of the code that judges. Whoever could write there could
only spare a file this test of its own rules.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from skillhouse import permission
from skillhouse.floor import ConfigError, shaped
from skillhouse.floor.digests import sha256
from skillhouse.house.config.config_values import Settings
from skillhouse.permission import Layer, Rule, matches

EXAMPLES_DIRECTORY = "rule-examples"
"""Below the cache directory."""
RULED = frozenset({"rules", "agents"})
"""The keys of a file that have rules."""
REMEMBERED_MAX = 64
"""Files of rules whose examples are remembered."""


def with_each_pattern(table: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    """Return a file's table with a rule for each pattern of `patterns`.

    Raises:
        ConfigError: `patterns` is no list of texts, or there is a `pattern` too.
    """
    made = dict(table)
    if isinstance(table.get("rules"), list):
        made["rules"] = list(_each(table["rules"], path))
    agents = table.get("agents")
    if isinstance(agents, Mapping):
        made["agents"] = {
            name: {**agent, "rules": list(_each(agent["rules"], path))}
            if isinstance(agent, Mapping) and isinstance(agent.get("rules"), list)
            else agent
            for name, agent in agents.items()
        }
    return made


def _each(rules: Sequence[Any], path: Path | None) -> Iterator[Any]:
    for rule in rules:
        if not isinstance(rule, Mapping) or "patterns" not in rule:
            yield rule
            continue
        found = rule["patterns"]
        is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
        if not is_list or not found or "pattern" in rule:
            message = "expected a list of texts in `patterns`, and no `pattern` beside it"
            raise ConfigError(message, path=path, key="patterns")
        rest = {key: value for key, value in rule.items() if key != "patterns"}
        for pattern in found:
            yield {**rest, "pattern": pattern}


def try_examples(raw: Any, rules: Sequence[Rule], path: Path | None) -> None:
    """Try the examples of rules; those of a table with `patterns` are about any of these.

    Args:
        raw: The list of tables that the rules were made of.
        rules: All of them, in order.
        path: The file, for the error.

    Raises:
        ConfigError: an example does not hold.
    """
    at = 0
    for table in raw if isinstance(raw, list) else ():
        count = len(table["patterns"]) if "patterns" in table else 1
        _try_one(rules[at : at + count], at, path)
        at += count


def _try_one(rules: Sequence[Rule], at: int, path: Path | None) -> None:
    first = rules[0]
    shown = f"rule {at + 1}: `{first.pattern}`"
    if len(rules) > 1:
        shown = f"rules {at + 1} to {at + len(rules)}: `{first.pattern}` and the others"
    many = len(rules) > 1
    for example in first.match:
        if not any(_holds(rule, example) for rule in rules):
            said = "do not match their" if many else "does not match its"
            raise ConfigError(f"{shown} {said} example `{example}`", path=path, key="match")
    for example in first.not_match:
        if any(_holds(rule, example) for rule in rules):
            said = "match their" if many else "matches its"
            message = f"{shown} {said} counterexample `{example}`"
            raise ConfigError(message, path=path, key="not_match")


def _holds(rule: Rule, example: str) -> bool:
    if rule.action != "exec":
        return matches(rule.pattern, example)
    # Loads the judge of commands, so only where an example has not been tried before.
    return permission.example_holds(rule, example)


class TriedExamples:
    """The files whose examples held, by the digest of their bytes."""

    def __init__(self, cache: Path | None) -> None:
        """Take the cache directory; without one every example is tried each time."""
        self._directory = None if cache is None else cache / EXAMPLES_DIRECTORY

    def holds(self, content: bytes) -> bool:
        return self._directory is not None and os.path.exists(self._directory / _key(content))

    def remember(self, content: bytes) -> None:
        if self._directory is None:
            return
        with suppress(OSError):  # It is tried again next time.
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._directory / _key(content)).touch()
            kept = sorted(self._directory.iterdir(), key=lambda file: file.stat().st_mtime_ns)
            for file in kept[:-REMEMBERED_MAX]:
                file.unlink()


def _key(content: bytes) -> str:
    made = sha256(content)
    directory = Path(permission.__file__).parent
    for place in (directory, directory / "grammars"):
        for name, size, changed in _stamps(place):
            made.update(f"\0{name}\0{size}\0{changed}".encode())
    return made.hexdigest()


def _stamps(directory: Path) -> Iterable[tuple[str, int, int]]:
    with os.scandir(directory) as entries:
        files = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
    return sorted((name, info.st_size, info.st_mtime_ns) for name, info in files)


POLICY_NAMES = ("careful", "developer", "locked")
POLICY_SUMMARIES = {
    "careful": (
        "reading files of the workspace, and the history of git",
        "every change, script and request",
        "force pushes, publishing packages, applying terraform",
    ),
    "developer": (
        "reading, editing, commits, builds, tests, the project's own scripts",
        "installing, pushing, deleting branches, code in a command, other programs",
        "force pushes, publishing packages, applying terraform",
    ),
    "locked": (
        "reading files of the workspace; git status, log, diff and show",
        "every other command",
        "changing files, requests, interpreters, installers",
    ),
}
"""What each allows, asks about and denies."""


def policy_file(name: str) -> Path:
    """Return the file of a policy; `name` is one of POLICY_NAMES."""
    return Path(__file__).parent.parent / "policies" / f"{name}.toml"


def policy_text(name: str) -> str:
    return policy_file(name).read_text(encoding="utf-8")


@functools.lru_cache
def starting_rules(name: str) -> tuple[Rule, ...]:
    """Return the rules of a policy.

    >>> len(starting_rules("locked")) < len(starting_rules("developer"))
    True
    """
    table = with_each_pattern(tomllib.loads(policy_text(name)), None)
    return shaped(table, Settings).rules or ()


def policy_layer(name: str) -> Layer:
    """Return the layer of a policy that is in force, which has its name."""
    return Layer(name=name, rules=starting_rules(name), is_builtin=True)

"""Changes the rules and the policy of the user's configuration file; every other byte stays."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillhouse.audit import AuditLog
from skillhouse.audit.log import recorded
from skillhouse.floor import (
    ConfigError,
    DecodeError,
    Locations,
    StateError,
    file_problem,
    make_private,
    read_regular,
    shaped,
    write_atomically,
)
from skillhouse.floor.documents import DocumentError, toml_table
from skillhouse.floor.lock import locked_file
from skillhouse.floor.machine import state_advice
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.house.config import Settings, load_config
from skillhouse.house.config.config_lines import CONFIG_FILE_MAX
from skillhouse.house.config.repositories import check_repositories
from skillhouse.house.config.rule_tables import (
    policy_text,
    starting_rules,
    try_examples,
    with_each_pattern,
)
from skillhouse.permission import Effect, Rule

LOCK_FILE = "user-file.lock"
"""In the state directory: held while the file is read, changed and written."""
_HEADER = "[[rules]]"
_WRITTEN_KEY = regex(r"\s*(?:effect|action|pattern|reason)\s*=")
_POLICY = regex(r"\s*policy\s*=")


def rule_text(
    effect: Effect,
    action: str,
    pattern: str,
    *,
    reason: str = "",
    match: Sequence[str] = (),
    not_match: Sequence[str] = (),
) -> str:
    """Return a rule as a configuration file writes it.

    >>> print(rule_text(Effect.DENY, "exec", "rm *", match=["rm x"]))
    [[rules]]
    effect = "deny"
    action = "exec"
    pattern = "rm *"
    match = ["rm x"]
    <BLANKLINE>
    """
    lines = ["[[rules]]"]
    for key, value in (("effect", effect.value), ("action", action), ("pattern", pattern)):
        lines.append(f"{key} = {_toml(value)}")
    if reason:
        lines.append(f"reason = {_toml(reason)}")
    for key, examples in (("match", match), ("not_match", not_match)):
        if examples:
            lines.append(f"{key} = [{', '.join(map(_toml, examples))}]")
    return "\n".join(lines) + "\n"


def checked_addition(places: Locations, rule: str) -> str:
    """Return the text of the user's file with a rule at its end; nothing is written.

    Every byte of the file is kept, comments too.

    Raises:
        ConfigError: the file cannot be read or extended, or an example of its rules does not hold.
    """
    # What is wrong already is said first: a rule in a file that cannot be used has no effect.
    load_config(places)
    path = places.user_file
    before = user_text(places)
    text = f"{before.rstrip()}\n\n{rule}" if before.strip() else rule
    try:
        table = with_each_pattern(toml_table(text), path)
        rules = shaped(table, Settings).rules or ()
    except DocumentError as error:
        raise ConfigError(f"a rule cannot be added: {error}", path=path, key="rules") from error
    try_examples(toml_table(text)["rules"], rules, path)
    return text


def with_repository(places: Locations, name: str, url: str) -> str:
    """Return the text of the user's file with one more repository; nothing is written.

    It is not trusted: each install from it asks.

    Raises:
        ConfigError: the file cannot be read or extended, or it can be no repository.
    """
    load_config(places)
    path = places.user_file
    before = user_text(places)
    table = f"[[skills.repositories]]\nname = {_toml(name)}\nurl = {_toml(url)}\n"
    text = f"{before.rstrip()}\n\n{table}" if before.strip() else table
    try:
        settings = shaped(with_each_pattern(toml_table(text), path), Settings)
    except DocumentError as error:
        message = f"a repository cannot be added: {error}"
        raise ConfigError(message, path=path, key="skills.repositories") from error
    found = settings.skills
    check_repositories(found.repositories if found is not None else (), path)
    return text


def user_text(places: Locations) -> str:
    """Return the text of the user's configuration file, "" where there is none.

    Raises:
        ConfigError: it cannot be used.
    """
    path = places.user_file
    if problem := file_problem(path):
        raise ConfigError(f"the configuration is not used: {problem}", path=path)
    try:
        text = read_regular(path, CONFIG_FILE_MAX).decode()
        toml_table(text)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not TOML: {error}", path=path) from error
    except DocumentError as error:
        raise ConfigError(error.reason, path=path, line=error.line) from error
    return text


@contextmanager
def only_editor(places: Locations, state_directory: Path) -> Iterator[None]:
    """Keep other processes of ours from changing the user's file until the block ends.

    A change is made from the text that is there: two at once would leave that of one, and both
    would say that they were made.

    Raises:
        ConfigError: another one is changing it, for `floor.lock.LOCK_SECONDS` now.
        StateError: the state, where the lock is, cannot be written.
    """
    try:
        make_private(state_directory)
    except OSError as error:
        text = f"the state cannot be written ({error.strerror or error})"
        raise StateError(text, state_directory, advice=state_advice(error)) from error
    try:
        with locked_file(state_directory / LOCK_FILE):
            yield
    except TimeoutError as error:
        message = "another process is changing the configuration; try again"
        raise ConfigError(message, path=places.user_file) from error


def write_user_text(
    audit: AuditLog, places: Locations, text: str, action: str, changed: Mapping[str, object]
) -> Path:
    """Replace the user's configuration file, within `only_editor`; return its path.

    Args:
        audit: Gets `changed` and the file before it is written; AuditError if it cannot.
        places: Whose file.
        text: What it says then.
        action: `rule-add`, `rule-remove`, `policy` or `repository-add`.
        changed: What differs, as a person reads it.
    """
    with recorded(audit, action, {**changed, "path": str(places.user_file)}):
        return _write(places, text)


def rule_value(rule: Rule) -> dict[str, object]:
    """Return what the log keeps of a rule."""
    reason = {"reason": rule.reason} if rule.reason else {}
    shown = {"effect": rule.effect.value, "action": rule.action, "pattern": rule.pattern}
    return {**shown, **reason}


def _write(places: Locations, text: str) -> Path:
    # A link stays one; what it names is replaced.
    path = Path(os.path.realpath(places.user_file))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with write_atomically(path, durable=True) as file:
        file.write(text.encode())
    return places.user_file


def with_policy(places: Locations, name: str) -> str:
    """Return the text of the user's file with `policy = "NAME"`; nothing is written.

    Raises:
        ConfigError: the file cannot be used, or sets a policy in a way that is not understood.
    """
    before = user_text(places)
    setting = f"policy = {_toml(name)}"
    table = toml_table(before)
    wanted = {**table, "policy": name}
    if "policy" not in table:
        return f"{setting}\n\n{before}" if before.strip() else f"{setting}\n"
    lines = before.splitlines(keepends=True)
    for at, line in enumerate(lines):
        changed = "".join((*lines[:at], f"{setting}{_behind(line)}", *lines[at + 1 :]))
        # INVARIANT: what is written says just what was there but for the policy.
        if _POLICY.match(line) and _table(changed) == wanted:
            return changed
    message = f"write `{setting}` there by hand"
    raise ConfigError(message, path=places.user_file, key="policy")


def _behind(line: str) -> str:
    """Return what is behind the value of a line: a comment with the blanks before it, or its end.

    >>> _behind('policy = "a#b"  # why\\n')
    '  # why\\n'
    """
    for at, sign in enumerate(line):
        # The first sign behind a whole value; one within a text leaves no TOML before it.
        if sign == "#" and _table(line[:at]):
            value = line[:at].rstrip()
            return line[len(value) :] if line.endswith("\n") else f"{line[len(value) :]}\n"
    return "\n"


def without_copies(text: str, name: str) -> tuple[str, int]:
    """Return a file's text without the rules that a policy has too, and how many these are.

    Their comments go with them. A text where that cannot be done is returned as it is.
    """
    known = set(map(_without_examples, starting_rules(name)))
    rules = rules_of(text)
    kept = tuple(rule for rule in rules if _without_examples(rule) not in known)
    lines = text.splitlines(keepends=True)
    for start, end in reversed(rule_spans(lines)):
        while not lines[end - 1].partition("#")[0].strip():
            end -= 1
        if known.issuperset(map(_without_examples, _rules_in(lines[start:end]))):
            while start and lines[start - 1].startswith("#"):
                start -= 1
            del lines[start:end]
    # Its first paragraph is about the whole policy.
    found = "".join(lines).replace(policy_text(name).partition("\n\n")[0], "")
    found = regex(r"\n{3,}").sub("\n\n", found).strip("\n")
    found = f"{found}\n" if found else ""
    # INVARIANT: what goes is in the policy, and nothing else of the file changes.
    is_same = _rules_in([found]) == kept and rest_of(found) == rest_of(text)
    return (found, len(rules) - len(kept)) if is_same else (text, 0)


def _without_examples(rule: Rule) -> Rule:
    return replace(rule, match=(), not_match=())


def _rules_in(lines: Sequence[str]) -> tuple[Rule, ...]:
    try:
        return rules_of("".join(lines))
    except (DecodeError, ConfigError):
        return (Rule(effect=Effect.DENY, action="", pattern=""),)


def rules_of(text: str) -> tuple[Rule, ...]:
    """Return the rules of a file's text; DecodeError or ConfigError if it cannot be used."""
    table = with_each_pattern({"rules": toml_table(text).get("rules", [])}, None)
    return tuple(shaped(table, Settings).rules or ())


def rest_of(text: str) -> dict[str, Any]:
    return {key: value for key, value in toml_table(text).items() if key != "rules"}


def rule_spans(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first line of each `[[rules]]` table and the line after its last, from 0."""
    starts = [at for at, line in enumerate(lines) if line.partition("#")[0].strip() == _HEADER]
    found = []
    for start in starts:
        end = start + 1
        while end < len(lines) and not lines[end].lstrip().startswith("["):
            end += 1
        found.append((start, end))
    return found


def _table(text: str) -> dict[str, Any]:
    try:
        return toml_table(text)
    except DocumentError:
        return {}


def _toml(text: str) -> str:
    # A JSON text is a TOML basic string, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def without_rule(places: Locations, index: int) -> str:
    """Return the text of the user's file without one of its rules; nothing is written.

    Args:
        places: Whose file.
        index: Place of the rule in the layer `user`, from 0.

    Raises:
        ConfigError: the file cannot be read, has no such rule, or writes it so that no lines are
            its own (several patterns in one table, rules in one line).
    """
    path = places.user_file
    before = user_text(places)
    rules = rules_of(before)
    if not 0 <= index < len(rules):
        raise ConfigError(f"no rule {index + 1} of {len(rules)}", path=path, key="rules")
    wanted = (*rules[:index], *rules[index + 1 :])
    for candidate in _candidates(before):
        # INVARIANT: what is written says just what was there but for the one rule.
        if _says(candidate, before, wanted):
            return candidate
    message = "the rule has no lines of its own; take it out of the file by hand"
    raise ConfigError(message, path=path, key="rules")


def with_changed_rule(places: Locations, index: int, rule: Rule) -> str:
    """Return the text of the user's file with another rule at a place; nothing is written.

    Only the four fields that `rule_text` writes first differ; further lines of its table stay.

    Raises:
        ConfigError: as of `without_rule`, or an example of the rule does not hold any more.
    """
    path = places.user_file
    before = user_text(places)
    rules = rules_of(before)
    if not 0 <= index < len(rules):
        raise ConfigError(f"no rule {index + 1} of {len(rules)}", path=path, key="rules")
    old = rules[index]
    changed = replace(
        old, effect=rule.effect, action=rule.action, pattern=rule.pattern, reason=rule.reason
    )
    wanted = (*rules[:index], changed, *rules[index + 1 :])
    table = rule_text(rule.effect, rule.action, rule.pattern, reason=rule.reason)
    lines = before.splitlines(keepends=True)
    for start, end in rule_spans(lines):
        kept = [line for line in lines[start + 1 : end] if not _WRITTEN_KEY.match(line)]
        candidate = "".join((*lines[:start], table, *kept, *lines[end:]))
        # INVARIANT: what is written says just what was there but for the one rule.
        if _says(candidate, before, wanted):
            try_examples(toml_table(candidate)["rules"], wanted, path)
            return candidate
    message = "the rule has no lines of its own; change it in the file by hand"
    raise ConfigError(message, path=path, key="rules")


def _candidates(text: str) -> Iterator[str]:
    """Yield the text without each of its `[[rules]]` tables."""
    lines = text.splitlines(keepends=True)
    for start, end in rule_spans(lines):
        yield "".join((*lines[:start], *lines[end:]))


def _says(text: str, before: str, rules: Sequence[Rule]) -> bool:
    try:
        return rules_of(text) == tuple(rules) and rest_of(text) == rest_of(before)
    except (DecodeError, ConfigError):
        return False

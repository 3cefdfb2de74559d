"""What a client's own rules and settings say of a command that would be rewritten.

A client compares no rule of its own with a rewritten command. So one about which they may say deny
or ask is left as it is, and the client does with it what it does; so is each command where some of
this cannot be read.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from skillhouse.clients import jsonc
from skillhouse.clients.jsonc import NotEditableError
from skillhouse.floor.documents import DocumentError, toml_table

BYTES_MAX = 1024 * 1024
TAIL_BYTES = 4 * 1024 * 1024
"""How much of the end of a session's record is read."""
RUNNER = Path(__file__).with_name("hook_runner.py")
_RULE = re.compile(r"([A-Za-z_*][\w*-]*)(?:\((.*)\))?", re.DOTALL)
_STRICT = ("forbidden", "prompt")


class UnreadRulesError(Exception):
    """Something that the client goes by cannot be read or is not understood."""


class RuleFile(Struct, frozen=True, kw_only=True):
    """A place of rules; one that is not there has none."""

    where: Literal["user", "project", "system"]
    """Below the client's directory, below each directory above the work, or absolute."""
    path: str
    """May hold `*`."""
    form: Literal["json", "toml", "prefix_rules", "none"]
    """`none` is a place that is not understood, so that nothing may be there."""
    lists: tuple[str, ...] = ()
    """Keys of lists with rules that refuse or ask, as `TOOL` or `TOOL(PATTERN)`."""
    absent: tuple[str, ...] = ()
    """Keys that may not be there: what they say is not understood."""


class ClientRules(Struct, frozen=True, kw_only=True):
    """Where a client's rules are, and how they are written."""

    files: tuple[RuleFile, ...]
    tool: str = ""
    """The name of the tool of commands in rules."""
    path_tools: tuple[str, ...] = ()
    """Tools whose patterns are of paths, which the client also looks for in commands."""
    words: tuple[str, ...] = ()
    """Options of the client's own command line that change its rules."""
    boxed: tuple[str, ...] = ()
    """Keys that say that the client has a sandbox of its own on."""
    record: str = ""
    """Member of the event with the file that records the session; empty for none."""
    record_type: str = ""
    record_key: str = ""
    """The key, in the last record of that type, that has to have one of `record_values`."""
    record_values: tuple[str, ...] = ()


class RuleException(Struct, frozen=True, kw_only=True):
    """The client's own exception for our runner."""

    kind: Literal["list", "file"]
    """An element of a list of the client's file, or a file of ours beside it."""
    table: str = ""
    name: str = ""
    path: str = ""
    text: str
    """`{line}` are the words of our runner as one line, `{words}` a list of them in JSON."""

    def filled(self, words: Sequence[str]) -> str:
        line = " ".join(words)
        return self.text.replace("{line}", line).replace("{words}", json.dumps(list(words)))


def runner_words(directory: Path) -> tuple[str, ...]:
    """Return what is before the ticket in a line of our runner, as clients have it in their
    exceptions; `directory` is that of the judge."""
    return (sys.executable, "-I", "-S", str(RUNNER), str(directory))


class OwnRules:
    """The rules of one client, as they are at one moment."""

    def __init__(self, rules: ClientRules, base: Path, directory: str) -> None:
        """`base` is the client's own directory, `directory` where it works."""
        self._rules = rules
        self._base = base
        self._above = (Path(directory), *Path(directory).parents)

    def reason(self, command: str, words: Sequence[str], record: object) -> str:
        """Return why a command is left to the client, or nothing; `words` started the client.

        Raises:
            UnreadRulesError: something cannot be read.
        """
        rules = self._rules
        for word in words:
            if word.partition("=")[0] in rules.words:
                return f"the client was started with `{word.partition('=')[0]}`"
        if rules.record and (found := self._recorded(record)) not in rules.record_values:
            return f"the client runs commands as `{found}`"
        for file, path in self._files():
            if file.form == "none":
                raise UnreadRulesError(f"`{path}` is not understood")
            if file.form == "prefix_rules":
                said = next(_prefix_rules(path, command), "")
            else:
                said = self._said(file, path, command)
            if said:
                return f"the client's own rule `{said[:80]}` may be about it"
        return ""

    def is_boxed(self) -> bool:
        """Whether the client's own sandbox is on."""
        return any(
            _at(_parsed(file, path), key) is True
            for file, path in self._files()
            if file.form in ("json", "toml")
            for key in self._rules.boxed
        )

    def has(self, exception: RuleException, words: Sequence[str]) -> bool:
        """Whether the client has its exception for our runner."""
        text = exception.filled(words)
        if exception.kind == "file":
            path = self._base / exception.path
            return path.exists() and _text(path) == text
        key = f"{exception.table}.{exception.name}"
        return any(
            text in (_at(_parsed(file, path), key) or ())
            for file, path in self._files()
            if file.form == "json"
        )

    def _files(self) -> Iterator[tuple[RuleFile, Path]]:
        for file in self._rules.files:
            places = {"user": (self._base,), "system": (Path("/"),)}.get(file.where, self._above)
            for place in places:
                name = file.path.lstrip("/")
                yield from ((file, one) for one in sorted(_found(place, name)))

    def _said(self, file: RuleFile, path: Path, command: str) -> str:
        found = _parsed(file, path)
        for key in file.absent:
            if _at(found, key) not in (None, [], {}):
                raise UnreadRulesError(f"`{key}` of `{path}` is not understood")
        for key in file.lists:
            rules = _at(found, key)
            if rules is None:
                continue
            if not isinstance(rules, list) or not all(isinstance(one, str) for one in rules):
                raise UnreadRulesError(f"expected texts in `{key}` of `{path}`")
            for rule in rules:
                if self._matches(rule, command):
                    return str(rule)
        return ""

    def _matches(self, rule: str, command: str) -> bool:
        parts = _RULE.fullmatch(rule.strip())
        if parts is None:
            raise UnreadRulesError(f"the rule `{rule[:80]}` is not understood")
        tool, pattern = parts[1], parts[2]
        if fnmatchcase(self._rules.tool, tool):
            return pattern is None or _may_match(pattern, command)
        if any(fnmatchcase(one, tool) for one in self._rules.path_tools):
            return pattern is None or _may_name(pattern, command)
        return False

    def _recorded(self, record: object) -> str:
        if not isinstance(record, str) or not record.startswith("/"):
            raise UnreadRulesError("the record of the session is not named")
        try:
            with open(record, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - TAIL_BYTES))
                lines = file.read(TAIL_BYTES).splitlines()
        except OSError as error:
            raise UnreadRulesError(f"`{record}`: {error.strerror}") from error
        mark = f'"{self._rules.record_type}"'.encode()
        for line in reversed(lines):
            if mark not in line:
                continue
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and found.get("type") == self._rules.record_type:
                value = _at(found, self._rules.record_key)
                return value if isinstance(value, str) else ""
        raise UnreadRulesError("the record of the session does not say how commands run")


def _found(place: Path, name: str) -> list[Path]:
    try:
        return list(place.glob(name)) if "*" in name else [p for p in [place / name] if p.exists()]
    except OSError as error:
        raise UnreadRulesError(f"`{place}`: {error.strerror}") from error


def _text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise UnreadRulesError(f"`{path}` is too large")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadRulesError(f"`{path}` cannot be read") from error


def _parsed(file: RuleFile, path: Path) -> Mapping[str, Any]:
    text = _text(path)
    try:
        if file.form == "toml":
            return toml_table(text.encode())
        return jsonc.parse(text).value if text.strip() else {}
    except (NotEditableError, DocumentError) as error:
        raise UnreadRulesError(f"`{path}` cannot be read: {error}") from error


def _at(found: Any, key: str) -> Any:
    """Return the value of a key with dots, None where it is not there."""
    for part in key.split("."):
        if found is None:
            break
        if not isinstance(found, dict):
            raise UnreadRulesError(f"expected an object above `{key}`")
        found = found.get(part)
    return found


def spellings(command: str) -> tuple[str, ...]:
    """Return a command as it is, and as its words are without quotes and in one line."""
    plain = re.sub(r"\s+", " ", re.sub(r"['\"\\]", "", command.replace("\\\n", "")))
    return command, plain


def _may_match(pattern: str, command: str) -> bool:
    """Return whether a pattern of commands may match some command of a line; rather yes.

    >>> _may_match("git push:*", "cd a && git  'push' -f"), _may_match("rm *", "charm x")
    (True, False)
    """
    text = pattern.strip().removesuffix(":*").strip()
    if not text.strip("* "):
        return True
    words = r"\s+".join(
        ".*".join(re.escape(part) for part in word.split("*")) for word in text.split()
    )
    begin = "" if text.startswith("*") else r"(?:^|[^\w.-])"
    sought = re.compile(begin + words, re.DOTALL)
    return any(sought.search(one) for one in spellings(command))


def _may_name(pattern: str, command: str) -> bool:
    """Return whether a command may name a path of a pattern; rather yes.

    >>> _may_name("./.env*", "cat .env.local"), _may_name("~/.ssh/**", "ls src")
    (True, False)
    """
    parts = [part for part in re.split(r"[/*?\[\]{},]", pattern) if part.strip(".~ ")]
    if not parts:
        return True
    # The last part that is a text: what is above may be where the command runs already.
    return any(parts[-1] in one for one in spellings(command))


def _prefix_rules(path: Path, command: str) -> Iterator[str]:
    """Yield the strict rules of a file that may be about a command: calls of `prefix_rule`."""
    text = _text(path)
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadRulesError(f"`{path}` is not understood") from error
    for one in body:
        call = one.value if isinstance(one, ast.Expr) else None
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise UnreadRulesError(f"`{path}` is not understood in line {one.lineno}")
        try:
            given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        except (ValueError, TypeError) as error:
            raise UnreadRulesError(f"`{path}` is not understood in line {one.lineno}") from error
        pattern = given.get("pattern")
        if call.func.id != "prefix_rule" or not isinstance(pattern, list) or not pattern:
            raise UnreadRulesError(f"`{path}` is not understood in line {one.lineno}")
        decision = given.get("decision", "allow")
        if decision in _STRICT:
            if _may_be_prefix(pattern, command):
                yield str(pattern)
        elif decision != "allow":
            raise UnreadRulesError(f"`{path}` is not understood in line {one.lineno}")


def _may_be_prefix(pattern: Sequence[Any], command: str) -> bool:
    """Return whether words may be the first of a command of a line: all are in it, in order."""
    words = []
    for one in pattern:
        choices = one if isinstance(one, list) else [one]
        if not choices or not all(isinstance(word, str) for word in choices):
            raise UnreadRulesError("a rule's pattern is not understood")
        words.append("(?:" + "|".join(map(re.escape, choices)) + ")")
    sought = re.compile(r"(?:^|[^\w.-])" + r"\s+".join(words) + r"(?:$|[^\w-])")
    return any(sought.search(one) for one in spellings(command))


def variable_of(pid: int, name: str) -> str:
    """Return a variable of a process's environment, empty where it has none."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError as error:
        raise UnreadRulesError("the environment of the client cannot be read") from error
    start = f"{name}=".encode()
    return next(
        (os.fsdecode(one[len(start) :]) for one in data.split(b"\0") if one.startswith(start)), ""
    )


def words_of(pid: int) -> list[str]:
    """Return the words that started a process."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError as error:
        raise UnreadRulesError("the command line of the client cannot be read") from error

"""YAML blocks as the libraries of other clients read them: libyaml's events, without our bounds.

A client's library resolves anchors, passes over tags, and takes a second value of one key for the
first one or for an error. What is kept of the values is text; that a plain scalar is a number or
null for a client is said beside it (`ClientMapping.plain`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import yaml
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # missing in the stubs

from skillhouse.floor.regex import regex
from skillhouse.skill.source import FIRST_LINE, YAML_DEPTH_MAX, FileRefusedError

ALIASED_MAX = 262_144
"""Characters that aliases may add to a block, all together."""
DEEPEST = 4 * YAML_DEPTH_MAX
"""Nested collections of a client's block; its own bound is higher, and no skill comes near."""


class YamlRules(NamedTuple):
    """On which points the libraries differ."""

    tags: Literal["ignore", "refuse"] = "ignore"
    """`!x`; the core schema's own (`!!str`) and `!` alone pass always."""
    duplicates: Literal["last", "refuse", "refuse-read"] = "last"
    """Of two values of one key the last, an error, or an error for fields that the client reads."""
    taken: str = ""
    """What libyaml takes for the end of a line, or refuses, and this library for text: the inside
    of a class of a pattern."""
    tabs: Literal["refuse", "skip", "indent"] = "refuse"
    """Tabs that a line begins with: an error, no indentation with the blanks after them, or two
    blanks each."""
    indents: bool = False
    """Whether further lines of a quoted text have to be indented."""
    commas: bool = False
    """Whether a text may begin with `,`."""
    joined: bool = False
    """Whether a field may follow a list, map or quoted text on its line (js-yaml 3)."""


class ClientMapping(NamedTuple):
    """A block's mapping; every scalar is the text that was written."""

    fields: dict[str, Any]
    plain: frozenset[str]
    """Top-level fields whose value is a scalar without quotes, so that it may be no text."""
    lines: dict[str, int]
    """The line of the file of each top-level field."""
    single: bool = True
    """Whether the block is a mapping at all; if not, `fields` is empty."""


_TAB_FIRST = regex(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ ]*\t[ \t]*[^\s#]")
READ_FIELDS = ("name", "description", "metadata")
"""Fields that a typed reader has a place for."""


def read_as(block: str, rules: YamlRules) -> ClientMapping:
    """Return the mapping that a library with these rules finds, or refuse as `yaml-error`.

    >>> read_as("a: &x one\\nb: *x\\nc: 1", YamlRules()).fields
    {'a': 'one', 'b': 'one', 'c': '1'}
    """
    if rules.tabs == "indent":
        block = re.sub(r"(?m)^\t+", lambda tabs: "  " * len(tabs[0]), block)
    elif rules.tabs == "skip":
        if _TAB_FIRST.match(block):
            # A tab counts as a column for the first field, so the next one ends the mapping.
            raise FileRefusedError("yaml-error", "not YAML: a tab before the first field", 2)
        block = re.sub(r"(?m)^( *)\t[ \t]*", r"\1", block)
    if rules.joined:
        block = "\n".join(_unjoined(block))
    block, kept = _shielded(block, rules.taken) if rules.taken else (block, {})
    if rules.commas and _COMMA not in block:
        block = _LEADING_COMMA.sub(rf"\1{_COMMA}", block)
        kept = {**kept, _COMMA: ","}
    builder = _ClientBuilder(rules, block.split("\n"))
    parser = CParser(block)
    try:
        while parser.check_event():
            builder.take(parser.get_event())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", "unreadable")
        line = FIRST_LINE if mark is None else mark.line + FIRST_LINE
        code = "one-line-block" if "comment or line break" in str(problem) else "yaml-error"
        raise FileRefusedError(code, f"not YAML: {problem}", line) from None
    finally:
        parser.dispose()
    root = builder.root
    if not isinstance(root, dict):
        return ClientMapping({}, frozenset(), {}, single=False)
    fields = _unshielded(root, kept) if kept else root
    return ClientMapping(fields, frozenset(builder.plain), builder.lines)


class _ClientBuilder:
    """Builds values from PyYAML's events without recursion."""

    def __init__(self, rules: YamlRules, lines: list[str]) -> None:
        self.root: Any = None
        self.plain: set[str] = set()
        self.lines: dict[str, int] = {}
        self._rules = rules
        self._lines = lines
        self._stack: list[tuple[Any, list[str]]] = []
        """Open collections, each with the key that waits for its value."""
        self._anchors: dict[str, Any] = {}
        self._aliased = 0
        self._documents = 0
        self._skipped = 0
        """Depth within a collection that is a key: no field that anyone reads."""

    def take(self, event: Any) -> None:
        line = event.start_mark.line + FIRST_LINE
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise FileRefusedError("yaml-error", "a second document", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            if self._skipped:
                self._skipped -= 1
                if not self._skipped:
                    self._put("?", line)
            else:
                self._stack.pop()
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event, line)
        elif self._skipped:
            return
        elif isinstance(event, yaml.AliasEvent):
            self._put(self._resolved(str(event.anchor), line), line)
        elif isinstance(event, yaml.ScalarEvent):
            self._check_tag(event, line)
            if self._rules.indents and event.style in ("'", '"'):
                self._check_indent(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = event.value
            is_plain = not event.style and event.tag in (None, "")
            self._put(event.value, line, is_plain=is_plain)

    def _open(self, event: Any, line: int) -> None:
        self._check_tag(event, line)
        is_key = not self._skipped and self._wants_key()
        if is_key and len(self._stack) == 1 and self._rules.duplicates == "refuse-read":
            # What reads into typed fields takes only text for the name of one.
            raise FileRefusedError("yaml-error", "not YAML: a collection as a key", line)
        if self._skipped or is_key:
            self._skipped += 1
            return
        if len(self._stack) >= DEEPEST:
            raise FileRefusedError("yaml-depth", f"nested deeper than {DEEPEST}", line)
        value: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        if event.anchor is not None:
            # A collection is not repeated: nothing that a client shows is one.
            self._anchors[event.anchor] = {}
        self._put(value, line)
        self._stack.append((value, []))

    def _check_tag(self, event: Any, line: int) -> None:
        tag = event.tag
        own = tag is None or tag in ("", "!") or tag.startswith("tag:yaml.org,2002:")
        if self._rules.tags == "refuse" and not own:
            raise FileRefusedError("yaml-tag", f"unknown tag `{tag}`", line)

    def _check_indent(self, event: Any) -> None:
        first, last = event.start_mark.line + 1, event.end_mark.line + 1
        for at in range(first, min(last, len(self._lines))):
            if self._lines[at][:1] not in ("", " ", "\t", "\r"):
                raise FileRefusedError(
                    "yaml-error", "not YAML: a quoted text is not indented", at + FIRST_LINE
                )

    def _resolved(self, anchor: str, line: int) -> Any:
        if anchor not in self._anchors:
            raise FileRefusedError("yaml-error", f"unknown anchor `{anchor}`", line)
        value = self._anchors[anchor]
        self._aliased += len(value)
        if self._aliased > ALIASED_MAX:
            raise FileRefusedError("yaml-alias", "aliases that repeat too much", line)
        return dict(value) if isinstance(value, dict) else value

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1][0], dict) and not self._stack[-1][1]

    def _put(self, value: Any, line: int, *, is_plain: bool = False) -> None:
        if not self._stack:
            self.root = value
            return
        parent, waiting = self._stack[-1]
        if isinstance(parent, list):
            parent.append(value)
        elif waiting:
            key = waiting.pop()
            parent[key] = value
            if len(self._stack) == 1:
                (self.plain.add if is_plain else self.plain.discard)(key)
        else:
            key = value if isinstance(value, str) else "?"
            if key in parent and self._refuses(key):
                raise FileRefusedError("yaml-duplicate-key", f"key {key!r} twice", line)
            if len(self._stack) == 1:
                self.lines[key] = line
            waiting.append(key)

    def _refuses(self, key: str) -> bool:
        if self._rules.duplicates == "refuse-read":
            return len(self._stack) == 1 and key in READ_FIELDS
        return self._rules.duplicates == "refuse"


LINE_ENDS = "\x85\u2028\u2029"
CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff"
_COMMA = chr(0xF0FFF)
_LEADING_COMMA = regex(r"(?m)^([ \t]*[\w-]+:[ \t]+),")
_SHIELDS = range(0xF0000, 0xF0000 + 2_000)


def _shielded(block: str, taken: str) -> tuple[str, dict[str, str]]:
    """Return a block in which the characters `taken` are private ones, and which."""
    found = sorted(set(re.findall(f"[{taken}]", block)))
    free = (chr(code) for code in _SHIELDS if chr(code) not in block)
    shields = dict(zip(found, free, strict=False))
    return block.translate({ord(old): new for old, new in shields.items()}), {
        new: old for old, new in shields.items()
    }


def _unshielded(value: Any, kept: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.translate({ord(new): old for new, old in kept.items()})
    if isinstance(value, list):
        return [_unshielded(item, kept) for item in value]
    return {_unshielded(key, kept): _unshielded(item, kept) for key, item in value.items()}


_FIELD = regex(r"(?P<head>[A-Za-z_][\w-]*[ \t]*:[ \t]+)(?P<value>\S.*)")
_OPENERS = {"[": "]", "{": "}"}


def _unjoined(block: str) -> Iterator[str]:
    """Yield the lines, with a field that follows a closed value on a line of its own.

    js-yaml 3 reads `a: [x] b: c` as two fields, and `a: ? b` as an empty one and a key.
    """
    for line in block.split("\n"):
        found = _FIELD.fullmatch(line)
        end = _closed_at(found["value"]) if found else 0
        rest = found["value"][end:] if found else ""
        if found and end and rest.strip() and not rest.lstrip().startswith("#"):
            yield found["head"] + found["value"][:end]
            yield rest.lstrip()
        elif found and found["value"].startswith("? "):
            yield found["head"]
            yield found["value"]
        else:
            yield line


def _closed_at(value: str) -> int:
    """Return where a list, map or quoted text that begins a value ends, or 0 if none does."""
    open_ones: list[str] = []
    quote = ""
    at = 0
    while at < len(value):
        sign = value[at]
        if quote:
            is_escape = sign == "\\" if quote == '"' else value.startswith("''", at)
            if is_escape:
                at += 1
            elif sign == quote:
                quote = ""
        elif sign in "\"'" and (open_ones or at == 0):
            quote = sign
        elif sign in _OPENERS:
            open_ones.append(_OPENERS[sign])
        elif open_ones and sign == open_ones[-1]:
            open_ones.pop()
        at += 1
        if not quote and not open_ones:
            return at if value[0] in "[{\"'" else 0
    return 0

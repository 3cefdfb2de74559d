"""The truth about a YAML block: PyYAML's events, stopped at the first thing that is not allowed.

In skillhouse every scalar is the text that was written (decision 13). Peers read the file with
a YAML library of their own and compare field by field, so for them a plain `1.0` is the number
that YAML 1.2's core schema makes of it; what is in quotes stays text.

What the parser reports is said in the words of an author: what was seen, and what to write.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import yaml
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # missing in the stubs
from yaml.reader import ReaderError

from skillhouse.floor.regex import regex
from skillhouse.skill.source import FIRST_LINE, YAML_DEPTH_MAX, FileRefusedError

LINE_SHOWN_MAX = 60
"""Characters of the line that are shown."""


class YamlFault(NamedTuple):
    seen: str
    hint: str


_QUOTES = "put the value in quotes"
_OPEN_QUOTE = YamlFault("a quote that is not closed", "close the quote")
_OPEN_BRACKET = YamlFault("a bracket that is not closed", "close the bracket")
_FAULTS: tuple[tuple[str, YamlFault], ...] = (
    (
        "mapping values are not allowed",
        YamlFault("a colon with a space inside a value without quotes", _QUOTES),
    ),
    (
        "cannot start any token",
        YamlFault("a value that begins with a sign which YAML reserves", _QUOTES),
    ),
    (
        "found a tab character",
        YamlFault("a tab where spaces are expected", "write spaces"),
    ),
    (
        "could not find expected ':'",
        YamlFault(
            "a line that is no `key: value`",
            "write it as `key: value`, or indent it below the value that it continues",
        ),
    ),
    (
        "did not find expected ',' or",
        YamlFault("text after a list or map in brackets", "put the whole value in quotes"),
    ),
    (
        "did not find expected node content",
        YamlFault("a bracket without a value", "put the whole value in quotes"),
    ),
    (
        "did not find expected key",
        YamlFault(
            "a line that is indented in another way than the fields, or text after a quoted value",
            "begin each field at the start of its line, and put the whole value in quotes",
        ),
    ),
    (
        "did not find expected '-' indicator",
        YamlFault("a line in a list that is no item", "begin each item with `- `"),
    ),
    (
        "block sequence entries are not allowed",
        YamlFault(
            "`- ` on the line of a field", "put the value in quotes, or the list on the next lines"
        ),
    ),
    ("found unexpected end of stream", _OPEN_QUOTE),
    ("found unexpected document indicator", _OPEN_QUOTE),
    (
        "found unknown escape character",
        YamlFault(
            "a backslash in double quotes that is no escape", "use single quotes, or double it"
        ),
    ),
    (
        "did not find expected alphabetic or numeric character",
        YamlFault("a value that begins with `*` or `&`", _QUOTES),
    ),
    (
        "did not find expected comment or line break",
        YamlFault(
            "text on the line of `>` or `|`",
            "put the value in quotes, without the mark, or write the text on the next lines",
        ),
    ),
    (
        "did not find expected tag URI",
        YamlFault("a value that begins with `!`", _QUOTES),
    ),
    ("tag", YamlFault("a value that begins with `!`", _QUOTES)),
    ("directive", YamlFault("a line that begins with `%`", _QUOTES)),
    (
        "control characters are not allowed",
        YamlFault("a control character", "delete it"),
    ),
    (
        "<document start>",
        YamlFault(
            "text that is no `key: value`", "write only `key: value` lines between the `---` lines"
        ),
    ),
    ("simple key", YamlFault("a key that is too long or on two lines", "shorten the key")),
)
OTHER = YamlFault("text that YAML cannot read", "put the value on the line in quotes")


TAB = YamlFault("a tab where spaces are expected", "write spaces")


def fault_of(problem: str, line: str = "") -> YamlFault:
    """Return what an author should know of a parser's message about a line.

    >>> fault_of("mapping values are not allowed in this context").hint
    'put the value in quotes'
    >>> fault_of("found character that cannot start any token", "\\ta: b").hint
    'write spaces'
    """
    if "cannot start any token" in problem and line.lstrip(" ").startswith("\t"):
        # The parser in C does not say which character it is.
        return TAB
    return next((fault for known, fault in _FAULTS if known in problem), OTHER)


def line_shown(block: str, index: int) -> str:
    """Return the beginning of a line of a block, counted from 0, in backticks; or nothing."""
    lines = block.split("\n")
    text = lines[index].strip() if 0 <= index < len(lines) else ""
    if not text:
        return ""
    cut = text if len(text) <= LINE_SHOWN_MAX else f"{text[:LINE_SHOWN_MAX]}…"
    return f": `{cut}`"


class _ValueBuilder:
    """Builds values from PyYAML's events; iterative, so that nesting cannot exhaust the stack."""

    def __init__(self) -> None:
        self.root: Any = None
        self.stack: list[tuple[Any, list[str]]] = []
        """Open collections, each with the key that waits for its value (empty: none)."""

    def wants_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1][0], dict) and not self.stack[-1][1]

    def put(self, value: Any, line: int, *, opens: bool) -> None:
        if not self.stack:
            self.root = value
        else:
            parent, waiting = self.stack[-1]
            if isinstance(parent, list):
                parent.append(value)
            elif waiting:
                parent[waiting.pop()] = value
            elif opens:
                raise FileRefusedError("yaml-error", "a collection as a key", line)
            elif value in parent:
                raise FileRefusedError(
                    "yaml-duplicate-key",
                    f"key {value!r} twice in one mapping",
                    line,
                    field=value if isinstance(value, str) else "",
                )
            else:
                waiting.append(value)
        if opens:
            if len(self.stack) >= YAML_DEPTH_MAX:
                raise FileRefusedError("yaml-depth", f"nested deeper than {YAML_DEPTH_MAX}", line)
            self.stack.append((value, []))


def _as_written(event: Any) -> Any:
    return event.value


def mapping_of(block: str, scalar: Callable[[Any], Any] = _as_written) -> dict[str, Any]:
    """Return the mapping by PyYAML's events, stopped at the first thing that is not allowed.

    `scalar` gives the value of a scalar's event; keys are always the text.
    """
    builder = _ValueBuilder()
    documents = 0
    indirect: FileRefusedError | None = None
    parser = CParser(block)
    try:
        while parser.check_event():
            event: Any = parser.get_event()
            line = event.start_mark.line + FIRST_LINE
            if isinstance(event, yaml.NodeEvent):
                indirect = indirect or _indirect(event, line)
            if isinstance(event, yaml.AliasEvent):
                builder.put(f"*{event.anchor}", line, opens=False)
            elif isinstance(event, yaml.ScalarEvent):
                builder.put(
                    event.value if builder.wants_key() else scalar(event), line, opens=False
                )
            elif isinstance(event, yaml.CollectionStartEvent):
                builder.put(
                    [] if isinstance(event, yaml.SequenceStartEvent) else {}, line, opens=True
                )
            elif isinstance(event, yaml.CollectionEndEvent):
                builder.stack.pop()
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise FileRefusedError(
                        "yaml-error", "a second document in the frontmatter", line
                    )
    except yaml.YAMLError as error:
        raise _yaml_error(error, block) from None
    except FileRefusedError as refusal:
        # Text that does not parse may be repaired, so that comes before what it may not hold.
        raise (indirect if indirect and refusal.finding.code != "yaml-error" else refusal) from None
    finally:
        parser.dispose()
    if indirect:
        raise indirect
    if not isinstance(builder.root, dict):
        raise FileRefusedError("frontmatter-not-mapping", "expected `key: value` lines", FIRST_LINE)
    return builder.root


def _indirect(event: Any, line: int) -> FileRefusedError | None:
    if event.anchor is not None:
        kind = "alias" if isinstance(event, yaml.AliasEvent) else "anchor"
        return FileRefusedError("yaml-alias", f"{kind} `{event.anchor}`", line)
    tag = getattr(event, "tag", None)
    if tag is not None:
        return FileRefusedError(
            "yaml-tag", f"tag `{tag}`; values are plain text, lists and maps", line
        )
    return None


def _yaml_error(error: yaml.YAMLError, block: str) -> FileRefusedError:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, ReaderError):
        # It has no mark, only an offset in bytes.
        problem = error.reason
        line = block.encode()[: error.position].count(b"\n") + FIRST_LINE
    else:
        problem = getattr(error, "problem", None) or "unreadable"
        line = FIRST_LINE if mark is None else mark.line + FIRST_LINE
    problem = " ".join(str(problem).split())
    begun = getattr(error, "context_mark", None)
    if begun is not None and ("expected ':'" in problem or fault_of(problem) is _OPEN_QUOTE):
        # The parser notices it only where the next field or the end follows.
        line = begun.line + FIRST_LINE
    lines = block.split("\n")
    opened = unclosed(lines[: line - FIRST_LINE + 1])
    if opened is None:
        at = line - FIRST_LINE
        fault = fault_of(problem, lines[at] if 0 <= at < len(lines) else "")
    else:
        line = opened.at + FIRST_LINE
        fault = _OPEN_QUOTE if opened.sign in "\"'" else _OPEN_BRACKET
    message = f"{fault.seen}{line_shown(block, line - FIRST_LINE)}"
    return FileRefusedError("yaml-error", message, line, hint=fault.hint, detail=problem)


def lines_of(block: str) -> dict[str, int]:
    """Return the line of the file for each top-level key of a block that `mapping_of` takes."""
    lines: dict[str, int] = {}
    depth, at_key = 0, True
    parser = CParser(block)
    while parser.check_event():
        event: Any = parser.get_event()
        line = event.start_mark.line + FIRST_LINE
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth == 1:
            if at_key and isinstance(event, yaml.ScalarEvent):
                lines[event.value] = line
            at_key ^= not isinstance(event, yaml.CollectionStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
    parser.dispose()
    return lines


_SIGNED = regex(r"(?P<indent> *)(?:- +)*(?:[^\s#'\"\[\]{}][^#'\"\[\]{}]*?:[ \t]+)?(?P<value>\S.*)")
"""A field or an item with what it holds."""
_NEXT_KEY = regex(r"(?P<indent> *)(?:- |-$|[A-Za-z_][\w .-]{0,63}:(?:[ \t]|$)|---|\.\.\.)")
_BLOCK = regex(r"[|>][-+0-9]*[ \t]*(?:#.*)?")
_PAIRS = {"[": "]", "{": "}"}
_LINES_MAX = 2_000
"""Lines of one block that are looked at."""


class Opening(NamedTuple):
    at: int
    """Index of the line."""
    sign: str


def unclosed(lines: Sequence[str]) -> Opening | None:
    """Return the first sign that opens a value and is not closed before the next field or item.

    YAML goes on to the next quote or to the end, and then complains about what follows.

    >>> unclosed(["name: a", 'description: "Folds text', 'license: "MIT"'])
    Opening(at=1, sign='"')
    >>> unclosed(["description: 'Folds", "  text'", "tags: [a,", "  b]"])
    """
    block_indent: int | None = None
    skipped = -1
    for at, line in enumerate(lines[:_LINES_MAX]):
        indent = len(line) - len(line.lstrip(" "))
        if block_indent is not None and (not line.strip() or indent > block_indent):
            continue
        block_indent = None
        found = _SIGNED.fullmatch(line)
        if at <= skipped or found is None:
            continue
        value = found["value"]
        if _BLOCK.fullmatch(value):
            block_indent = indent
        elif value[0] in "\"'[{":
            end = _field_end(lines, at, indent)
            text = "\n".join((value, *lines[at + 1 : end]))
            if not _is_closed(text):
                return Opening(at, value[0])
            skipped = end - 1
    return None


def _field_end(lines: Sequence[str], at: int, indent: int) -> int:
    """Return the index of the next line that begins a field or an item, at most as indented."""
    for place in range(at + 1, len(lines)):
        following = _NEXT_KEY.match(lines[place])
        if following is not None and len(following["indent"]) <= indent:
            return place
    return len(lines)


def _is_closed(text: str) -> bool:
    """Whether a text that begins with a quote or a bracket closes it."""
    waiting: list[str] = []
    quote, place = "", 0
    while place < len(text):
        sign = text[place]
        if quote:
            is_doubled = sign == quote == "'" and text[place + 1 : place + 2] == "'"
            if is_doubled or (sign == "\\" and quote == '"'):
                place += 1
            elif sign == quote:
                quote = ""
                if not waiting:
                    return True
        elif sign in _PAIRS:
            waiting.append(_PAIRS[sign])
        elif waiting and sign == waiting[-1]:
            waiting.pop()
            if not waiting:
                return True
        elif sign in "\"'" and (not waiting or text[place - 1] in "[{,: \n"):
            quote = sign
        place += 1
    return False


_CORE: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), float),
)
"""What a plain scalar means (YAML 1.2.2, 10.3.2); `.inf` and `.nan` are no JSON and stay text."""
DIGITS_MAX = 300
"""Characters up to which a scalar is taken for a number."""


def typed_mapping(block: str) -> dict[str, Any]:
    """Return the mapping with each plain scalar as YAML's core schema has it."""
    return mapping_of(block, lambda event: event.value if event.style else core_value(event.value))


def core_value(text: str) -> Any:
    """Return what a plain scalar means.

    >>> [core_value(text) for text in ("1.0", "true", "yes", "", "2026-01-01", "0o17")]
    [1.0, True, 'yes', None, '2026-01-01', 15]
    """
    if len(text) > DIGITS_MAX:
        return text
    for pattern, meaning in _CORE:
        if pattern.fullmatch(text):
            value = meaning(text)
            return text if isinstance(value, float) and not math.isfinite(value) else value
    return text

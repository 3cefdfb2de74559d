"""Stage 3: a YAML block to a mapping in which every scalar is the text that was written.

PyYAML's events are the truth; blocks whose lines are plain are read without them. A plain line is
`key: text`, or `key:` before items `- text` or further such lines, once; PyYAML's events read such
a block to the same mapping (docs/decisions/0265; tests/skill/test_yaml_lines.py compares both).

Top-level values that are not YAML by themselves are repaired: each is read as the text that it is.
Of 13,924 unreadable files of one public collection 4,905 have an unquoted colon and 9,018 text
after `>` (reference/standard.md section 7.3); of 75,745 others 335 begin a value with `[Beta]`,
`{{name}}`, `**`, `@`, a backtick or `- `. Only text that does not parse is touched, and the file on
disk is not (vectors/README.md, "3. YAML"; S001-25, S001-27).
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.skill.source import FIRST_LINE, FileRefusedError, Finding

_ASCII_SEEN = bytes([10, *range(32, 127)])
"""ASCII that a plain block may hold; of other characters it may hold those that are printable."""
_USUAL_KEYS = frozenset(
    "name description license compatibility metadata allowed-tools version author".split()
)
"""Keys whose characters need not be checked."""
_KEY = regex(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789(/.$_^+=~;<")
"""ASCII with which a text without quotes may begin; so may any letter."""
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_FLOW_LIST = regex(rf"\[{_WORD}(?: {_WORD})*(?:, {_WORD}(?: {_WORD})*)*\]")


def plain_mapping(block: str) -> dict[str, Any] | None:
    """Return the mapping of a block that is plain line by line; None for every other block.

    >>> plain_mapping("name: pdf\\nmetadata:\\n  version: '1.0'\\ntags: [a, b]\\n")
    {'name': 'pdf', 'metadata': {'version': '1.0'}, 'tags': ['a', 'b']}
    >>> plain_mapping("name: pdf\\ndescription: >\\n  Reads.\\n")
    """
    if block[-1:] != "\n" or not _is_printable(block):
        return None
    fields: dict[str, Any] = {}
    opened = below = ""
    lines = block.split("\n")
    del lines[-1]
    for line in lines:
        key, colon, text = line.partition(": ")
        into = fields
        if line[:1] in (" ", "-"):
            if line[:2] != "  " or line[2:4] == "- ":
                below = _add_item(fields, opened, below, line)
                if not below:
                    return None
                continue
            if not opened or below not in ("", "  "):
                return None
            if not below:
                below, fields[opened] = "  ", {}
            key, into = key[2:], fields[opened]
        elif not colon and line[-1:] == ":":
            opened, below = line[:-1], ""
            if opened in fields or not _KEY.fullmatch(opened):
                return None
            fields[opened] = ""
            continue
        else:
            opened = ""
        if not colon or key in into or (key not in _USUAL_KEYS and not _KEY.fullmatch(key)):
            return None
        value = into[key] = _plain_value(text)
        if value is None:
            return None
    return fields


def _is_printable(block: str) -> bool:
    others = block.encode().translate(None, _ASCII_SEEN)
    return not others or others.decode().isprintable()


def _add_item(fields: dict[str, Any], opened: str, below: str, line: str) -> str:
    """Add an item below the key that was opened; return how it begins, or nothing if not plain."""
    begins = "- " if line[:2] == "- " else line[:4]
    if not opened or begins not in ("- ", "  - ") or (below and begins != below):
        return ""
    value = _plain_value(line[len(begins) :])
    if value is None:
        return ""
    if not below:
        fields[opened] = []
    fields[opened].append(value)
    return begins


def _plain_value(text: str) -> Any:
    """Return what a plain value says; None for every other one."""
    first = text[:1]
    if first in _FIRST or (first > "\x7f" and first.isalpha()):
        return None if text[-1] in " :" or ": " in text or " #" in text else text
    if first in ('"', "'"):
        is_plain = len(text) > 1 and text[-1] == first and text.count(first) == 2
        return text[1:-1] if is_plain and (first == "'" or "\\" not in text) else None
    if first == "[" and _FLOW_LIST.fullmatch(text):
        return text[1:-1].split(", ")
    return None


def read_mapping(block: str, *, fast: bool = True) -> dict[str, Any]:
    """Return the mapping that `block` holds: text to text, list or mapping.

    What does not parse is refused as `yaml-error`, the rest by the code of what is not allowed.
    """
    plain = plain_mapping(block) if fast else None
    if plain is not None:
        return plain
    mapping: dict[str, Any] = _events().mapping_of(block)
    return mapping


def read_typed_mapping(block: str) -> dict[str, Any]:
    """Return the mapping of a block with plain scalars as YAML's core schema has them."""
    mapping: dict[str, Any] = _events().typed_mapping(block)
    return mapping


def key_line(block: str, key: str) -> int | None:
    """Return the line of the file that has the top-level `key`; None when none has.

    The text is searched first, and the events are asked only when it does not say.
    """
    places = list(re.finditer(rf"""(?m)^[{{ ]*["']?{re.escape(key)}["']?[ ]*:""", block))
    if len(places) == 1:
        return block.count("\n", 0, places[0].start()) + FIRST_LINE
    return key_lines(block).get(key)


def key_lines(block: str) -> dict[str, int]:
    """Return the line of the file for each top-level key of a block that `read_mapping` takes."""
    lines: dict[str, int] = _events().lines_of(block)
    return lines


def _events() -> ModuleType:
    """Return the slow reader, loaded when the first block needs it.

    PyYAML takes a quarter of the start-up time, and most blocks never need it.
    """
    from skillhouse.skill import yaml_events  # noqa: PLC0415 - see above.

    return yaml_events


VALUES_JUDGED_MAX = 500
"""Values of one block that are parsed by themselves; a block with more is not repaired."""

_QUOTED_KEY = regex(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?=:)""")
_SEPARATOR = regex(r":(?=[ \t]|$)")
_NO_KEY_START = frozenset(" \t#'\"[]{}&*!|>%@`,")
_BLOCK_MARK = regex(r"[>|][-+0-9]*[ \t]+(?P<text>[^#\s].*)", re.DOTALL)
_NOT_IN_SINGLE_QUOTES = regex(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What libyaml refuses, or reads as a line break, outside of an escape."""


class RepairedField(NamedTuple):
    """A top-level field whose value was taken as text, with its line in the file."""

    name: str
    line: int
    by_tab: bool = False
    """Whether it is a tab in the indentation that was taken for spaces."""


class Repair(NamedTuple):
    """A block whose faulty values are quoted; it has the same lines."""

    block: str
    fields: tuple[RepairedField, ...]


class _Entry(NamedTuple):
    """A top-level field: the index of its line, and where its value begins there."""

    at: int
    key: str
    value_at: int


def repaired(block: str, *, tabs: bool = False) -> Repair | None:
    """Return `block` with the faulty top-level values quoted, or None when there is none.

    A value that begins with a quote is quoted as a whole where text follows the closing one. A
    value whose further lines are indented is taken with them. With `tabs`, those of an indentation
    are taken for two spaces each.

    >>> repaired("description: Use when: asked").block
    "description: 'Use when: asked'"
    >>> repaired("description: [Beta] Folds text").fields[0].name
    'description'
    """
    lines = block.split("\n")
    tabbed = [at for at, line in enumerate(lines) if tabs and _TAB_INDENT.match(line)]
    for at in tabbed:
        lines[at] = _TAB_INDENT.sub(lambda found: found[0].replace("\t", "  "), lines[at])
    entries = [entry for at, line in enumerate(lines) if (entry := _entry(line, at))]
    ends = [*(entry.at for entry in entries[1:]), len(lines)] if entries else []
    fields = [
        RepairedField(_name_at(entries, at), at + FIRST_LINE, by_tab=True) for at in tabbed[:1]
    ]
    judged = 0
    for entry, end in zip(entries, ends, strict=True):
        value = _value(lines, entry, end)
        if _is_surely_yaml(value):
            continue
        judged += 1
        if judged > VALUES_JUDGED_MAX:
            return None
        text = _text_of(value, entry.key)
        if text is None:
            continue
        head = lines[entry.at][: entry.value_at].rstrip(" \t")
        # Of a value that begins on the next line, the quote begins there too.
        below = len(text) - len(text.lstrip("\n"))
        repaired = _quoted(text.lstrip(" \t\n") if below else text).split("\n")
        repaired[0] = f"{'' if below else head} {repaired[0]}"
        first = entry.at + below
        lines[first : first + len(repaired)] = repaired
        fields.append(RepairedField(entry.key, entry.at + FIRST_LINE))
    return Repair("\n".join(lines), tuple(fields)) if fields else None


_CUT = regex(r"(?m)(?<=[ \t])#(?=[^\s#!])")
_NOT_PLAIN = frozenset("\"'|>[{&*!%@`#")
"""Signs with which a value begins that is no plain text."""
_LOST_MAX = 200
"""Characters of the lost text that a finding has."""
CUT = "comment-cut"


def comment_cut(block: str, fields: dict[str, Any]) -> Finding | None:
    """Return the finding of a description that YAML ends at ` #`, with the text that is lost.

    A blank after the sign makes it a comment that someone meant (vector F072).

    >>> comment_cut("description: Fix issue #12 now\\n", {"description": "Fix issue"}).message
    '`description`: YAML ends it before `#12 now`, which it takes for a comment'
    """
    if not isinstance(fields.get("description"), str):
        return None
    for entry, value in _values(block.split("\n")):
        if entry.key != "description":
            continue
        place = _cut_at(value)
        if place < 0:
            return None
        lost = " ".join(value[place:].split())[:_LOST_MAX]
        line = entry.at + FIRST_LINE + value.count("\n", 0, place)
        message = f"`description`: YAML ends it before `{lost}`, which it takes for a comment"
        return Finding(CUT, message, line, field="description")
    return None


def without_cut(block: str) -> str:
    """Return a block whose description is in quotes as a whole, where YAML cuts it at ` #`."""
    lines = block.split("\n")
    for entry, value in _values(lines):
        if entry.key == "description" and _cut_at(value) >= 0:
            head = lines[entry.at][: entry.value_at].rstrip(" \t")
            text = value.lstrip("\n")
            skipped = len(value) - len(text)
            indent = "" if not skipped else text[: len(text) - len(text.lstrip(" \t"))]
            first = entry.at + skipped
            quoted = _quoted(text[len(indent) :]).split("\n")
            quoted[0] = f"{indent}{quoted[0]}" if skipped else f"{head} {quoted[0]}"
            lines[first : first + len(quoted)] = quoted
    return "\n".join(lines)


def _cut_at(value: str) -> int:
    """Return where a plain value is cut before its end by what looks like no comment; else -1."""
    text = value.lstrip(" \t\n")
    if not text or text[0] in _NOT_PLAIN:
        return -1
    found = _CUT.search(value)
    # A comment that is meant ends the value before.
    earlier = None if found is None else re.search(r"[ \t]#(?=[\s#!]|$)", value[: found.start()])
    return -1 if found is None or earlier else found.start()


def _values(lines: list[str]) -> list[tuple[_Entry, str]]:
    """Return the top-level fields of a block with their values as they are written."""
    entries = [entry for at, line in enumerate(lines) if (entry := _entry(line, at))]
    ends = [*(entry.at for entry in entries[1:]), len(lines)] if entries else []
    found = []
    for entry, end in zip(entries, ends, strict=True):
        # Lines at the margin, such as comments between fields, belong to none.
        last = next(
            (at for at in range(entry.at + 1, end) if lines[at][:1] not in ("", " ", "\t")), end
        )
        found.append((entry, _value(lines, entry, last)))
    return found


def field_at(block: str, line: int) -> str | None:
    """Return the top-level field that a line of the file belongs to, as far as it can be seen."""
    for at, text in reversed(list(enumerate(block.split("\n")[: line - FIRST_LINE + 1]))):
        entry = _entry(text, at)
        if entry:
            return entry.key
    return None


def _entry(line: str, at: int) -> _Entry | None:
    quoted = _QUOTED_KEY.match(line)
    if quoted:
        end = quoted.end()
        if line[end + 1 : end + 2] not in ("", " ", "\t"):
            return None
    else:
        separator = None if line[:1] in _NO_KEY_START else _SEPARATOR.search(line)
        if separator is None:
            return None
        end = separator.start()
        key = line[:end]
        # A list's item, a complex key or nothing is no key, and a comment ends it.
        if not key or key[:2] in ("-", "?", "- ", "? ", "-\t", "?\t") or " #" in key:
            return None
    name = line[:end].strip(" \t")
    if quoted:
        name = name[1:-1]
    value_at = len(line) - len(line[end + 1 :].lstrip(" \t"))
    return _Entry(at, name, value_at)


def _value(lines: list[str], entry: _Entry, end: int) -> str:
    """Return a field's value with its further lines; those after it that say nothing are not."""
    last = end
    while last > entry.at + 1 and not lines[last - 1].strip(" \t"):
        last -= 1
    first = lines[entry.at][entry.value_at :].rstrip(" \t")
    return "\n".join((first, *lines[entry.at + 1 : last]))


_TAB_INDENT = regex(r"[ ]*\t[ \t]*(?=\S)")
_QUOTE_INSIDE = regex(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?P<rest>[^#\s].*)""")
_TEXT_FIELDS = frozenset(
    "name description license compatibility when_to_use when-to-use argument-hint summary".split()
)
"""Fields that hold no list and no map, so that lines below their key are text."""


_INDENTED_KEY = regex(rf"[ \t]+(?P<name>{'|'.join(sorted(_USUAL_KEYS | _TEXT_FIELDS))}):[ \t]")


def indented_field(block: str, field: RepairedField) -> RepairedField | None:
    """Return the usual field that is indented, and thereby part of a text above it."""
    if field.name not in _TEXT_FIELDS:
        return None
    for at, line in enumerate(block.split("\n")[field.line - FIRST_LINE + 1 :], start=1):
        if line[:1] not in ("", " ", "\t"):
            return None
        if found := _INDENTED_KEY.match(line):
            return RepairedField(found["name"], field.line + at)
    return None


def opens_bracket(block: str, field: RepairedField) -> bool:
    """Whether the value of a field begins with a bracket that it does not close."""
    opened = _events().unclosed(block.split("\n"))
    return opened is not None and (opened.at, opened.sign in "[{") == (
        field.line - FIRST_LINE,
        True,
    )


def _name_at(entries: list[_Entry], at: int) -> str:
    """Return the field in which a line is."""
    return next((entry.key for entry in reversed(entries) if entry.at <= at), "frontmatter")


def _is_surely_yaml(value: str) -> bool:
    """Whether a value need not be parsed: it is plain text, a whole in quotes, or is not here."""
    if value[:1] in ('"', "'"):
        return _QUOTE_INSIDE.match(value) is None
    if not value:
        return True
    return (
        value[0].isalnum()
        and ": " not in value
        and ":\t" not in value
        and value[-1] != ":"
        and value.isprintable()
    )


def _text_of(value: str, key: str) -> str | None:
    """Return the text that a value is taken as; None when it is YAML or cannot be taken so."""
    if _is_yaml(value):
        return None
    first, *further = value.split("\n")
    if any(line[:1] not in ("", " ", "\t") for line in further):
        # It belongs to no field.
        return None
    if first[:1] in ('"', "'"):
        return _unquoted(value)
    if not first:
        start = value.lstrip()
        return value if key in _TEXT_FIELDS and start[:1] not in ("-", *_NOT_PLAIN) else None
    is_plain = key in _TEXT_FIELDS and first[0] not in _NOT_PLAIN and first[:2] != "- "
    if further and _is_yaml(first) and not is_plain:
        # What is wrong is below the top level.
        return None
    mark = _BLOCK_MARK.fullmatch(value)
    return mark["text"] if mark else value


def _unquoted(value: str) -> str:
    """Return a value that begins with a quoted part as text.

    An odd number of quotes is a pair around text with an apostrophe.

    >>> _unquoted("'It's here'"), _unquoted("'a' or 'b'")
    ("It's here", "'a' or 'b'")
    """
    sign = value[0]
    is_around = value[-1] == sign and value.count(sign) % 2 == 1
    return value[1:-1] if is_around else value


def _is_yaml(value: str) -> bool:
    """Whether a value parses by itself, also as something that no frontmatter may hold."""
    try:
        read_mapping(f"k: {value}\n", fast=False)
    except FileRefusedError as refusal:
        return refusal.finding.code != "yaml-error"
    return True


def _quoted(text: str) -> str:
    """Return a text in quotes; quotes and backslashes in it stay what they are."""
    if not _NOT_IN_SINGLE_QUOTES.search(text):
        return f"'{text.replace(chr(39), chr(39) * 2)}'"
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    text = _NOT_IN_SINGLE_QUOTES.sub(lambda found: f"\\U{ord(found[0]):08x}", text)
    return f'"{text}"'

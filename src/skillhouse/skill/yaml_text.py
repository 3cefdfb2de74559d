"""Stage 3: a YAML block to a mapping in which every scalar is the text that was written.

PyYAML's events are the truth. The Rust parser is a shortcut for blocks so plain that both agree
(docs/decisions/0013-yaml.md); tests/skill/test_yaml_text.py holds the two against each other.

Top-level values that are not YAML by themselves are repaired: each is read as the text that it is.
Of 13,924 unreadable files of one public collection 4,905 have an unquoted colon and 9,018 text
after `>` (reference/standard.md section 7.3); of 75,745 others 335 begin a value with `[Beta]`,
`{{name}}`, `**`, `@`, a backtick or `- `. Only text that does not parse is touched, and the file on
disk is not (vectors/README.md, "3. YAML"; S001-25, S001-27).
"""

from __future__ import annotations

import importlib
import re
import threading
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from skillhouse.floor.regex import regex
from skillhouse.skill.source import FIRST_LINE, YAML_DEPTH_MAX, FileRefusedError

FAST_BLOCK_MAX = 8_192
"""Bytes up to which the Rust parser is trusted (decision 13)."""
FAST_OPENERS_MAX = 16
"""Openers of collections on one line up to which the Rust parser is trusted (decision 13)."""


def read_mapping(block: str, *, fast: bool = True) -> dict[str, Any]:
    """Return the mapping that `block` holds: text to text, list or mapping.

    What does not parse is refused as `yaml-error`, the rest by the code of what is not allowed.
    """
    if fast and is_plain(block):
        plain = _rust(block)
        if plain is not None:
            return plain
    mapping: dict[str, Any] = _events().mapping_of(block)
    return mapping


def is_plain(block: str) -> bool:
    """Whether the Rust parser reads `block` as PyYAML's events do."""
    if len(block) >= FAST_BLOCK_MAX or block[-1:] != "\n":
        return False
    if "..." in block and (block[:3] == "..." or "\n..." in block):
        return False
    marks = block.encode().translate(None, _HARMLESS)
    if marks and not _is_plain_with_marks(block, marks):
        return False
    # One character is counted much quicker than two, and few blocks have that many.
    return block.count("-") + block.count("?") <= FAST_OPENERS_MAX or all(
        line.count("- ") + line.count("? ") <= FAST_OPENERS_MAX for line in block.split("\n")
    )


_HARMLESS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n.,:;-_/()+=?@#~^$`"
"""Characters that neither open anything nor hide anything: without others a block is plain."""


def _is_plain_with_marks(block: str, marks: bytes) -> bool:
    """Whether a block is plain although it holds `marks`, the characters that are not harmless."""
    if b"&" in marks or b"*" in marks or b"!" in marks:
        return False
    # A directive: Rust passes over those it does not know.
    if "%" in block and (block[0] == "%" or "\n%" in block):
        return False
    # Rust joins two escaped surrogates to one character, and libyaml refuses them.
    if b"\\" in marks and "\\u" in block:
        return False
    # Not printable: tabs, controls, U+0085, U+2028, U+2029, and all hidden characters.
    if not marks.decode().isprintable():
        return False
    if ("[" in block or "{" in block) and (
        block.count("[") + block.count("{") > FAST_OPENERS_MAX or _ODD_FLOW.search(block)
    ):
        return False
    return not ((">" in block or "|" in block) and _ODD_BLOCK_SCALAR.search(block))


_ODD_FLOW = regex(r"""[\[{](?:[^\n]*["'>|?]|(?:[^\n]*[ ,\[{])?:)|[\[{][^\]}\n]*\n""")
"""After an opener: a quote, a block mark, `?`, a text that begins with `:`, or the line's end."""

_ODD_BLOCK_SCALAR = regex(r"(?<![^ \n])[>|][-+0-9]*[ ]*(?:#|\n(?![ ]+[^ \n]))")
"""A block mark before a comment, or before a line that is blank or not indented."""


def _rust(block: str) -> dict[str, Any] | None:
    """Return the mapping if every leaf came back as text, else None."""
    try:
        mapping = _yaml_rs().loads(block, parse_datetime=False)
    except (ValueError, TypeError):
        # The events judge what is refused here: YAMLDecodeError is a ValueError, and a map as a key
        # that holds a list gives TypeError.
        return None
    if type(mapping) is not dict:
        return None
    for key, value in mapping.items():
        if type(key) is not str or (type(value) is not str and not _is_text(value, 2)):
            return None
    return mapping


@cache
def _yaml_rs() -> ModuleType:
    """Return the Rust parser, loaded with the first block, which a warm start does not read."""
    name = "yaml_rs"
    if threading.current_thread() is not threading.main_thread():
        # Once the thread that loaded it has ended, yaml-rs 0.1.6 ends the process by a fault in the
        # next thread that parses. So one loads it that never ends.
        loaded = threading.Event()

        def load_and_stay() -> None:
            try:
                importlib.import_module(name)
            finally:
                loaded.set()
            threading.Event().wait()

        threading.Thread(target=load_and_stay, name=name, daemon=True).start()
        loaded.wait()
    return importlib.import_module(name)


def _is_text(value: Any, level: int) -> bool:
    """Whether all leaves are text and no collection, `value` being at `level`, is too deep."""
    if type(value) is str:
        return True
    if level > YAML_DEPTH_MAX:
        return False
    items: Any = value
    if type(value) is dict:
        # Loops, because generators cost a tenth of reading a block.
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    elif type(value) is not list:
        return False
    for item in items:  # noqa: SIM110 - a generator costs as said above.
        if type(item) is not str and not _is_text(item, level + 1):
            return False
    return True


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


class Repair(NamedTuple):
    """A block whose faulty values are quoted; it has the same lines."""

    block: str
    fields: tuple[RepairedField, ...]


class _Entry(NamedTuple):
    """A top-level field: the index of its line, and where its value begins there."""

    at: int
    key: str
    value_at: int


def repaired(block: str) -> Repair | None:
    """Return `block` with the faulty top-level values quoted, or None when there is none.

    A value that begins with a quote is left as it is. A value whose further lines are indented is
    taken with them.

    >>> repaired("description: Use when: asked").block
    "description: 'Use when: asked'"
    >>> repaired("description: [Beta] Folds text").fields
    (RepairedField(name='description', line=2),)
    """
    lines = block.split("\n")
    entries = [entry for at, line in enumerate(lines) if (entry := _entry(line, at))]
    ends = [*(entry.at for entry in entries[1:]), len(lines)] if entries else []
    fields = []
    judged = 0
    for entry, end in zip(entries, ends, strict=True):
        value = _value(lines, entry, end)
        if _is_surely_yaml(value):
            continue
        judged += 1
        if judged > VALUES_JUDGED_MAX:
            return None
        text = _text_of(value)
        if text is None:
            continue
        head = lines[entry.at][: entry.value_at].rstrip(" \t")
        mended = f"{head} {_quoted(text)}".split("\n")
        lines[entry.at : entry.at + len(mended)] = mended
        fields.append(RepairedField(entry.key, entry.at + FIRST_LINE))
    return Repair("\n".join(lines), tuple(fields)) if fields else None


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


def _is_surely_yaml(value: str) -> bool:
    """Whether a value need not be parsed: it is plain text, begins with a quote, or is not here."""
    if value[:1] in ("", "\n", '"', "'"):
        return True
    return (
        value[0].isalnum()
        and ": " not in value
        and ":\t" not in value
        and value[-1] != ":"
        and value.isprintable()
    )


def _text_of(value: str) -> str | None:
    """Return the text that a value is taken as; None when it is YAML or cannot be taken so."""
    if _is_yaml(value):
        return None
    first, *further = value.split("\n")
    if further and (_is_yaml(first) or any(line[:1] not in ("", " ", "\t") for line in further)):
        # What is wrong is below the top level, or belongs to no field.
        return None
    mark = _BLOCK_MARK.fullmatch(value)
    return mark["text"] if mark else value


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

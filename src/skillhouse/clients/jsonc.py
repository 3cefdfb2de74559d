"""Edits JSON with comments in one place; every other character stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from skillhouse.floor.documents import no_constant, unique_members
from skillhouse.floor.regex import regex

_TOKEN = regex(
    r"(?P<blank>[ \t\r\n]+)"
    r"|(?P<comment>//[^\n\r]*|/\*.*?\*/)"
    r'|(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")'
    r"|(?P<mark>[{}\[\],:])"
    r"|(?P<word>[-+.\w]+)",
    re.DOTALL,
)
_OPEN, _CLOSE = frozenset("{["), frozenset("}]")


class NotEditableError(Exception):
    """The text cannot be edited safely; the message says what was expected."""


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class _JsonMember(Struct, frozen=True):
    key: str
    start: int
    """Offset of the key."""
    first: int
    """Index of the first token of the value."""
    last: int
    comma: int | None
    """Index of the comma behind it."""


class Document(Struct, frozen=True):
    text: str
    tokens: tuple[_Token, ...]
    """Without white space and comments."""
    comments: tuple[_Token, ...]
    value: Any
    has_trailing_commas: bool


def parse(text: str) -> Document:
    """Return a text as a document whose value is an object; a blank text is an empty object.

    `NotEditableError` also where a key is repeated.
    """
    body = "{}" if not text.strip("\ufeff \t\r\n") else text
    tokens: list[_Token] = []
    comments: list[_Token] = []
    place = 1 if body.startswith("\ufeff") else 0
    while place < len(body):
        match = _TOKEN.match(body, place)
        if match is None or match.lastgroup is None:
            line = body.count("\n", 0, place) + 1
            raise NotEditableError(f"expected JSON, got something else in line {line}")
        token = _Token(match.lastgroup, match[0], place)
        place = token.end
        if token.kind == "comment":
            comments.append(token)
        elif token.kind != "blank":
            tokens.append(token)
    kept = [
        token
        for token, after in zip(tokens, [*tokens[1:], _Token("end", "", 0)], strict=True)
        if not (token.text == "," and after.text in _CLOSE)
    ]
    try:
        # Joined by spaces, so that two words do not become one.
        value = json.loads(
            " ".join(token.text for token in kept),
            object_pairs_hook=unique_members,
            parse_constant=no_constant,
        )
    except (ValueError, RecursionError) as error:
        raise NotEditableError(f"expected JSON: {error}") from None
    if not isinstance(value, dict):
        raise NotEditableError("expected an object, got another value")
    return Document(body, tuple(tokens), tuple(comments), value, len(kept) != len(tokens))


def with_entry(text: str, table: str, name: str, entry: Any) -> str:
    """Return the text with a new `table.name`, set to `entry`."""
    document = parse(text)
    before = document.value
    servers = before.get(table, {})
    if not isinstance(servers, dict) or name in servers:
        raise NotEditableError(f"expected an object without `{name}` in `{table}`")
    unit = _unit(document)
    if table in before:
        at = next(member for member in _members(document, 0) if member.key == table).first
        changed = _added(document, at, name, entry, unit)
    else:
        changed = _added(document, 0, table, {name: entry}, unit)
    return _checked(changed, {**before, table: {**servers, name: entry}}, document.comments)


def with_member(text: str, name: str, value: Any) -> str:
    """Return the text with a new `name` at the top, set to `value`."""
    document = parse(text)
    if name in document.value:
        raise NotEditableError(f"expected no `{name}`")
    changed = _added(document, 0, name, value, _unit(document))
    return _checked(changed, {**document.value, name: value}, document.comments)


def without_entry(text: str, table: str, name: str, *, with_table: bool = False) -> str:
    """Return the text without `table.name`; `with_table` also removes a table that gets empty."""
    document = parse(text)
    expected = dict(document.value)
    servers = expected.get(table)
    if not isinstance(servers, dict) or name not in servers:
        raise NotEditableError(f"expected `{name}` in `{table}`")
    top = next(one for one in _members(document, 0) if one.key == table)
    expected[table] = {key: value for key, value in servers.items() if key != name}
    if with_table and not expected[table] and not _has_comments(document, top):
        del expected[table]
        changed, gone = _removed(document, 0, table)
    else:
        changed, gone = _removed(document, top.first, name)
    kept = [token for token in document.comments if not gone[0] <= token.start < gone[1]]
    return _checked(changed, expected, kept)


def with_element(text: str, table: str, name: str, element: Any) -> str:
    """Return the text with an element at the end of the list `table.name`, which may be missing."""
    document = parse(text)
    tables = document.value.get(table, {})
    if not isinstance(tables, dict) or not isinstance(tables.get(name, []), list):
        raise NotEditableError(f"expected a list `{name}` in the object `{table}`")
    if name not in tables:
        return with_entry(text, table, name, [element])
    opening = _list(document, table, name)
    spans = _elements(document, opening)
    body, tokens, unit = document.text, document.tokens, _unit(document)
    newline = "\r\n" if "\r\n" in body else "\n"
    margin = _margin(body, tokens[opening].start)
    rendered = json.dumps(element, indent=unit, ensure_ascii=False)
    rendered = f"{newline}{margin}{unit}".join(rendered.split("\n"))
    if spans:
        at = tokens[spans[-1][1]].end
        changed = f"{body[:at]},{newline}{margin}{unit}{rendered}{body[at:]}"
    else:
        at = tokens[opening].end
        closed = tokens[opening + 1].start
        rest = body[at:closed]
        kept = rest if rest.strip() else ""
        changed = (
            f"{body[:at]}{kept}{newline}{margin}{unit}{rendered}{newline}{margin}{body[closed:]}"
        )
    expected = {**document.value, table: {**tables, name: [*tables.get(name, []), element]}}
    return _checked(changed, expected, document.comments)


def without_elements(text: str, table: str, name: str, matches: Callable[[Any], bool]) -> str:
    """Return the text without the elements of a list that match; one that gets empty goes too."""
    changed = text
    while True:
        document = parse(changed)
        tables = document.value.get(table)
        found = tables.get(name) if isinstance(tables, dict) else None
        if not isinstance(found, list) or not any(map(matches, found)):
            return changed
        if all(map(matches, found)):
            return _without_list(document, table, name)
        changed = _without_one(
            document, table, name, next(i for i, e in enumerate(found) if matches(e))
        )


def with_values(text: str, table: str, name: str, values: Mapping[str, Any]) -> str:
    """Return the text with these values in the entry `table.name`, each where its key is."""
    document = parse(text)
    servers = document.value.get(table)
    if not isinstance(servers, dict) or not isinstance(servers.get(name), dict):
        raise NotEditableError(f"expected an object `{name}` in `{table}`")
    expected = {**document.value, table: {**servers, name: {**servers[name], **values}}}
    changed = text
    for key, value in values.items():
        changed = _with_value(parse(changed), table, name, key, value)
    return _checked(changed, expected, document.comments)


def _with_value(document: Document, table: str, name: str, key: str, value: Any) -> str:
    opening = 0
    for step in (table, name):
        opening = next(one for one in _members(document, opening) if one.key == step).first
    there = [one for one in _members(document, opening) if one.key == key]
    if not there:
        return _added(document, opening, key, value, _unit(document))
    text = document.text
    start, end = document.tokens[there[0].first].start, document.tokens[there[0].last].end
    written = json.dumps(value, ensure_ascii=False)
    if "\n" in text[start:end]:
        newline = "\r\n" if "\r\n" in text else "\n"
        lines = json.dumps(value, indent=_unit(document), ensure_ascii=False).split("\n")
        written = f"{newline}{_margin(text, there[0].start)}".join(lines)
    return text[:start] + written + text[end:]


def _without_list(document: Document, table: str, name: str) -> str:
    top = next(one for one in _members(document, 0) if one.key == table)
    expected = dict(document.value)
    left = {key: value for key, value in expected[table].items() if key != name}
    if left:
        expected[table] = left
        changed, gone = _removed(document, top.first, name)
    else:
        del expected[table]
        changed, gone = _removed(document, 0, table)
    kept = [one for one in document.comments if not gone[0] <= one.start < gone[1]]
    return _checked(changed, expected, kept)


def _without_one(document: Document, table: str, name: str, number: int) -> str:
    opening = _list(document, table, name)
    spans, body, tokens = _elements(document, opening), document.text, document.tokens
    first, last = spans[number]
    if number + 1 < len(spans):
        start, end = tokens[first].start, tokens[spans[number + 1][0]].start
    else:
        start, end = tokens[spans[number - 1][1]].end, tokens[last].end
    elements = document.value[table][name]
    expected = {
        **document.value,
        table: {
            **document.value[table],
            name: [one for at, one in enumerate(elements) if at != number],
        },
    }
    kept = [one for one in document.comments if not start <= one.start < end]
    if len(kept) != len(document.comments):
        inner = tokens[first].start, tokens[last].end
        if any(
            start <= c.start < end and not inner[0] <= c.start < inner[1] for c in document.comments
        ):
            raise NotEditableError("a comment beside the entry would be lost")
    return _checked(body[:start] + body[end:], expected, kept)


def _list(document: Document, table: str, name: str) -> int:
    """Return the index of the token that opens a list."""
    top = next(one for one in _members(document, 0) if one.key == table)
    return next(one for one in _members(document, top.first) if one.key == name).first


def _elements(document: Document, opening: int) -> list[tuple[int, int]]:
    """Return the first and the last token of each element of a list."""
    tokens, spans, place = document.tokens, [], opening + 1
    while tokens[place].text != "]":
        first, depth = place, 0
        while True:
            depth += (tokens[place].text in "{[") - (tokens[place].text in "}]")
            if not depth:
                break
            place += 1
        spans.append((first, place))
        place += 1 + (tokens[place + 1].text == ",")
    return spans


def _checked(changed: str, expected: Any, comments: Sequence[_Token]) -> str:
    """Return the new text if it has the expected value and these comments."""
    after = parse(changed)
    # INVARIANT: the new text differs from the old one by our entry and by nothing else.
    if json.dumps(after.value) != json.dumps(expected) and after.value != expected:
        raise NotEditableError("something else would change")
    if [token.text for token in after.comments] != [token.text for token in comments]:
        raise NotEditableError("a comment would be lost")
    return changed


def _members(document: Document, opening: int) -> list[_JsonMember]:
    """Return the members of the object whose `{` is the token of that index."""
    tokens = document.tokens
    members = []
    place = opening + 1
    while tokens[place].text != "}":
        first = last = place + 2
        depth = 0
        while True:
            depth += (tokens[last].text in _OPEN) - (tokens[last].text in _CLOSE)
            if not depth:
                break
            last += 1
        has_comma = tokens[last + 1].text == ","
        key = json.loads(tokens[place].text)
        comma = last + 1 if has_comma else None
        members.append(_JsonMember(key, tokens[place].start, first, last, comma))
        place = last + 1 + has_comma
    return members


def _added(document: Document, opening: int, key: str, value: Any, unit: str) -> str:
    text, tokens = document.text, document.tokens
    members = _members(document, opening)
    newline = "\r\n" if "\r\n" in text else "\n"
    if not members:
        margin = _margin(text, tokens[opening].start)
        member = _rendered(key, value, margin + unit, unit, newline)
        at = tokens[opening].end
        rest = text[at : tokens[opening + 1].start]
        end = "" if "\n" in rest else f"{newline}{margin}"
        # White space between the braces is dropped.
        skipped = len(rest) if not rest.strip(" \t") else 0
        return f"{text[:at]}{newline}{margin}{unit}{member}{end}{text[at + skipped :]}"
    last = members[-1]
    value_end = tokens[last.last].end
    closing = tokens[last.last + 1 if last.comma is None else last.last + 2].start
    gap_start = value_end if last.comma is None else tokens[last.comma].end
    point = _line_end(document, gap_start, closing)
    comma_after = "" if last.comma is None else ","
    head = text[:value_end] + ("," if last.comma is None else "") + text[value_end:gap_start]
    if point is None:
        member = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{head} {member}{comma_after}{text[gap_start:]}"
    leading = [one.start for one in members if _begins_line(text, one.start)]
    margin = _margin(text, leading[-1] if leading else last.start)
    member = _rendered(key, value, margin, unit, newline)
    tail = f"{newline}{margin}{member}{comma_after}{text[point:]}"
    return head + text[gap_start:point] + tail


def _line_end(document: Document, start: int, end: int) -> int | None:
    """Return the end of the line of `start`, comments included; None when `end` is on it too."""
    place = start
    for comment in document.comments:
        if comment.start < start or comment.start >= end:
            continue
        newline = document.text.find("\n", place, comment.start)
        if newline >= 0:
            break
        place = comment.end
    newline = document.text.find("\n", place, end)
    if newline < 0:
        return None
    return newline - 1 if document.text[newline - 1 : newline] == "\r" else newline


def _removed(document: Document, opening: int, key: str) -> tuple[str, tuple[int, int]]:
    text, tokens = document.text, document.tokens
    members = _members(document, opening)
    number = next(place for place, one in enumerate(members) if one.key == key)
    member = members[number]
    blanks = text[: member.start].rstrip(" \t")
    start = len(blanks)
    if blanks.endswith("\n"):
        start -= 2 if blanks.endswith("\r\n") else 1
    end = tokens[member.last if member.comma is None else member.comma].end
    if len(members) == 1:
        opened, closed = tokens[opening].end, tokens[_closing(document, opening)].start
        if not (text[opened:start] + text[end:closed]).strip():
            return text[:opened] + text[closed:], (opened, closed)
    head = text[:start]
    if number == len(members) - 1 and member.comma is None and number:
        comma = tokens[members[number - 1].comma or 0]
        head = text[: comma.start] + text[comma.end : start]
    return head + text[end:], (start, end)


def _closing(document: Document, opening: int) -> int:
    members = _members(document, opening)
    if not members:
        return opening + 1
    return members[-1].last + 1 if members[-1].comma is None else members[-1].last + 2


def _has_comments(document: Document, member: _JsonMember) -> bool:
    """Whether an object has comments outside its only member's value."""
    inner = _members(document, member.first)
    first, last = document.tokens[inner[0].first], document.tokens[inner[0].last]
    start, end = document.tokens[member.first].start, document.tokens[member.last].end
    return any(
        start < comment.start < end and not first.start < comment.start < last.end
        for comment in document.comments
    )


def _rendered(key: str, value: Any, margin: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{json.dumps(key)}: " + f"{newline}{margin}".join(lines)


def _unit(document: Document) -> str:
    starts = [member.start for member in _members(document, 0)]
    leading = [start for start in starts if _begins_line(document.text, start)]
    return (_margin(document.text, leading[0]) if leading else "") or "  "


def _begins_line(text: str, at: int) -> bool:
    """Whether only blanks precede `at` on its line."""
    return not text[text.rfind("\n", 0, at) + 1 : at].strip(" \t")


def _margin(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]

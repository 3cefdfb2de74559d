"""Adds elements to lists of JSON with comments, and removes them; all else stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from skillhouse.clients.jsonc import (
    Document,
    NotEditableError,
    _checked,
    _margin,
    _members,
    _removed,
    _unit,
    parse,
    with_entry,
)

Matches = Callable[[Any], bool]


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


def without_elements(text: str, table: str, name: str, matches: Matches) -> str:
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

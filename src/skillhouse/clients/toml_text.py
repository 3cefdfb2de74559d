"""Edits TOML in one place: adds, removes or changes one table, every other character stays."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from skillhouse.clients.jsonc import NotEditableError


def parse(text: str) -> dict[str, Any]:
    """Return the value of a text, or raise `NotEditableError`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        raise NotEditableError(f"expected TOML: {reason[:1].lower()}{reason[1:]}") from None


def rendered(table: str, name: str, entry: Mapping[str, Any]) -> str:
    lines = [f"[{table}.{name}]"]
    lines += [f"{key} = {_value(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def with_entry(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return the text with the table `[table.name]` appended."""
    before = parse(text)
    servers = before.get(table, {})
    if not isinstance(servers, dict) or name in servers:
        raise NotEditableError(f"expected a table without `{name}` in `{table}`")
    newline = "\r\n" if "\r\n" in text else "\n"
    joint = "" if not text else newline if text.endswith("\n") else newline * 2
    changed = text + joint + rendered(table, name, entry).replace("\n", newline)
    return _checked(changed, {**before, table: {**servers, name: dict(entry)}})


def without_entry(text: str, table: str, name: str) -> str:
    """Return the text without `[table.name]` and its sub-tables; comments behind it stay."""
    expected = parse(text)
    servers = expected.get(table)
    if not isinstance(servers, dict) or name not in servers:
        raise NotEditableError(f"expected `{name}` in `{table}`")
    lines = text.splitlines(keepends=True)
    kept: list[str] = []
    ours = _header(table, name, r"[.\]]")
    place = 0
    while place < len(lines):
        if not ours.match(lines[place]):
            kept.append(lines[place])
            place += 1
            continue
        end = place + 1
        while end < len(lines) and not lines[end].lstrip().startswith("["):
            end += 1
        last = end
        while last > place + 1 and lines[last - 1].strip()[:1] in ("", "#"):
            last -= 1
        if kept and not kept[-1].strip():
            # The blank line that `with_entry` put before it.
            kept.pop()
        place = last
    changed = "".join(kept)
    expected[table] = {key: value for key, value in servers.items() if key != name}
    if not expected[table] and table not in parse(changed):
        del expected[table]
    return _checked(changed, expected)


def with_element(text: str, table: str, name: str, element: Mapping[str, Any]) -> str:
    """Return the text with a table `[[table.name]]` appended to that list, which may be missing."""
    before = parse(text)
    tables = before.get(table, {})
    if not isinstance(tables, dict) or not isinstance(tables.get(name, []), list):
        raise NotEditableError(f"expected a list `{name}` in the table `{table}`")
    newline = "\r\n" if "\r\n" in text else "\n"
    joint = "" if not text else newline if text.endswith("\n") else newline * 2
    lines = [f"[[{table}.{name}]]", *(f"{key} = {_value(one)}" for key, one in element.items())]
    changed = text + joint + newline.join(lines) + newline
    elements = [*tables.get(name, []), dict(element)]
    return _checked(changed, {**before, table: {**tables, name: elements}})


def with_values(text: str, table: str, name: str, values: Mapping[str, Any]) -> str:
    """Return the text with these values in the table `[table.name]`, each where its key is."""
    before = parse(text)
    servers = before.get(table, {})
    if not isinstance(servers, dict) or not isinstance(servers.get(name), dict):
        raise NotEditableError(f"expected a table `{name}` in `{table}`")
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    header = _header(table, name, r"\]")
    start = next((n + 1 for n, line in enumerate(lines) if header.match(line)), None)
    if start is None:
        raise NotEditableError(f"expected `[{table}.{name}]` on a line of its own")
    for key, value in values.items():
        first, last = _lines_of(lines, start, key)
        if any("#" in line for line in lines[first:last]):
            raise NotEditableError("a comment would be lost")
        lines[first:last] = [f"{key} = {_value(value)}{newline}"]
    expected = {**before, table: {**servers, name: {**servers[name], **values}}}
    return _checked("".join(lines), expected)


def _lines_of(lines: list[str], start: int, key: str) -> tuple[int, int]:
    """Return the range of a key's lines in the table; an empty one at its top when it has none."""
    for first in range(start, len(lines)):
        if lines[first].lstrip().startswith("["):
            break
        if not re.match(rf"\s*{re.escape(key)}\s*=", lines[first]):
            continue
        for last in range(first + 1, len(lines) + 1):
            try:
                tomllib.loads("".join(lines[first:last]))
            except tomllib.TOMLDecodeError:
                continue
            return first, last
    return start, start


def _header(table: str, name: str, end: str) -> re.Pattern[str]:
    named = rf"(?:{re.escape(name)}|\"{re.escape(name)}\")"
    return re.compile(rf"\s*\[\s*{re.escape(table)}\s*\.\s*{named}\s*{end}")


def _checked(changed: str, expected: Any) -> str:
    """Return the new text if it has the expected value."""
    value = parse(changed)
    # INVARIANT: the new text differs from the old one by our entry and by nothing else.
    if repr(value) != repr(expected) and value != expected:
        raise NotEditableError("something else would change")
    return changed


def _value(value: Any) -> str:
    """Return a text, a truth value or a list of them as TOML; JSON's escapes are TOML's too."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

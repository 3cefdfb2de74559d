"""The text of a client's file with our entries and the exception for our runner, and without."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillhouse.clients import jsonc
from skillhouse.clients.jsonc import NotEditableError, with_element, without_elements
from skillhouse.frontends.hooks.client_rules import RUNNER, RuleException
from skillhouse.frontends.hooks.hook_clients import DATA, HookClient

SCRIPT = Path(__file__).with_name("hook_client.py")
"""What each of our entries starts."""
CANNOT = "skillhouse cannot judge"
"""What an entry says where its program cannot be started."""


def is_ours(element: Any) -> bool:
    return any(SCRIPT.name in text and "skillhouse" in text for text in _texts(element))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def own_lines(client: HookClient, text: str) -> list[str]:
    """Return our entries in a client's file, each with its event."""
    if client.configuration.kind == "file":
        return [text] if SCRIPT.name in text else []
    found = parsed(client, text).get("hooks")
    lists = found.items() if isinstance(found, dict) else ()
    return [
        f"{event} {json.dumps(one, sort_keys=True)}"
        for event, each in lists
        if isinstance(each, list)
        for one in each
        if is_ours(one)
    ]


def wanted_entries(client: HookClient, lines: Mapping[str, str]) -> list[str]:
    """Return our entries as they should be, as `own_lines` has them."""
    if client.configuration.kind == "file":
        return [with_lines(client, "", lines)]
    return [
        f"{event} {json.dumps(_entry(client, line), sort_keys=True)}"
        for event, line in lines.items()
    ]


def _entry(client: HookClient, line: str) -> Any:
    return json.loads(client.configuration.entry.replace('"{line}"', json.dumps(line)))


def switched_off(client: HookClient, text: str) -> str:
    """Return which value keeps the client from running its hooks, or nothing."""
    if client.configuration.kind == "file":
        return ""
    found = parsed(client, text)
    for value, is_wanted in (
        *((one, True) for one in client.configuration.values),
        *((one, False) for one in client.configuration.off),
    ):
        table = found.get(value.table) if value.table else found
        is_so = isinstance(table, dict) and table.get(value.name) == value.value
        if is_so != is_wanted:
            where = f"{value.table}.{value.name}" if value.table else value.name
            word = "is not" if is_wanted else "is"
            return f"`{where}` {word} {json.dumps(value.value)}: no hook runs"
    return ""


def mode_of(lines: Sequence[str]) -> str:
    if any(" sandbox " in line for line in lines):
        return "sandbox"
    return "watch" if lines and all(CANNOT not in line for line in lines) else "enforce"


def parsed(client: HookClient, text: str) -> dict[str, Any]:
    document = jsonc.parse(text)
    if document.comments and not client.configuration.comments:
        raise NotEditableError(f"{client.title} is not known to read comments, and it has some")
    value: dict[str, Any] = document.value
    return value


def with_lines(client: HookClient, text: str, lines: Mapping[str, str]) -> str:
    shape = client.configuration
    if shape.kind == "file":
        moments = {client.events[event]: line for event, line in lines.items()}
        template = (DATA / shape.template).read_text()
        return template.replace("{lines}", json.dumps(moments))
    parsed(client, text)
    for event, line in lines.items():
        text = with_element(text, "hooks", event, _entry(client, line))
    for value in shape.values:
        text = _with_value(text, value.table, value.name, value.value)
    return text if text.endswith("\n") else f"{text}\n"


def _with_value(text: str, table: str, name: str, value: Any) -> str:
    found = jsonc.parse(text).value
    inner = found.get(table, {}) if table else found
    if isinstance(inner, dict) and inner.get(name) == value:
        return text
    if name in inner:
        where = f"{table}.{name}" if table else name
        raise NotEditableError(f"`{where}` is set to another value; set it to {json.dumps(value)}")
    if table:
        return jsonc.with_entry(text, table, name, value)
    return jsonc.with_member(text, name, value)


def drop_value(found: dict[str, Any], table: str, name: str, before: Mapping[str, Any]) -> None:
    """Take out a value that was not there before, and its table where that gets empty."""
    if not table:
        if name not in before:
            found.pop(name, None)
        return
    inner = found.get(table)
    if isinstance(inner, dict) and name not in (before.get(table) or {}):
        inner.pop(name, None)
        if not inner and table not in before:
            del found[table]


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two files say the same but for empty lists of hooks."""
    return _bared(one) == _bared(other)


def _bared(found: Mapping[str, Any]) -> dict[str, Any]:
    hooks = found.get("hooks")
    left = {k: v for k, v in hooks.items() if v} if isinstance(hooks, dict) else hooks
    return {**{k: v for k, v in found.items() if k != "hooks"}, **({"hooks": left} if left else {})}


def with_exception(client: HookClient, text: str, words: Sequence[str]) -> str:
    """Return a client's file with the exception; NotEditableError where it has no place there."""
    one = _of_list(client)
    if one is None or has_exception(client, text, words):
        return text
    return with_element(text, one.table, one.name, one.filled(words))


def without_exception(client: HookClient, text: str) -> str:
    one = _of_list(client)
    return without_elements(text, one.table, one.name, _is_ours) if one else text


def has_exception(client: HookClient, text: str, words: Sequence[str]) -> bool:
    one = _of_list(client)
    if one is None:
        return True
    table = jsonc.parse(text).value.get(one.table)
    found = table.get(one.name) if isinstance(table, dict) else None
    return isinstance(found, list) and one.filled(words) in found


def _of_list(client: HookClient) -> RuleException | None:
    one = client.rewrite.exception if client.rewrite else None
    return one if one is not None and one.kind == "list" else None


def _is_ours(element: Any) -> bool:
    return isinstance(element, str) and RUNNER.name in element and "skillhouse" in element

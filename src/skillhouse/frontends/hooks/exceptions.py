"""The client's own exception for our runner, in the list of its settings that it has for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skillhouse.clients import jsonc
from skillhouse.clients.jsonc import with_element, without_elements
from skillhouse.frontends.hooks.client_rules import RUNNER, RuleException
from skillhouse.frontends.hooks.hook_clients import HookClient


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

"""Takes secrets out of a conversation before it is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from skillhouse.audit import KnownSecrets, is_secret_name, without_secrets

HIDDEN = "[REDACTED]"
_SAID = frozenset({"content", "args"})
"""What of a message's part somebody wrote; the rest is the library's own."""
_DEPTH_MAX = 64


def known_secrets(environment: Mapping[str, str], values: Iterable[str]) -> KnownSecrets:
    """Return what no transcript may hold: `values`, and the variables that are named as secrets."""
    named = [value for name, value in environment.items() if value and is_secret_name(name)]
    return KnownSecrets(dict.fromkeys((*values, *named)))


def kept_form(message: Mapping[str, Any], known: KnownSecrets) -> dict[str, Any]:
    """Return a message (as JSON) the way it is kept.

    >>> part = {"part_kind": "tool-call", "args": '{"token": "abc", "n": 1}'}
    >>> kept_form({"kind": "response", "parts": [part]}, KnownSecrets())["parts"][0]["args"]
    '{"token": "[REDACTED]", "n": 1}'
    """
    return {**message, "parts": [_part(part, known) for part in message.get("parts", ())]}


def kept_activations(data: Mapping[str, Any], known: KnownSecrets) -> dict[str, Any]:
    """Return activation records the way they are kept: a person wrote words after the names."""
    kept = [{**one, "arguments": _text(one["arguments"], known, 0)} for one in data["activations"]]
    return {**data, "activations": kept}


def _part(part: Mapping[str, Any], known: KnownSecrets) -> dict[str, Any]:
    made = {
        name: _hidden(value, known, 0) if name in _SAID else value for name, value in part.items()
    }
    if made.get("part_kind") == "thinking" and made.get("content") != part.get("content"):
        # The provider signed the words that are gone, and would refuse these.
        made["signature"] = None
    return made


def _hidden(value: Any, known: KnownSecrets, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        return HIDDEN
    if isinstance(value, str):
        return _text(value, known, depth)
    if isinstance(value, dict):
        return {
            name: HIDDEN if is_secret_name(name) else _hidden(item, known, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_hidden(item, known, depth + 1) for item in value]
    return value


def _text(text: str, known: KnownSecrets, depth: int) -> str:
    """Hide in a text; one that is JSON stays JSON, so that a later request can send it."""
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return without_secrets(text, known)
        made = _hidden(value, known, depth + 1)
        return text if made == value else json.dumps(made, ensure_ascii=False)
    return without_secrets(text, known)

"""From what somebody else wrote to a history that can be sent: a transcript, a model's answer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    repair_messages,
    sanitize_messages,
)

from skillhouse.audit import KnownSecrets, is_secret_name, without_secrets
from skillhouse.floor import DecodeError
from skillhouse.frontends.adapters.framework_bridge import sendable
from skillhouse.frontends.text import one_line

_TEXTS = ("content", "args", "tool_name", "tool_call_id")
"""The fields of a message's parts that hold somebody's words."""

_SENT = ("user-prompt", "tool-return")
_RETRIES = ("retry-prompt", "retry-feedback")
"""What the library says of calls and answers that it cannot use; always text."""


def restored(messages: Sequence[dict[str, Any]]) -> list[ModelMessage]:
    """Return the history that a transcript holds.

    Of what was sent only texts are taken back: an address of a file would be fetched by this
    machine or the provider, and an instruction would speak with the program's voice. A call that a
    crash left without its result is not made now; the model is told that it has none.

    Raises:
        DecodeError: it is none that we wrote.
    """
    try:
        found = ModelMessagesTypeAdapter.validate_python(messages)
    except (ValueError, RecursionError) as error:
        told = one_line(str(error).split("\n", 1)[0])
        raise DecodeError(f"the transcript holds no conversation: {told}") from error
    ours = [_ours(message) for message in found]
    closed_ones = closed([message for message in ours if message.parts])
    return sanitize_messages(closed_ones, allowed_file_url_schemes=())


def closed(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return a history in which each call has a result, so that a prompt can follow."""
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse) and last.tool_calls:
        return repair_messages(messages)
    return messages


def sendable_messages(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return messages that can be encoded.

    A model's JSON may name halves of characters, and a terminal may give bytes that are no text;
    one of them in the history would fail every request from then on.
    """
    return [_sendable(message) for message in messages]


def _sendable(message: ModelMessage) -> ModelMessage:
    parts: list[Any] = [_sendable_part(part) for part in message.parts]
    if all(made is part for made, part in zip(parts, message.parts, strict=True)):
        return message
    return dataclasses.replace(message, parts=parts)  # type: ignore[arg-type] # Its own kinds.


def _sendable_part(part: Any) -> Any:
    texts = ((name, getattr(part, name, None)) for name in _TEXTS)
    changed = {
        name: made
        for name, text in texts
        if isinstance(text, str) and (made := sendable(text)) != text
    }
    return dataclasses.replace(part, **changed) if changed else part


def _ours(message: ModelMessage) -> ModelMessage:
    if isinstance(message, ModelResponse):
        return message
    return dataclasses.replace(message, parts=[part for part in message.parts if _is_text(part)])


def _is_text(part: Any) -> bool:
    kind = part.part_kind
    return kind in _RETRIES or (kind in _SENT and isinstance(part.content, str))


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

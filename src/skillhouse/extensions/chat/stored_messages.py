"""Converts messages to the form of a transcript, without secrets, and back to a usable history."""

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
from skillhouse.floor.paths import sendable
from skillhouse.presentation.text import one_line

_TEXTS = ("content", "args", "tool_name", "tool_call_id")
"""The text fields of a message's parts."""

_SENT = ("user-prompt", "tool-return")
_RETRIES = ("retry-prompt", "retry-feedback")
"""The library's replies to unusable calls and answers; always text."""


def restored(messages: Sequence[dict[str, Any]]) -> list[ModelMessage]:
    """Return the history of a transcript.

    Of requests only texts are restored: the address of a file would be fetched by this machine or
    the provider, and an instruction would have the program's authority. A call that a crash left
    without a result is not made; it gets a result that says so. Raises DecodeError.
    """
    try:
        decoded = ModelMessagesTypeAdapter.validate_python(messages)
    except (ValueError, RecursionError) as error:
        reason = one_line(str(error).split("\n", 1)[0])
        raise DecodeError(f"the transcript holds no conversation: {reason}") from error
    text_only = [_text_only(message) for message in decoded]
    history = closed([message for message in text_only if message.parts])
    return sanitize_messages(history, allowed_file_url_schemes=())


def closed(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return a history in which every call has a result, so that a prompt can follow."""
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse) and last.tool_calls:
        return repair_messages(messages)
    return messages


def sendable_messages(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return messages that can be encoded.

    A model's JSON may have lone surrogates, and a terminal invalid bytes; one in the history would
    make every later request fail.
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


def _text_only(message: ModelMessage) -> ModelMessage:
    if isinstance(message, ModelResponse):
        return message
    return dataclasses.replace(message, parts=[part for part in message.parts if _is_text(part)])


def _is_text(part: Any) -> bool:
    kind = part.part_kind
    return kind in _RETRIES or (kind in _SENT and isinstance(part.content, str))


HIDDEN = "[REDACTED]"
_UNTRUSTED = frozenset({"content", "args"})
"""Fields of a message's part with text from outside; the others are the library's."""
_DEPTH_MAX = 64


def known_secrets(environment: Mapping[str, str], values: Iterable[str]) -> KnownSecrets:
    """Return `values` and the values of variables that are named like secrets."""
    named = [value for name, value in environment.items() if value and is_secret_name(name)]
    return KnownSecrets(dict.fromkeys((*values, *named)))


def kept_form(message: Mapping[str, Any], known: KnownSecrets) -> dict[str, Any]:
    """Return a message (as JSON) in stored form.

    >>> part = {"part_kind": "tool-call", "args": '{"token": "abc", "n": 1}'}
    >>> kept_form({"kind": "response", "parts": [part]}, KnownSecrets())["parts"][0]["args"]
    '{"token": "[REDACTED]", "n": 1}'
    """
    return {**message, "parts": [_part(part, known) for part in message.get("parts", ())]}


def kept_activations(data: Mapping[str, Any], known: KnownSecrets) -> dict[str, Any]:
    """Return activation records in stored form: their arguments are the user's text."""
    kept = [{**one, "arguments": _text(one["arguments"], known, 0)} for one in data["activations"]]
    return {**data, "activations": kept}


def _part(part: Mapping[str, Any], known: KnownSecrets) -> dict[str, Any]:
    made = {
        name: _hidden(value, known, 0) if name in _UNTRUSTED else value
        for name, value in part.items()
    }
    if made.get("part_kind") == "thinking" and made.get("content") != part.get("content"):
        # The provider signed the original text, and would reject the changed one.
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
    """Remove secrets from a text; JSON stays JSON, so that a later request can send it."""
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return without_secrets(text, known)
        made = _hidden(value, known, depth + 1)
        return text if made == value else json.dumps(made, ensure_ascii=False)
    return without_secrets(text, known)

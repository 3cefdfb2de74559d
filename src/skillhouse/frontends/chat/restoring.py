"""From what somebody else wrote to a history that can be sent: a transcript, a model's answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    repair_messages,
    sanitize_messages,
)

from skillhouse.floor import DecodeError
from skillhouse.frontends.adapters.context_retention import sendable
from skillhouse.frontends.presentation.text import one_line

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

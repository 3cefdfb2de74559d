"""A model on loopback that calls several tools in one turn, and keeps the requests that it gets.

It takes the protocols of the providers that the frameworks of the guide talk to.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.loopback_http import QuietHandler, served

Json = dict[str, Any]
Call = tuple[str, Mapping[str, Any]]
USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}


class Loopback:
    """Calls all tools in its first turn, then says `last`."""

    def __init__(self, calls: Sequence[Call], last: str) -> None:
        self.calls = list(calls)
        self.last = last
        self.bodies: list[Json] = []
        """The requests that offered the tools, oldest first."""
        self.url = ""
        self._numbers = itertools.count()

    def named(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Return id, name and arguments of each call."""
        return [(f"call-{at}", name, given) for at, (name, given) in enumerate(self.calls)]

    def reply(self, path: str, body: Json) -> tuple[Json, list[Json]]:
        """Return the answer to a request, in one piece and as events."""
        # A client may ask for a title too, without tools.
        offered = all(f'"{name}"' in json.dumps(body.get("tools")) for name, _ in self.calls)
        calls = self.named() if offered and not self.bodies else []
        if offered:
            self.bodies.append(body)
        speak = next(speak for ending, speak in _PROTOCOLS.items() if ending in path)
        return speak(f"{next(self._numbers)}", calls, "" if calls else self.last)


@contextmanager
def listening(model: Loopback) -> Iterator[Loopback]:
    """Serve the model on a free port while the block runs."""

    class Bound(_Handler):
        held = model

    with served(Bound) as model.url:
        yield model


class _Handler(QuietHandler):
    held: Loopback
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        path, _, query = self.path.partition("?")
        if not any(ending in path for ending in _PROTOCOLS):
            # Counting tokens, and what a client reports home.
            self._write("application/json", json.dumps({"input_tokens": 1}))
            return
        whole, events = self.held.reply(path, body)
        if not (body.get("stream") or "alt=sse" in query):
            self._write("application/json", json.dumps(whole))
            return
        lines = []
        for event in events:
            kind = f"event: {event['type']}\n" if "type" in event else ""
            lines.append(f"{kind}data: {json.dumps(event)}\n\n")
        end = "data: [DONE]\n\n" if path.endswith("/chat/completions") else ""
        self._write("text/event-stream", "".join(lines) + end)

    def do_HEAD(self) -> None:
        self._write("application/json", "")

    def _write(self, kind: str, text: str) -> None:
        self.answer(200, text.encode(), {"Content-Type": kind})


Named = Sequence[tuple[str, str, Mapping[str, Any]]]


def _responses(number: str, calls: Named, text: str) -> tuple[Json, list[Json]]:
    items: list[Json] = [
        {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": call_id,
            "name": name,
            "arguments": json.dumps(given),
            "status": "completed",
        }
        for call_id, name, given in calls
    ]
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        said = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        items.append({**said, "status": "completed", "content": content})
    details = {"input_tokens_details": {"cached_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}
    whole = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "fake",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**USAGE, **details},
    }
    begun = {**whole, "status": "in_progress", "output": []}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for at, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": at, "item": item})
        if "arguments" in item:
            told = {"item_id": item["id"], "output_index": at, "arguments": item["arguments"]}
            events.append({"type": "response.function_call_arguments.done", **told})
        else:
            delta = {"item_id": item["id"], "output_index": at, "content_index": 0, "delta": text}
            events.append({"type": "response.output_text.delta", "logprobs": [], **delta})
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return whole, [{**event, "sequence_number": at} for at, event in enumerate(events)]


def _chat(number: str, calls: Named, text: str) -> tuple[Json, list[Json]]:
    message: Json = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "index": at,
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given)},
            }
            for at, (call_id, name, given) in enumerate(calls)
        ]
    base = {"id": f"chat-{number}", "created": 1, "model": "fake"}
    end = {"index": 0, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {**end, "message": message}
    chunk = {**base, "object": "chat.completion.chunk"}
    return {**base, "object": "chat.completion", "choices": [choice], "usage": usage}, [
        {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**chunk, "choices": [{**end, "delta": {}}], "usage": usage},
    ]


def _messages(number: str, calls: Named, text: str) -> tuple[Json, list[Json]]:
    blocks: list[Json] = [
        {"type": "tool_use", "id": call_id, "name": name, "input": dict(given)}
        for call_id, name, given in calls
    ] or [{"type": "text", "text": text}]
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "fake"}
    events: list[Json] = [
        {"type": "message_start", "message": {**whole, "content": [], "usage": usage}}
    ]
    for at, block in enumerate(blocks):
        empty = {**block, "input": {}} if calls else {**block, "text": ""}
        delta = {"type": "text_delta", "text": text}
        if calls:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": at, "content_block": empty},
            {"type": "content_block_delta", "index": at, "delta": delta},
            {"type": "content_block_stop", "index": at},
        ]
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}})
    events.append({"type": "message_stop"})
    return {**whole, "content": blocks, "usage": usage, **end}, events


def _gemini(number: str, calls: Named, text: str) -> tuple[Json, list[Json]]:
    del number
    parts: list[Json] = [
        {"functionCall": {"id": call_id, "name": name, "args": dict(given)}}
        for call_id, name, given in calls
    ] or [{"text": text}]
    whole: Json = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2},
    }
    return whole, [whole]


_PROTOCOLS = {
    "/chat/completions": _chat,
    "/responses": _responses,
    "/messages": _messages,
    "enerateContent": _gemini,
}

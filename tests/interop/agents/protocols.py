"""The protocols that the clients speak with a model, as far as a scripted one needs them.

Each reads three things from a request: the tools that it offers, the results of earlier calls, and
whether the answer is to be streamed. And each writes a turn, which is one call or one text.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]
NAMESPACE = "::"
"""Between a namespace and a tool of it: Codex groups the tools of a server."""
SEARCH = "ToolSearch"
"""Claude Code's tool that describes others."""
TOOL_SEARCH = "tool_search"
"""The same of Codex."""
OBSERVED = ("Observation:", "Error:")
"""How smolagents begins what a tool returned, in a message of the user's."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """The model calls a tool, by the name that the client gave it."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something, and its turn ends."""

    text: str


@dataclass(frozen=True, slots=True)
class Calls:
    """The model calls several tools in one turn."""

    calls: Sequence[Call]


Turn = Call | Say | Calls


def _each(turn: Turn) -> Sequence[Call | Say]:
    return turn.calls if isinstance(turn, Calls) else (turn,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A turn as it goes over the wire: in one piece, or as events."""

    whole: Json
    events: Sequence[Json]
    named: bool = False
    """Whether each event is announced by its type."""
    closing: str = ""
    """What stands behind the last event."""


class Speech(Protocol):
    """One provider's protocol."""

    def offered(self, request: Json) -> Iterator[tuple[str, Json]]:
        """Yield name and definition of each tool that the client offers."""
        ...

    def deferred(self, request: Json) -> tuple[str, ...]:
        """Return the tools that are only named, until the model asks for them."""
        ...

    def fetch(self, request: Json, tool: str) -> Call | None:
        """Return the call that asks for such a tool; None when that is no use."""
        ...

    def results(self, request: Json) -> tuple[str, ...]:
        """Return the text of each tool result in the conversation, oldest first."""
        ...

    def opening(self, request: Json) -> str:
        """Return what is said before the model speaks first, by which conversations differ."""
        ...

    def answer(self, request: Json, turn: Turn) -> Answer:
        """Return a turn in the provider's words."""
        ...


def speech_of(path: str) -> Speech | None:
    """Return the protocol of the address that a client posts to, without its query."""
    if "enerateContent" in path:  # generateContent and streamGenerateContent
        return Gemini()
    endings: Mapping[str, type[Speech]] = {
        "/chat/completions": OpenAIChat,
        "/responses": OpenAIResponses,
        "/messages": Anthropic,
    }
    found = next((speech for ending, speech in endings.items() if path.endswith(ending)), None)
    return None if found is None else found()


def is_streamed(path: str, request: Json) -> bool:
    """Return whether the client wants events; Gemini says so in the address."""
    return "streamGenerateContent" in path or request.get("stream") is True


def texts(value: object) -> str:
    """Return every text in a value, whatever lists and objects it is wrapped in.

    >>> texts([{"type": "text", "text": "one"}, "two"])
    'one\\ntwo'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(texts, value)))
    if isinstance(value, dict):
        kept = (part for key, part in value.items() if key != "type")
        return "\n".join(filter(None, map(texts, kept)))
    return ""


def _before(said: object, speaks: Callable[[Json], bool]) -> str:
    items = said if isinstance(said, list) else [{"text": said}]
    return texts(list(itertools.takewhile(lambda item: not speaks(item), items)))


class _Whole:
    """What protocols have in common whose clients describe every tool from the start."""

    def deferred(self, request: Json) -> tuple[str, ...]:
        """See `Speech`."""
        del request
        return ()

    def fetch(self, request: Json, tool: str) -> Call | None:
        """See `Speech`."""
        del request, tool
        return None


class OpenAIChat(_Whole):
    """Chat completions, which opencode speaks with a provider of one's own."""

    def offered(self, request: Json) -> Iterator[tuple[str, Json]]:
        """See `Speech`."""
        for tool in request.get("tools") or ():
            yield tool["function"]["name"], tool

    def results(self, request: Json) -> tuple[str, ...]:
        """See `Speech`."""
        said = ((one.get("role"), texts(one.get("content"))) for one in request.get("messages", ()))
        return tuple(
            text
            for role, text in said
            if role == "tool" or (role == "user" and text.startswith(OBSERVED))
        )

    def opening(self, request: Json) -> str:
        """See `Speech`."""
        return _before(request.get("messages"), lambda one: one.get("role") == "assistant")

    def answer(self, request: Json, turn: Turn) -> Answer:
        """See `Speech`."""
        message: Json = {"role": "assistant", "content": None}
        if isinstance(turn, Say):
            message["content"], reason = turn.text, "stop"
        else:
            functions = [
                {"name": one.tool, "arguments": json.dumps(one.arguments)}
                for one in _each(turn)
                if isinstance(one, Call)
            ]
            reason = "tool_calls"
            message["tool_calls"] = [
                {"index": at, "id": _id("call"), "type": "function", "function": function}
                for at, function in enumerate(functions)
            ]
        base = {"id": _id("chatcmpl"), "created": 1, "model": request.get("model")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "finish_reason": reason}
        chunk = {**base, "object": "chat.completion.chunk"}
        return Answer(
            whole={
                **base,
                "object": "chat.completion",
                "choices": [{**choice, "message": message}],
                "usage": usage,
            },
            events=[
                {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
                {**chunk, "choices": [{**choice, "delta": {}}]},
                {**chunk, "choices": [], "usage": usage},
            ],
            closing="data: [DONE]\n\n",
        )


class OpenAIResponses:
    """Responses, the only protocol of Codex.

    For a model that can search for tools, Codex names only the namespaces of MCP servers, each with
    the first line of its instructions, and describes tools when the model has searched for them.
    """

    def offered(self, request: Json) -> Iterator[tuple[str, Json]]:
        """See `Speech`."""
        kinds = ("tool_search_output", "additional_tools")
        found = [item.get("tools") or () for item in _items(request, *kinds)]
        for tool in (*(request.get("tools") or ()), *itertools.chain.from_iterable(found)):
            if tool.get("type") == "namespace":
                for inner in tool["tools"]:
                    yield f"{tool['name']}{NAMESPACE}{inner['name']}", inner
            else:
                yield tool.get("name") or tool["type"], tool

    def deferred(self, request: Json) -> tuple[str, ...]:
        """See `Speech`; only the namespaces are named."""
        if TOOL_SEARCH not in dict(self.offered(request)):
            return ()
        return tuple(re.findall(r"^- (mcp__\w+)(?=:|$)", texts(request["input"]), re.MULTILINE))

    def fetch(self, request: Json, tool: str) -> Call | None:
        """See `Speech`."""
        namespace, _, name = tool.rpartition(NAMESPACE)
        query = {"query": name, "limit": 20}
        asked = [item.get("arguments") for item in _items(request, "tool_search_call")]
        if namespace not in self.deferred(request) or query in asked:
            return None
        return Call(TOOL_SEARCH, query)

    def results(self, request: Json) -> tuple[str, ...]:
        """See `Speech`."""
        kinds = ("function_call_output", "custom_tool_call_output")
        return tuple(texts(item.get("output")) for item in _items(request, *kinds))

    def opening(self, request: Json) -> str:
        """See `Speech`."""
        return _before(request.get("input"), lambda one: "call" in one.get("type", ""))

    def answer(self, request: Json, turn: Turn) -> Answer:
        """See `Speech`."""
        tools = dict(self.offered(request))
        items = [
            _call_item(one, tools.get(one.tool, {}))
            if isinstance(one, Call)
            else _message_item(one)
            for one in _each(turn)
        ]
        whole = {
            "id": _id("resp"),
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": request.get("model"),
            "output": items,
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }
        begun = {**whole, "status": "in_progress", "output": []}
        events: list[Json] = [{"type": "response.created", "response": begun}]
        for at, item in enumerate(items):
            empty = {**item, "status": "in_progress", **_EMPTY.get(item["type"], {})}
            events.append({"type": "response.output_item.added", "output_index": at, "item": empty})
            events.append({"type": "response.output_item.done", "output_index": at, "item": item})
        events.append({"type": "response.completed", "response": whole})
        numbered = [{**event, "sequence_number": n} for n, event in enumerate(events)]
        return Answer(whole=whole, events=numbered, named=True)


_EMPTY: Mapping[str, Json] = {
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}
"""What an item is before it has come."""


def _items(request: Json, *kinds: str) -> list[Json]:
    items = request.get("input")
    return [
        item for item in (items if isinstance(items, list) else ()) if item.get("type") in kinds
    ]


def _call_item(turn: Call, tool: Json) -> Json:
    if turn.tool == TOOL_SEARCH:
        return {
            "type": "tool_search_call",
            "id": _id("ts"),
            "call_id": _id("call"),
            "execution": "client",
            "arguments": dict(turn.arguments),
            "status": "completed",
        }
    namespace, _, name = turn.tool.rpartition(NAMESPACE)
    item = {
        "type": "function_call",
        "id": _id("fc"),
        "call_id": _id("call"),
        "name": name,
        "status": "completed",
    }
    if tool.get("type") == "custom":
        item |= {"type": "custom_tool_call", "id": _id("ctc"), "input": turn.arguments["input"]}
    else:
        item["arguments"] = json.dumps(turn.arguments)
    return {**item, "namespace": namespace} if namespace else item


def _message_item(turn: Say) -> Json:
    content = {"type": "output_text", "text": turn.text, "annotations": []}
    return {
        "type": "message",
        "id": _id("msg"),
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }


class Anthropic:
    """Messages, which Claude Code speaks.

    Since 2.1.330 it names tools of MCP servers in a reminder, and describes one when the model has
    asked for it with the tool `ToolSearch`.
    """

    def offered(self, request: Json) -> Iterator[tuple[str, Json]]:
        """See `Speech`."""
        for tool in request.get("tools") or ():
            yield tool["name"], tool

    def deferred(self, request: Json) -> tuple[str, ...]:
        """See `Speech`."""
        if SEARCH not in dict(self.offered(request)):
            return ()
        said = texts([one.get("content") for one in request.get("messages") or ()])
        return tuple(re.findall(r"^mcp__\w+$", said, re.MULTILINE))

    def fetch(self, request: Json, tool: str) -> Call | None:
        """See `Speech`."""
        asked = [block for block in _blocks(request) if block.get("name") == SEARCH]
        query = {"query": f"select:{tool}", "max_results": 1}
        if tool not in self.deferred(request) or query in [one.get("input") for one in asked]:
            return None
        return Call(SEARCH, query)

    def results(self, request: Json) -> tuple[str, ...]:
        """See `Speech`."""
        blocks = _blocks(request)
        searches = {block.get("id") for block in blocks if block.get("name") == SEARCH}
        return tuple(
            texts(block.get("content"))
            for block in blocks
            if block.get("type") == "tool_result" and block.get("tool_use_id") not in searches
        )

    def opening(self, request: Json) -> str:
        """See `Speech`."""
        return _before(request.get("messages"), lambda one: one.get("role") == "assistant")

    def answer(self, request: Json, turn: Turn) -> Answer:
        """See `Speech`."""
        blocks: list[Json] = []
        events: list[Json] = []
        for at, one in enumerate(_each(turn)):
            if isinstance(one, Call):
                block: Json = {"type": "tool_use", "id": _id("toolu"), "name": one.tool}
                empty, full = {**block, "input": {}}, {**block, "input": dict(one.arguments)}
                part = {"type": "input_json_delta", "partial_json": json.dumps(one.arguments)}
            else:
                empty, full = {"type": "text", "text": ""}, {"type": "text", "text": one.text}
                part = {"type": "text_delta", "text": one.text}
            blocks.append(full)
            events += [
                {"type": "content_block_start", "index": at, "content_block": empty},
                {"type": "content_block_delta", "index": at, "delta": part},
                {"type": "content_block_stop", "index": at},
            ]
        reason = "end_turn" if isinstance(turn, Say) else "tool_use"
        end = {"stop_reason": reason, "stop_sequence": None}
        whole = {
            "id": _id("msg"),
            "type": "message",
            "role": "assistant",
            "model": request.get("model"),
            "content": blocks,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            **end,
        }
        begun = {**whole, "content": [], "stop_reason": None}
        told = [
            {"type": "message_start", "message": begun},
            *events,
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        return Answer(whole=whole, events=told, named=True)


def _blocks(request: Json) -> list[Json]:
    said = [one.get("content") for one in request.get("messages") or ()]
    return [block for part in said if isinstance(part, list) for block in part]


class Gemini(_Whole):
    """generateContent, which Gemini CLI speaks."""

    def offered(self, request: Json) -> Iterator[tuple[str, Json]]:
        """See `Speech`."""
        for tool in request.get("tools") or ():
            for function in tool.get("functionDeclarations") or ():
                yield function["name"], function

    def results(self, request: Json) -> tuple[str, ...]:
        """See `Speech`."""
        parts = itertools.chain.from_iterable(
            content.get("parts") or () for content in request.get("contents") or ()
        )
        return tuple(
            texts(part["functionResponse"].get("response"))
            for part in parts
            if "functionResponse" in part
        )

    def opening(self, request: Json) -> str:
        """See `Speech`."""
        return _before(request.get("contents"), lambda one: one.get("role") == "model")

    def answer(self, request: Json, turn: Turn) -> Answer:
        """See `Speech`."""
        del request
        parts = [
            {"functionCall": {"name": one.tool, "args": dict(one.arguments)}}
            if isinstance(one, Call)
            else {"text": one.text}
            for one in _each(turn)
        ]
        content = {"role": "model", "parts": parts}
        whole: Json = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2},
            "modelVersion": "fake",
        }
        return Answer(whole=whole, events=[whole])


def _id(kind: str) -> str:
    return f"{kind}_{next(_numbers):08x}"

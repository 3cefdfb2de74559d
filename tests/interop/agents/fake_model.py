"""A model on loopback that follows a script, and keeps what it was sent.

It decides by the conversation alone: the number of tool results in a request is the number of
steps that were taken, so a client that repeats a request gets the same answer. A request that does
not offer the tool of the next step, as those for a title, gets a word and no call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.interop.agents.protocols import (
    Call,
    Calls,
    Json,
    Say,
    Speech,
    Turn,
    is_streamed,
    speech_of,
)
from tests.loopback_http import QuietHandler, served

HELD_SECONDS = 60.0
"""How long a step waits for its `after`."""


Made = Callable[[Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call that the model makes."""

    tool: str
    """As the client names it."""
    arguments: Mapping[str, Any] | Made
    """A function makes them of the results so far, as a model that reads them does."""
    after: Callable[[float], bool] | None = None
    """Waits so many seconds for what must have happened first, as a person's answer before a call
    is repeated, and says whether it has."""
    beside: Sequence[Call] = ()
    """Further calls of the same turn."""
    is_offered: bool = True
    """False to call a tool whether the client offers it or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request to the model."""

    speech: Speech
    body: Json


@dataclass(slots=True)
class FakeModel:
    """Answers requests by its steps."""

    steps: Sequence[Step]
    others: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    """Steps of the conversations in whose opening a word is: those of subagents."""
    asked: list[Asked] = field(default_factory=list)
    """Every request so far, oldest first."""
    url: str = ""
    """Where it listens."""
    kept: dict[str, list[Json]] = field(default_factory=dict)
    """Conversations by the id of their last response, which a client may name instead of them."""

    def taken(self, body: Json) -> Json:
        """Return a request with what it continues, as OpenAI's Responses keep it.

        Raises:
            KeyError: it continues a response that is none of ours.
        """
        earlier = body.get("previous_response_id")
        if earlier is None:
            return body
        return {**body, "input": [*self.kept[earlier], *_items(body)]}

    def keep(self, body: Json, answer: Json) -> None:
        """Keep a conversation of Responses, for a request that continues it."""
        if "output" in answer:
            self.kept[answer["id"]] = [*_items(body), *answer["output"]]

    def results(self) -> tuple[str, ...]:
        """Return the tool results of the longest conversation so far."""
        found = (one.speech.results(one.body) for one in tuple(self.asked))
        return max(found, key=len, default=())

    def turn(self, speech: Speech, body: Json) -> Turn:
        """Return what the model does next in this conversation."""
        results = speech.results(body)
        opening = speech.opening(body) if self.others else ""
        steps = next((self.others[word] for word in self.others if word in opening), self.steps)
        left = len(results)
        for step in steps:
            if left <= 0:
                return self._taken(step, speech, body, results)
            left -= 1 + len(step.beside)
        return Say(f"All done: {results[-1]}" if results else "Nothing to do.")

    def _taken(self, step: Step, speech: Speech, body: Json, results: Sequence[str]) -> Turn:
        if step.is_offered and step.tool not in dict(speech.offered(body)):
            return speech.fetch(body, step.tool) or Say("There is no such tool.")
        if step.after is not None and not step.after(HELD_SECONDS):
            return Say("Nobody answered.")
        given = step.arguments
        call = Call(step.tool, given(results) if callable(given) else given)
        return Calls((call, *step.beside)) if step.beside else call


def _items(body: Json) -> list[Json]:
    said = body.get("input")
    return said if isinstance(said, list) else [{"role": "user", "content": said}]


@contextmanager
def serving(model: FakeModel) -> Iterator[FakeModel]:
    """Serve the model on a free port of loopback while the block runs."""

    class Bound(_Handler):
        held = model

    with served(Bound) as model.url:
        yield model


class _Handler(QuietHandler):
    held: FakeModel
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Be there."""
        self._send({})

    def do_GET(self) -> None:
        """Name the only model, which some clients look up first."""
        self._send({"object": "list", "data": [{"id": "fake", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        """Take a request and answer it, or count tokens."""
        data, path = self._body(), self.path.partition("?")[0]
        speech = speech_of(path)
        if speech is None:
            # Counting is a convenience of the provider's; so is what a client reports home.
            self._send({"input_tokens": 1, "totalTokens": 1})
            return
        request = self.held.taken(json.loads(data))
        self.held.asked.append(Asked(speech=speech, body=request))
        answer = speech.answer(request, self.held.turn(speech, request))
        self.held.keep(request, answer.whole)
        if not is_streamed(path, request):
            self._send(answer.whole)
            return
        lines = (
            (f"event: {event['type']}\n" if answer.named else "") + f"data: {json.dumps(event)}\n\n"
            for event in answer.events
        )
        self._write("text/event-stream", ("".join(lines) + answer.closing).encode())

    def _send(self, value: Json) -> None:
        self._write("application/json", json.dumps(value).encode())

    def _write(self, kind: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

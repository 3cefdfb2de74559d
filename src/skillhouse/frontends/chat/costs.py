"""Counts the tokens of histories and tools, and the usage of requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse

from skillhouse.frontends.adapters.framework_bridge import OfferedTools
from skillhouse.frontends.presentation.text import counted
from skillhouse.tools import tokens_of


def tokens_of_messages(messages: Sequence[ModelMessage]) -> int:
    """Return the approximate tokens of a history, rather too many."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return sum(_tokens_of(message) for message in dumped)


def tokens_of_tools(tools: Iterable[OfferedTools]) -> int:
    return sum(tokens_of(tool.name + tool.description + json.dumps(tool.schema)) for tool in tools)


@dataclass(slots=True)
class Spent:
    """Usage of a session's requests, as reported by the providers."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Requests without a known price."""

    def add(self, response: ModelResponse) -> None:
        usage = response.usage
        self.requests += 1
        self.input_tokens += usage.input_tokens or 0
        self.cached_tokens += usage.cache_read_tokens or 0
        self.output_tokens += usage.output_tokens or 0
        try:
            self.dollars += float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):
            # A model without a listed price, or a provider that reports no usage.
            self.unpriced += 1

    def __str__(self) -> str:
        if not self.requests:
            return "no requests yet"
        if not self.input_tokens + self.output_tokens:
            return f"{counted(self.requests, 'request')}; the provider does not say how many tokens"
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        price = f", about ${self.dollars:.4f}" if self.dollars else ""
        if price and self.unpriced:
            price += f" ({self.unpriced} without a known price)"
        return (
            f"{counted(self.requests, 'request')}: {self.input_tokens:,} tokens in{cached}, "
            f"{self.output_tokens:,} out{price}"
        )


def _tokens_of(message: Mapping[str, Any]) -> int:
    count = 0
    for part in message.get("parts", ()):
        for name in ("content", "args", "tool_name"):
            value = part.get(name)
            if value:
                count += tokens_of(value if isinstance(value, str) else json.dumps(value))
    return count + 4

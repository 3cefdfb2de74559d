"""What a conversation costs: tokens of the catalog, of skills, of the history, of requests."""

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
    """Return about how many tokens a history takes, a little more than it does."""
    found = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return sum(_said(message) for message in found)


def tokens_of_tools(tools: Iterable[OfferedTools]) -> int:
    """Return about how many tokens the tools take that go with each request."""
    return sum(tokens_of(tool.name + tool.description + json.dumps(tool.schema)) for tool in tools)


@dataclass(slots=True)
class Spent:
    """What the requests of a session used, as far as the providers said."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Requests whose price nobody knows."""

    def add(self, response: ModelResponse) -> None:
        """Count one answer of a model."""
        usage = response.usage
        self.requests += 1
        self.input_tokens += usage.input_tokens or 0
        self.cached_tokens += usage.cache_read_tokens or 0
        self.output_tokens += usage.output_tokens or 0
        try:
            self.dollars += float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):
            # A model that no list of prices knows, or a provider that counts nothing.
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


def _said(message: Mapping[str, Any]) -> int:
    """Return the tokens of what a message says: its texts, calls and results."""
    count = 0
    for part in message.get("parts", ()):
        for name in ("content", "args", "tool_name"):
            value = part.get(name)
            if value:
                count += tokens_of(value if isinstance(value, str) else json.dumps(value))
    return count + 4

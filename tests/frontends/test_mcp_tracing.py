"""Tests of how a client's trace goes on in the house."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.client import Client
from opentelemetry import trace

from skillhouse.frontends.mcp.approval_bridge import trace_of
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse, configured
from tests.house.places import make_places, write_skill
from tests.listening import Listener

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-00"


async def test_a_call_lies_within_the_span_of_the_sdk_and_that_in_the_clients(
    tmp_path: Path, heard: Listener
):
    write_skill(tmp_path / "home/.claude/skills/weather")
    house = Skillhouse(configured(make_places(tmp_path)))
    server = SkillhouseServer(house, ToolListing(house, "default"), agent="default", user="local")
    async with Client(server.sdk) as client:
        with trace.get_tracer("app").start_as_current_span("app"):
            result = await client.call_tool("skill", {"name": "weather"})
    assert not result.is_error
    house.close()
    by_id = {span.context.span_id: span for span in heard.everyone() if span.context}
    names = []
    span = heard.span("execute_tool skill")
    while span.parent is not None:
        span = by_id[span.parent.span_id]
        names.append((span.kind.name, span.name))
    assert names[0] == ("SERVER", "tools/call skill")
    assert names[-1] == ("INTERNAL", "app")


@pytest.mark.parametrize(
    ("meta", "headers", "found"),
    [
        ({"traceparent": TRACEPARENT}, None, TRACEPARENT),
        (None, {"traceparent": TRACEPARENT}, TRACEPARENT),
        ({"traceparent": OTHER}, {"traceparent": TRACEPARENT}, OTHER),
        ({}, {}, ""),
        (None, None, ""),
        ({"traceparent": "x" * 1_000_000}, None, ""),
        ({"traceparent": 3}, None, ""),
        ({"traceparent": ["00"]}, None, ""),
    ],
)
def test_what_a_client_says_of_its_trace(meta: Any, headers: Any, found: str):
    request = None if headers is None else SimpleNamespace(headers=headers)
    context: Any = SimpleNamespace(meta=meta, request=request)
    assert trace_of(context) == found

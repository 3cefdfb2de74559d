"""Serves the tools to a coding agent over the Model Context Protocol.

The entries are `serve` for stdio and `over_http.McpOverHttp` for streamable HTTP.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec

import anyio

from skillhouse.floor import MissingExtraError, SkillhouseError, needs_extra
from skillhouse.floor.paths import sendable
from skillhouse.frontends.mcp.closed_pipe import ClosedPipeWatch
from skillhouse.frontends.mcp.handshake import FastHandshake, MessageReader, claimed
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.frontends.mcp.tried_clients import Places, client_lists
from skillhouse.house import Prompts, Skillhouse

__all__ = ["serve"]


def serve(house: Skillhouse, *, agent: str = "default", user: str = "local") -> int:
    """Serve MCP on stdin and stdout until stdin closes or a signal arrives; return 0.

    Calls are made for `agent` and `user`; `house` must not be used elsewhere meanwhile.

    Raises:
        MissingExtraError: the packages of the extra `mcp` are not installed.
        ConfigError: no agent has that name.
    """
    house.policy.layers(agent)
    if find_spec("mcp") is None:
        raise MissingExtraError("mcp", "mcp")
    house.use_extensions()
    with claimed() as (source, sink):
        late = Prompts(profile=house.policy.profile, has_skills=True, catalog=house.catalog)
        fast_handshake = FastHandshake(late.without_list())
        watch = ClosedPipeWatch(source, sink)
        reader = MessageReader(source, sink, fast_handshake, watch)
        with watch.ended_by_signals():
            reader.start()
            watch.start()
            # Instructions first, since they need only the skills: the tools take as long again.
            view = house.view(agent)
            lists = client_lists(view)
            fast_handshake.set_instructions(
                {places: sendable(one.instructions) for places, one in lists.items()}
            )
            listing = ToolListing(house, agent)
            fast_handshake.set_tools({places: listing.tools(one) for places, one in lists.items()})
            with needs_extra("mcp"), _no_collection():
                from skillhouse.frontends.mcp.server import SkillhouseServer  # noqa: PLC0415 - an extra.
                from skillhouse.frontends.mcp.stdio import serve_wire  # noqa: PLC0415
            reader.end_fast_handshake()
            listing.client_list = lists.get(fast_handshake.places, lists[Places.EACH])
            server = SkillhouseServer(house, listing, agent=agent, user=user)
            # After what a client waits for.
            with suppress(SkillhouseError):
                # An agent that is gone: each request of the client says so.
                house.view(agent).search.start()
            anyio.run(serve_wire, server, reader, fast_handshake, watch, sink)
    return 0


@contextmanager
def _no_collection() -> Iterator[None]:
    """Import without garbage collection, since imports leave no garbage.

    The SDK's models are several hundred thousand objects; traversing them repeatedly takes a fifth
    of the import, while a client waits.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        # Imported objects stay; later collections need not traverse them.
        gc.freeze()
    finally:
        if enabled:
            gc.enable()

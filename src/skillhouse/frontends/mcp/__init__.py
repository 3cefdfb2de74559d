"""Serves the house's tools to a coding agent over the Model Context Protocol, on stdio."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import anyio

from skillhouse.floor import MissingExtraError
from skillhouse.frontends.mcp.handshake import FastHandshake
from skillhouse.frontends.mcp.tool_list import ToolListing, sendable
from skillhouse.frontends.mcp.wire import MessageReader, claimed
from skillhouse.runtime import Prompts, Skillhouse

__all__ = ["serve"]


def serve(house: Skillhouse, *, agent: str, user: str) -> int:
    """Serve the house on stdin and stdout until stdin closes or a signal ends it; return 0.

    Args:
        house: What to serve; nobody else may use it meanwhile.
        agent: Whose skills and rules hold for this connection.
        user: On whose behalf the calls are recorded.

    Raises:
        MissingExtraError: the packages of the extra `mcp` are not installed.
        ConfigError: no agent has that name.
    """
    house.policy.layers(agent)
    if find_spec("mcp") is None:
        raise MissingExtraError("mcp", "mcp")
    with claimed() as (source, sink):
        late = Prompts(profile=house.profile, has_skills=True, catalog=house.catalog)
        fast_handshake = FastHandshake(late.without_list())
        reader = MessageReader(source, sink, fast_handshake)
        reader.start()
        # First what needs the skills alone: the tools take as long once more.
        fast_handshake.set_instructions(sendable(house.view(agent).prompts().instructions()))
        listing = ToolListing(house, agent)
        fast_handshake.set_tools(listing.tools())
        with _mcp_extra(), _no_collection():
            from skillhouse.frontends.mcp.server import SkillhouseServer  # noqa: PLC0415 - an extra.
            from skillhouse.frontends.mcp.stdio import serve_wire  # noqa: PLC0415
        reader.end_fast_handshake()
        server = SkillhouseServer(house, listing, agent=agent, user=user)
        anyio.run(serve_wire, server, reader, fast_handshake, sink)
    return 0


@contextmanager
def _mcp_extra() -> Iterator[None]:
    """Turn a missing package into the error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("skillhouse"):
            raise
        raise MissingExtraError("mcp", error.name) from error


@contextmanager
def _no_collection() -> Iterator[None]:
    """Import without looking for garbage, of which imports make none.

    The SDK's models are several hundred thousand objects; walking them again and again takes a
    fifth of the import, and a client waits for our answers.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        # What is imported stays; later collections need not look at it.
        gc.freeze()
    finally:
        if enabled:
            gc.enable()

"""`skillhouse up`."""

from __future__ import annotations

import argparse
import logging
import sys

from skillhouse.frontends.cli.options import add_place, house_of, port
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.http import serve
from skillhouse.frontends.logs import service_logging

EXAMPLES = """examples:
  skillhouse up
  skillhouse up --port 8600
  skillhouse up --no-auth       /mcp without the token, for a client that cannot send one

The page is served on 127.0.0.1 only; the address printed holds the token that opens it. At /mcp
the same address serves the tools to MCP clients, which send `Authorization: Bearer TOKEN`.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--port", type=port, default=8600, metavar="N", help="port (8600; 0 takes a free one)"
    )
    parser.add_argument(
        "--no-auth",
        action="store_true",
        help="answer /mcp without the token; every program of this machine can call tools then",
    )
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until Ctrl-C."""
    house = house_of(options)
    if options.no_auth:
        terminal.note(
            "/mcp needs no token: every program of this machine can call tools here. Questions are "
            "answered on the page or the command line only"
        )
    handler = service_logging(sys.stderr, house.audit_log.clean)
    try:
        return serve(house, port=options.port, announce=terminal.line, open_mcp=options.no_auth)
    finally:
        logging.getLogger().removeHandler(handler)

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

The page is served on 127.0.0.1 only; the address printed holds the token that opens it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--port", type=port, default=8600, metavar="N", help="port (8600; 0 takes a free one)"
    )
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until Ctrl-C."""
    house = house_of(options)
    handler = service_logging(sys.stderr, house.audit_log.clean)
    try:
        return serve(house, port=options.port, announce=terminal.line)
    finally:
        logging.getLogger().removeHandler(handler)

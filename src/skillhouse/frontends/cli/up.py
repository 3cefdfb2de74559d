"""`skillhouse up`."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import re
import sys
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.options import UsageError, Verb, add_place, house_of, port
from skillhouse.frontends.cli.person import coding_agent
from skillhouse.frontends.http import serve
from skillhouse.frontends.presentation.service_log import service_logging

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse up
  skillhouse up --port 8600
  skillhouse up --host 0.0.0.0 --allow-host house.example.com:8600
  skillhouse up --no-auth       /mcp without the token, for a client that cannot send one

The page is served on 127.0.0.1 if --host names no other address; the address printed holds the
token that opens it. Whatever the address, only requests for 127.0.0.1, localhost and the names of
--allow-host are answered, and none without the token. There is no TLS: beyond this machine, put a
server that has it in front. At /mcp the same address serves the
tools to MCP clients, which send `Authorization: Bearer TOKEN`.
"""

_HOST = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?"
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=port, default=8600, metavar="N", help="port (8600; 0 takes a free one)"
    )
    parser.add_argument(
        "--host",
        type=address,
        default="127.0.0.1",
        metavar="ADDR",
        help="listen on this address (127.0.0.1); with another one, the network reaches it",
    )
    parser.add_argument(
        "--allow-host",
        dest="allowed",
        type=host_name,
        action="append",
        default=[],
        metavar="NAME[:PORT]",
        help="also answer under this name, as a browser sends it; may be repeated",
    )
    parser.add_argument(
        "--no-auth",
        action="store_true",
        help="answer /mcp without the token; every program of this machine can call tools then",
    )
    add_place(parser)


def address(text: str) -> str:
    """Return an IP address, for argparse; a name could mean another one tomorrow."""
    try:
        return str(ipaddress.ip_address("127.0.0.1" if text == "localhost" else text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an IP address, got `{text}`") from None


def host_name(text: str) -> str:
    """Return what a request may have as Host, for argparse."""
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected NAME or NAME:PORT, got `{text}`")
    return text.lower()


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until Ctrl-C."""
    is_reachable = not ipaddress.ip_address(options.host).is_loopback
    if options.no_auth and (is_reachable or options.allowed):
        raise UsageError("--no-auth is for this machine only: leave out --host and --allow-host")
    house = house_of(options)
    if is_reachable:
        terminal.note(
            f"listening on {options.host}: the network reaches this service; it has no TLS"
        )
    if options.no_auth:
        terminal.note(
            "/mcp needs no token: every program of this machine can call tools here. Questions are "
            "answered on the page or the command line only"
        )
    agent = coding_agent(os.environ)
    if agent:
        terminal.note(f"nothing is approved on this page: {agent}")
    handler = service_logging(sys.stderr, house.audit_log.clean)
    try:
        return serve(
            house,
            port=options.port,
            announce=terminal.line,
            open_mcp=options.no_auth,
            host=options.host,
            allowed=options.allowed,
            read_only=agent,
        )
    finally:
        logging.getLogger().removeHandler(handler)


VERBS = {"up": Verb(_EXAMPLES, _configure, _run)}

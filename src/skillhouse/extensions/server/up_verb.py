"""`skillhouse up`."""

from __future__ import annotations

import argparse
import gc
import ipaddress
import logging
import os
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.extension import own_module
from skillhouse.floor import isolated
from skillhouse.floor.regex import regex
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_place,
    add_tools,
    address,
    house_of,
    port,
)
from skillhouse.manage import trust_notes

if TYPE_CHECKING:
    from skillhouse.extensions.server.app import Beside
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse.tools import Tool

_UP_EXAMPLES = """examples:
  skillhouse up
  skillhouse up --open          in the browser, at once
  skillhouse up --port 8600
  skillhouse up --host 0.0.0.0 --allow-host house.example.com:8600
  skillhouse up --host 0.0.0.0 --allow-host house.example.com:8600 --cert c.pem --cert-key k.pem
  skillhouse up --no-auth       /mcp without the token, for a client that cannot send one

The page is served on 127.0.0.1 if --host names no other address; the address printed holds the
token that opens it. Whatever the address, only requests for 127.0.0.1, localhost and the names of
--allow-host are answered, and none without the token. Beyond this machine use TLS: --cert, or a
server in front that has it. A browser that used the address once stays signed in for 90 days, also
after a restart; `skillhouse tokens` lists and revokes browsers, and makes tokens for programs that
use the HTTP API at /api/v1. At /mcp the same address serves the
tools to MCP clients, which send `Authorization: Bearer TOKEN`.
"""

_HOST = regex(
    r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?"
)


DRAIN_MAX = 3_600
"""Seconds; a supervisor kills what ends more slowly."""


def _configure_up(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--open",
        dest="opens",
        action="store_true",
        help="open the page in the browser, which stays signed in after a restart",
    )
    parser.add_argument(
        "--cert", type=Path, metavar="FILE", help="serve by TLS with this certificate (PEM)"
    )
    parser.add_argument(
        "--cert-key", type=Path, metavar="FILE", help="key of the certificate (PEM, no password)"
    )
    parser.add_argument(
        "--drain",
        type=drain_seconds,
        default=20.0,
        metavar="SECONDS",
        help="after SIGTERM, wait so long for requests that run (20; 0 for not at all)",
    )
    add_tools(parser)
    add_place(parser)


def drain_seconds(text: str) -> float:
    """Return a number of seconds from 0 to an hour; ArgumentTypeError for anything else."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= DRAIN_MAX:
        raise argparse.ArgumentTypeError(f"expected 0 to {DRAIN_MAX} seconds, got `{text}`")
    return seconds


def host_name(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected NAME or NAME:PORT, got `{text}`")
    return text.lower()


def _up(options: argparse.Namespace, terminal: Terminal) -> int:
    from skillhouse.extensions import server as http
    from skillhouse.frontends.cli.person import coding_agent
    from skillhouse.house import BundleRefresh
    from skillhouse.install import RepositoryRefresh
    from skillhouse.presentation.service_log import service_logging

    is_reachable = not ipaddress.ip_address(options.host).is_loopback
    if options.no_auth and (is_reachable or options.allowed):
        raise UsageError("--no-auth is for this machine only: leave out --host and --allow-host")
    if (options.cert is None) != (options.cert_key is None):
        raise UsageError("expected `--cert` and `--cert-key` together")
    use_one_heap()
    # By name: the bot's webhook uses the server of this extension.
    send_file = own_module("channels", "send_file").SendFileTool()
    house = house_of(options, tools=(send_file,))
    if is_reachable:
        tls = "" if options.cert else ", and it has no TLS: browsers give a companion app no key"
        terminal.note(
            f"listening on {options.host}: the network reaches this service; it demands a token"
            f"{tls}"
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
    house.view().search.start()
    # It may start a Python for each client that has hooks, which the page does not wait for.
    threading.Thread(target=_note_later, args=(house, terminal), daemon=True).start()
    before = collect_often()
    try:
        with RepositoryRefresh(house), BundleRefresh(house):
            return http.serve(
                house,
                port=options.port,
                announce=lambda address: _announced(address, terminal),
                open_mcp=options.no_auth,
                host=options.host,
                allowed=options.allowed,
                read_only=agent,
                opens=options.opens,
                beside=_bot_of(house, send_file, terminal),
                certificate=None if options.cert is None else (options.cert, options.cert_key),
                drain_seconds=options.drain,
            )
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        logging.getLogger().removeHandler(handler)


def _note_later(house: Skillhouse, terminal: Terminal) -> None:
    """Say what the page does not wait for: entries of clients, and signatures that end."""
    from skillhouse.frontends.cli.hooks import note_faults

    note_faults(house, terminal)
    with isolated():
        for line in trust_notes(house):
            terminal.note(line)


def _bot_of(house: Skillhouse, send_file: Tool, terminal: Terminal) -> Beside | None:
    """Return what runs the bot beside the page, where the configuration has channels."""
    house.use_extensions()
    of_others = any(one.chat_channels for one in house.services.extensions.extensions)
    if not (house.config.bot.has_channels or of_others):
        return None
    if find_spec("pydantic_ai") is None:
        terminal.note("the bot is not served here: it needs the extra `telegram`")
        return None
    # Without it the library of the models prints an advertisement on terminals.
    os.environ["PYDANTIC_AI_NO_BANNER"] = "1"
    bot = own_module("channels", "bot")
    return lambda: bot.bot_beside(house, send_file, terminal.note)


def _announced(address: str, terminal: Terminal) -> None:
    """Print the one address, and for a person what to do with it."""
    terminal.line(address)
    if terminal.is_watched:
        terminal.note("open this address in a browser; Ctrl-C ends the page")


M_ARENA_MAX = -8
"""The parameter's number in glibc's malloc.h."""


def use_one_heap() -> None:
    """Have the threads to come allocate from one heap, where the C library is glibc.

    It gives them up to eight heaps for each processor. What threads that come and go leave in each
    is not used by the others: 50 MiB after four minutes of requests (decision 0330).
    """
    import ctypes

    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows.
        return
    set_option(M_ARENA_MAX, 1)


OBJECTS_PER_COLLECTION = 5_000
"""Of a service: one command makes few circles, and pages that are read for days make many."""


def collect_often() -> tuple[int, int, int]:
    """Have circles looked for among what is new from now on, and return the thresholds before."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    return before


VERBS = {"up": Verb(_UP_EXAMPLES, _configure_up, _up)}

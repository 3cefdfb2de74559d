"""The verbs that serve: `up`, `mcp` and `worker`."""

from __future__ import annotations

import argparse
import gc
import ipaddress
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.floor.regex import regex
from skillhouse.frontends.cli.options import UsageError, Verb, add_place, add_tools, house_of, port

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import ConfigNews

_UP_EXAMPLES = """examples:
  skillhouse up
  skillhouse up --open          in the browser, at once
  skillhouse up --port 8600
  skillhouse up --host 0.0.0.0 --allow-host house.example.com:8600
  skillhouse up --no-auth       /mcp without the token, for a client that cannot send one

The page is served on 127.0.0.1 if --host names no other address; the address printed holds the
token that opens it. Whatever the address, only requests for 127.0.0.1, localhost and the names of
--allow-host are answered, and none without the token. There is no TLS: beyond this machine, put a
server that has it in front. A browser that used the address once stays signed in for 90 days, also
after a restart; `skillhouse tokens` lists and revokes browsers, and makes tokens for programs that
use the HTTP API at /api/v1. At /mcp the same address serves the
tools to MCP clients, which send `Authorization: Bearer TOKEN`.
"""

_HOST = regex(
    r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?"
)


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
    add_tools(parser)
    add_place(parser)


def address(text: str) -> str:
    """Return an IP address, for argparse; a name could mean another one tomorrow."""
    try:
        return str(ipaddress.ip_address("127.0.0.1" if text == "localhost" else text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an IP address, got `{text}`") from None


def host_name(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected NAME or NAME:PORT, got `{text}`")
    return text.lower()


def _up(options: argparse.Namespace, terminal: Terminal) -> int:
    from skillhouse.frontends.cli.person import coding_agent
    from skillhouse.frontends.http import serve
    from skillhouse.frontends.presentation.service_log import service_logging

    is_reachable = not ipaddress.ip_address(options.host).is_loopback
    if options.no_auth and (is_reachable or options.allowed):
        raise UsageError("--no-auth is for this machine only: leave out --host and --allow-host")
    use_one_heap()
    house = house_of(options)
    if is_reachable:
        terminal.note(
            f"listening on {options.host}: the network reaches this service; it demands a token, "
            "and it has no TLS"
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
    before = collect_often()
    try:
        return serve(
            house,
            port=options.port,
            announce=lambda address: _announced(address, terminal),
            open_mcp=options.no_auth,
            host=options.host,
            allowed=options.allowed,
            read_only=agent,
            opens=options.opens,
        )
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        logging.getLogger().removeHandler(handler)


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


_MCP_EXAMPLES = """examples:
  skillhouse mcp                                 serve, as a coding agent starts it
  skillhouse mcp -C ~/project --agent reviewer
  skillhouse mcp install codex                   add the server to Codex's configuration
  skillhouse mcp install claude-code --project   in .mcp.json of this project
  skillhouse mcp install codex --tools skills    only the tools about skills
  skillhouse mcp status                          which clients have it; 1 when an entry is unsafe
  skillhouse mcp status --fix                    mend what starts it unsafely
  skillhouse mcp uninstall codex
  skillhouse mcp servers                         the servers whose skills are used here
  skillhouse mcp servers refresh docs            ask one what it has; without a label, all
  skillhouse mcp servers add docs skill://pdf/SKILL.md
  skillhouse mcp servers forget docs             remove what is stored of it

A coding agent starts the server itself and talks to it over stdin and stdout; docs/guides/agents.md
says what it gets. What needs approval waits: answer it with `skillhouse approvals` or on the page
of `skillhouse up`, and the agent repeats the call.

Clients: claude-code, codex, copilot-cli, copilot-vscode (or vscode), cursor, gemini-cli,
opencode-cli, qwen-code, windsurf, zed. Comments in their files stay, and an entry that we did not
write is left alone; `status --fix` replaces its program where that is not safe.
Servers are named in [[mcp_servers]] of the configuration.
"""


def _configure_mcp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("install", "uninstall", "status", "servers"),
        help="about clients' configurations, or other servers; without it, serve",
    )
    parser.add_argument(
        "clients",
        nargs="*",
        metavar="CLIENT",
        help="whose configuration; after `servers`: list, refresh, add, forget",
    )
    parser.add_argument(
        "--agent", default="default", metavar="NAME", help="whose skills and rules hold (default)"
    )
    parser.add_argument(
        "--user", default="local", metavar="NAME", help="the user that the audit log names (local)"
    )
    add_tools(parser)
    parser.add_argument("--log", action="store_true", help="say on stderr what goes wrong")
    clients = parser.add_argument_group("clients' configurations")
    clients.add_argument("--project", action="store_true", help="the project's, not the user's")
    clients.add_argument(
        "--name", default="skills", metavar="NAME", help="what the server is called (skills)"
    )
    clients.add_argument("--dry-run", action="store_true", help="show what would change")
    clients.add_argument("--force", action="store_true", help="also where our entry was changed")
    clients.add_argument(
        "--fix", action="store_true", help="with status: mend entries that are not safe to start"
    )
    clients.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    add_place(parser)


def _mcp(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until the client closes stdin, Ctrl-C or SIGTERM; or do what the action says."""
    if options.action == "servers":
        from skillhouse.frontends.cli.skill_servers import served

        with house_of(options) as house:
            return served(options, house, terminal)
    if options.action is not None:
        # Not loaded to serve: the first answer must come soon.
        from skillhouse.frontends.cli.client_files import configured

        with house_of(options) as house:
            return configured(options, house, terminal)
    from skillhouse.frontends.cli.question import is_typed
    from skillhouse.frontends.mcp import serve

    if is_typed():
        terminal.note(
            "an MCP client starts this and sends JSON messages, one in a line; at a terminal it "
            "waits for them, and Ctrl-C ends it. `skillhouse mcp install` registers it with one"
        )
    if options.log:
        logging.basicConfig(level=logging.INFO)
    else:
        # Without any handler Python prints warnings to stderr.
        logging.getLogger().addHandler(logging.NullHandler())
    with house_of(options) as house:
        if not options.log:
            house.config_reload.subscribe(_print_news)
        return serve(house, agent=options.agent, user=options.user)


def _print_news(news: ConfigNews) -> None:
    """Print what became of a changed configuration where clients keep the log of a server."""
    from skillhouse.frontends.presentation.text import one_line

    with suppress(OSError):
        print(f"skillhouse: {one_line(news.text)}", file=sys.stderr, flush=True)


PORT = 8700
CONTAINER_HINT = "in a hardened container of its own, say --boundary container"
_WORKER_EXAMPLES = """examples:
  skillhouse worker --skills ./skills --core http://127.0.0.1:8701/rpc --token-file token
  skillhouse worker --skills /skills --core http://core:8701/rpc --host 0.0.0.0 \\
    --token-file /run/secrets/rpc-token --boundary container

Runs the code of skills for a core in another process: `[skill_code] executor` in its configuration
names this address. Both know the same token, of 16 characters or more; it is read from a file or a
variable and never from the command line. What skills fetch, read and sign is asked of the core.

--boundary sandbox (the default) runs code by bubblewrap, and ends where that does not work.
--boundary container is for a hardened container, in which bubblewrap cannot work: the container is
the outer boundary, and each call is one process held by Landlock, a system call filter and limits.
docs/guides/containers.md says what that is worth.
"""


def _configure_worker(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--skills", action="append", required=True, metavar="DIR",
        help="serve the skills directly below DIR; may be repeated")  # fmt: skip
    add(
        "--core", required=True, metavar="URL", help="where the core is asked: http://HOST:PORT/rpc"
    )
    token = parser.add_mutually_exclusive_group(required=True)
    token.add_argument("--token-file", metavar="FILE", help="the file that holds the token")
    token.add_argument("--token-env", metavar="NAME", help="the variable that holds the token")
    add("--host", default="127.0.0.1", metavar="ADDR",
        help="where to listen (127.0.0.1); with another one, the network reaches it")  # fmt: skip
    add("--port", type=port, default=PORT, metavar="N", help=f"port ({PORT}; 0 takes a free one)")
    add("--boundary", choices=("sandbox", "container"), default="sandbox",
        help="what holds the code (sandbox)")  # fmt: skip
    add("--packages", metavar="DIR", help="the store of dependencies that the core fills")
    add("--python-packages", action="append", default=[], metavar="DIR",
        help="modules for all skills in Python")  # fmt: skip
    add("--node-packages", action="append", default=[], metavar="DIR",
        help="modules for all skills in JavaScript")  # fmt: skip
    add("--state", metavar="DIR", help="where copies of running skills are kept (temporary)")
    add("--json", action="store_true", help="print the first line as JSON")


def _worker(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until Ctrl-C or SIGTERM; 3 when no code can be run here."""
    from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name
    from skillhouse.frontends.executor import ExecutorSettings, at_port, line_of
    from skillhouse.house.container import token_at

    by_name = options.token_env is not None
    place = f"env:{options.token_env}" if by_name else f"file:{options.token_file}"
    token = token_at(place, os.environ)
    try:
        at_port(options.core, 0)
    except ValueError as error:
        raise UsageError(str(error)) from None

    def report(line: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        terminal.note(line_of({"time": now, **line}))
        sys.stderr.flush()

    def announce(line: Mapping[str, Any]) -> None:
        said = (
            f"runs the code of skills at {line['address']} ({line['level']}, {line['tools']} tools)"
        )
        terminal.line(line_of(line) if options.json else said)
        sys.stdout.flush()

    prefix = f"{COMMON_NAME}{owner_name()}-"
    with tempfile.TemporaryDirectory(prefix=prefix) as made:
        settings = ExecutorSettings(
            host=options.host,
            port=options.port,
            token=token,
            core=options.core,
            skills=_directories(options.skills, "--skills"),
            state=Path(options.state or made).absolute(),
            packages=None if options.packages is None else Path(options.packages).absolute(),
            shared={
                "python": _directories(options.python_packages, "--python-packages"),
                "javascript": _directories(options.node_packages, "--node-packages"),
            },
        )
        return anyio.run(_serve, settings, options.boundary, announce, report)


async def _serve(settings: Any, boundary: str, announce: Any, report: Any) -> int:
    from skillhouse.cells import contained_test, self_test
    from skillhouse.frontends.executor import run_executor
    from skillhouse.sandbox import SandboxLevel

    # Where bubblewrap does not work, the operator chooses: `container` takes over.
    least = SandboxLevel.RLIMITS
    status = await (contained_test() if boundary == "container" else self_test(least=least))
    if status.level is SandboxLevel.NONE:
        hint = status.hint if boundary == "container" else f"{status.hint}; {CONTAINER_HINT}"
        report({"event": "no-sandbox", "reasons": list(status.reasons), "hint": hint})
        return 3
    await run_executor(settings, status, announce, report)
    return 0


def _directories(given: list[str], option: str) -> tuple[Path, ...]:
    found = tuple(Path(text).absolute() for text in given)
    for path in found:
        if not path.is_dir():
            raise UsageError(f"expected a directory after {option}, got `{path}`")
    return found


VERBS = {
    "up": Verb(_UP_EXAMPLES, _configure_up, _up),
    "mcp": Verb(_MCP_EXAMPLES, _configure_mcp, _mcp),
    "worker": Verb(_WORKER_EXAMPLES, _configure_worker, _worker),
}

"""`skillhouse worker`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.frontends.cli.options import UsageError, Verb, port

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

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
    from skillhouse.extensions.cells.worker.executor import ExecutorSettings, at_port, line_of
    from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name
    from skillhouse.house import token_at

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
    from skillhouse.extensions.cells import contained_test, self_test
    from skillhouse.extensions.cells.worker.executor import run_executor
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


VERBS = {"worker": Verb(_WORKER_EXAMPLES, _configure_worker, _worker)}

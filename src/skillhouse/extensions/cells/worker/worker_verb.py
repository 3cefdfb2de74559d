"""`skillhouse worker`."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.frontends.cli.options import UsageError, Verb, port, positive

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

PORT = 8700
CALLS = 256
DRAIN = 8
EXECUTOR_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
CONTAINER_HINT = "in a hardened container of its own, say --boundary container"
_WORKER_EXAMPLES = """examples:
  skillhouse worker --skills ./skills --core http://127.0.0.1:8701/rpc --token-file token
  skillhouse worker --skills /skills --core http://core:8701/rpc --host 0.0.0.0 \\
    --token-file /run/secrets/rpc-token --boundary container
  skillhouse worker --core 'https://*.cores.internal:8701/rpc' --host 0.0.0.0 --tokens /run/tokens \
    --tls-certificate tls.crt --tls-key tls.key --tls-ca ca.crt --probe-port 8702 --calls 32

Runs the code of skills for a core in another process: `[skill_code] executor` in its configuration
names this address. Both know the same token, of 16 characters or more; it is read from a file or a
variable and never from the command line. What skills fetch, read and sign is asked of the core.

Without --skills the code comes from the cores, by the digest that was judged there: nothing is
shared. --tokens names a file of lines `NAME TOKEN` or `NAME sha256:HEX`, or a directory with a file
for each token; it and the files of TLS are read again when they change. GET /healthz and /readyz
need no token. docs/guides/executors.md has all of it.

--boundary sandbox (the default) runs code by bubblewrap, and ends where that does not work.
--boundary container is for a hardened container, in which bubblewrap cannot work: the container is
the outer boundary, and each call is one process held by Landlock, a system call filter and limits.
docs/guides/containers.md says what that is worth.
"""


def _configure_worker(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--skills", action="append", default=[], metavar="DIR",
        help="serve the skills directly below DIR; may be repeated (without it, cores send code)",
        )  # fmt: skip
    add("--core", action="append", required=True, metavar="URL",
        help="where the core is asked: http://HOST:PORT/rpc; may be repeated, HOST may be `*.NAME`",
        )  # fmt: skip
    token = parser.add_mutually_exclusive_group(required=True)
    token.add_argument("--token-file", metavar="FILE", help="the file that holds the token")
    token.add_argument("--token-env", metavar="NAME", help="the variable that holds the token")
    token.add_argument("--tokens", metavar="PATH", help="a file or directory of named tokens")
    add("--tls-certificate", metavar="FILE", help="serve with TLS: the certificate and its chain")
    add("--tls-key", metavar="FILE", help="its key")
    add("--tls-ca", metavar="FILE", help="take only cores with a certificate of this CA")
    add("--calls", type=positive, default=CALLS, metavar="N",
        help=f"calls at one time; more are refused with 503 ({CALLS})")  # fmt: skip
    add("--drain", type=positive, default=DRAIN, metavar="SECONDS",
        help=f"how long calls may go on after SIGTERM ({DRAIN})")  # fmt: skip
    add("--probe-port", type=port, metavar="N",
        help="answer /healthz and /readyz on a port without TLS, too")  # fmt: skip
    add("--name", default="", metavar="NAME", help="what its own answers call it")
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
    from skillhouse.extensions.cells import TlsFiles, TlsPaths
    from skillhouse.extensions.cells.worker.executor import CoreAddresses, ExecutorSettings, line_of
    from skillhouse.floor.crash_cleanup import COMMON_NAME, owner_name

    if options.name and not re.fullmatch(EXECUTOR_NAME, options.name):
        raise UsageError("expected letters, digits, dots and dashes after --name")
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise UsageError("expected --tls-certificate and --tls-key together")
    if options.tls_ca is not None and options.tls_certificate is None:
        raise UsageError("expected --tls-certificate and --tls-key with --tls-ca")
    try:
        CoreAddresses(options.core)
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

    tls = None
    if options.tls_certificate is not None:
        tls = TlsPaths(
            certificate=Path(options.tls_certificate).absolute(),
            key=Path(options.tls_key).absolute(),
            ca=None if options.tls_ca is None else Path(options.tls_ca).absolute(),
        )
        try:
            TlsFiles(tls, is_server=True)
        except ValueError as error:
            raise UsageError(str(error)) from None
    tokens = _tokens(options, report)
    prefix = f"{COMMON_NAME}{owner_name()}-"
    with tempfile.TemporaryDirectory(prefix=prefix) as made:
        settings = ExecutorSettings(
            host=options.host,
            port=options.port,
            tokens=tokens,
            cores=tuple(options.core),
            tls=tls,
            calls=options.calls,
            drain_seconds=float(options.drain),
            probe_port=options.probe_port,
            name=options.name or socket.gethostname()[:63],
            skills=_directories(options.skills, "--skills"),
            state=Path(options.state or made).absolute(),
            packages=None if options.packages is None else Path(options.packages).absolute(),
            shared={
                "python": _directories(options.python_packages, "--python-packages"),
                "javascript": _directories(options.node_packages, "--node-packages"),
            },
        )
        return anyio.run(_serve, settings, options.boundary, announce, report)


def _tokens(options: argparse.Namespace, report: Any) -> Any:
    """Return what says whose a token is; ConfigError where none is valid at the start."""
    from skillhouse.extensions.cells.rpc_tokens import FixedTokens, TokenFiles
    from skillhouse.house import token_at

    if options.token_env is not None:
        return FixedTokens(token_at(f"env:{options.token_env}", os.environ))
    if options.token_file is not None:
        token_at(f"file:{options.token_file}", os.environ)
    path = Path(options.tokens or options.token_file).absolute()
    tokens = TokenFiles(path, lambda text: report({"event": "warning", "message": text}))
    if not tokens.names():
        raise UsageError(f"expected a token in `{path}`")
    return tokens


async def _serve(settings: Any, boundary: str, announce: Any, report: Any) -> int:
    from skillhouse.extensions.cells import contained_test, self_test
    from skillhouse.extensions.cells.worker.executor import run_executor
    from skillhouse.sandbox import SandboxLevel

    # Where bubblewrap does not work, the operator chooses: `container` takes over.
    least = SandboxLevel.RLIMITS

    async def test() -> Any:
        return await (contained_test() if boundary == "container" else self_test(least=least))

    status = await test()
    if status.level is SandboxLevel.NONE:
        hint = status.hint if boundary == "container" else f"{status.hint}; {CONTAINER_HINT}"
        report({"event": "no-sandbox", "reasons": list(status.reasons), "hint": hint})
        return 3
    await run_executor(settings, status, announce, report, test=test)
    return 0


def _directories(given: list[str], option: str) -> tuple[Path, ...]:
    found = tuple(Path(text).absolute() for text in given)
    for path in found:
        if not path.is_dir():
            raise UsageError(f"expected a directory after {option}, got `{path}`")
    return found


VERBS = {"worker": Verb(_WORKER_EXAMPLES, _configure_worker, _worker)}

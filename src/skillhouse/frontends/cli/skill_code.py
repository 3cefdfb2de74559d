"""The verbs about running the code of skills: `reload`, `sandbox` and `worker`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse.cells import self_test
from skillhouse.floor import Severity
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, add_json, house_of, port
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.frontends.presentation.json_values import sandbox_value
from skillhouse.frontends.presentation.text import counted, shown
from skillhouse.runtime.code_reload import reload_code
from skillhouse.sandbox import SandboxLevel

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import Skillhouse
    from skillhouse.runtime.code_reload import Loaded, Reloaded
    from skillhouse.sandbox import SandboxStatus

_RELOAD_EXAMPLES = """examples:
  skillhouse reload
  skillhouse reload --json

Reads every manifest again and loads the code of each skill in a cell, without calling a tool. Code
that needs approval before it runs is not loaded. A tool that the manifest declares and the code
does not export is no longer offered. Running `up`, `mcp` and `chat` processes reload before their
next call; calls in progress finish with the code that they began with.
"""

_PROGRESS_SECONDS = 1.0


def _configure_reload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", default="default", metavar="NAME", help="as this agent")
    add_common(parser)


def _reload(options: argparse.Namespace, terminal: Terminal) -> int:
    """Say which tools of skills can be used; 1 when something cannot."""
    with house_of(options) as house:
        done = anyio.run(_reloaded, house, options.agent, _progress(terminal))
    found = done.loaded
    problems = house.services.skill_code.problems
    failed = _failed(found) + [
        (str(problem.path or ""), problem.message)
        for problem in problems
        if problem.severity is Severity.ERROR
    ]
    if options.json:
        terminal.json(
            {
                "loaded": [name for skill in found for name in skill.tools],
                "not_tried": [skill.skill for skill in found if not skill.is_tried],
                "failed": [{"name": name, "error": error} for name, error in failed],
                "steps": [
                    {"directory": str(directory), "step": step} for directory, step in done.steps
                ],
            }
        )
        return 1 if failed else 0
    if not house.services.skill_code.is_enabled:
        terminal.note("skills' own code is off: set `enabled = true` below `[skill_code]`")
    for skill in found:
        for name in skill.tools:
            terminal.line(shown(name) + ("" if skill.is_tried else " (asked about, not loaded)"))
    for name, error in _failed(found):
        terminal.line(f"{shown(name)}: {terminal.style('failed', 'red')}: {shown(error)}")
    for problem in problems:
        terminal.line(finding_line(problem, terminal))
    loaded = sum(len(skill.tools) for skill in found)
    terminal.note(f"{counted(loaded, 'tool')} of skills, {len(failed)} failed")
    return 1 if failed else 0


async def _reloaded(
    house: Skillhouse, agent: str, progress: Callable[[int, int], None]
) -> Reloaded:
    try:
        return await reload_code(house, agent=agent, progress=progress)
    finally:
        await house.services.release_loop()


def _progress(terminal: Terminal) -> Callable[[int, int], None]:
    """Return a function that reports the progress of a reload on a terminal, each second."""
    said_at = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        now = time.monotonic()
        if now >= said_at + _PROGRESS_SECONDS and sys.stderr.isatty():
            said_at = now
            terminal.note(f"loaded {done} of {counted(of, 'skill')}")

    return tell


def _failed(found: tuple[Loaded, ...]) -> list[tuple[str, str]]:
    whole = [(skill.skill, skill.error) for skill in found if skill.error]
    single = [
        (f"{skill.skill}:{tool}", "the manifest declares it, and the code does not export it")
        for skill in found
        if skill.lacking is not None
        for tool in skill.lacking.tools
    ]
    return whole + single


_SANDBOX_EXAMPLES = """examples:
  skillhouse sandbox status
  skillhouse sandbox status --json
"""


def _configure_sandbox(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    status = verbs.add_parser("status", help="which level commands run at, tested now")
    add_json(status)


def _sandbox(options: argparse.Namespace, terminal: Terminal) -> int:
    """Test the sandbox and print its level; 3 when commands cannot run here."""
    status = anyio.run(self_test)
    if options.json:
        terminal.json(sandbox_value(status))
    else:
        _print_status(status, terminal)
    return 3 if status.level is SandboxLevel.NONE else 0


def _print_status(status: SandboxStatus, terminal: Terminal) -> None:
    terminal.line(f"level: {status.level}")
    for reason in status.reasons:
        terminal.line(f"  {reason}")
    if status.hint:
        terminal.line(f"  {status.hint}")
    if status.probes:
        terminal.line()
    for probe in status.probes:
        word = "holds" if probe.passed else terminal.style("fails", "red")
        terminal.line(
            f"  {probe.name:<36}{word}{'  ' + shown(probe.detail) if probe.detail else ''}"
        )


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
    from skillhouse.frontends.executor import ExecutorSettings, at_port, line_of
    from skillhouse.runtime.code.container import token_at

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

    with tempfile.TemporaryDirectory(prefix="skillhouse-worker-") as made:
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

    status = await (contained_test() if boundary == "container" else self_test())
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
    "reload": Verb(_RELOAD_EXAMPLES, _configure_reload, _reload),
    "sandbox": Verb(_SANDBOX_EXAMPLES, _configure_sandbox, _sandbox),
    "worker": Verb(_WORKER_EXAMPLES, _configure_worker, _worker),
}

"""The command line: finds the verb, loads its module, and turns errors into exit codes."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import skillhouse

if TYPE_CHECKING:
    from skillhouse.frontends.cli.options import Verb
    from skillhouse.frontends.cli.terminal import Terminal

__all__ = ["main"]

OK, FINDING, USAGE, ENVIRONMENT = 0, 1, 2, 3
"""Exit codes (DESIGN, "Command line")."""
OBJECTS_PER_COLLECTION = 100_000
"""New objects after which cycles are looked for: importing makes many, all of which stay."""

VERBS = {
    "up": ("serve", "serve the status page on this machine"),
    "list": ("listing", "list the skills that an agent sees here"),
    "catalog": ("browse", "print the list of skills that a model gets, or one for a request"),
    "show": ("describe", "show one skill: metadata, files, findings, permission"),
    "search": ("browse", "rank the skills for a request"),
    "load": ("browse", "print the body of a skill"),
    "invoke": ("calls", "start a skill as a slash command does, with arguments"),
    "files": ("describe", "list the other files of a skill"),
    "new": ("manage", "create a skill of your own, or of this project"),
    "enable": ("manage", "let agents see a skill again"),
    "disable": ("manage", "hide a skill from every agent"),
    "delete": ("manage", "delete one of your own skills, or put it back"),
    "validate": ("check", "check skills against the specification, for authors"),
    "doctor": ("clients", "show which client sees which skill, and why others don't"),
    "profiles": ("clients", "list, show and compare how clients treat skills"),
    "export": ("client_files", "write skills into the folders that other clients read"),
    "trust": ("project_trust", "let this project's skills be read"),
    "chat": ("chat", "chat with a model that has the skills"),
    "rehearse": ("check", "walk a request through every step without a model"),
    "tools": ("calls", "list the tools that an agent has"),
    "call": ("calls", "make one gated tool call"),
    "mcp": ("serve", "run the MCP server, or register it with a coding agent"),
    "reload": ("reload", "read and load the code of skills again, and list what fails"),
    "approvals": ("approvals", "list and answer open permission requests"),
    "audit": ("audit", "list, show and verify recorded calls"),
    "policy": ("policy", "write a starting policy, explain a decision, or lint the rules"),
    "config": ("configuration", "show where the configuration is, and what is wrong with it"),
    "remote": ("skill_servers", "list and sync the servers whose skills are used here"),
    "sandbox": ("sandbox_status", "test the sandbox that commands run in"),
    "worker": ("serve", "run the code of skills for a core in another process"),
    "keys": ("signing_keys", "make, list and revoke the keys that sign"),
    "stop": ("manage", "stop every tool and end the session keys at once"),
    "resume": ("manage", "allow the tools again after a stop"),
}
"""Each verb's module in this package, and what it does in one line."""

_INTRODUCTION = """usage: skillhouse VERB [OPTIONS]

Finds, checks and runs the skills of AI agents.

"""
_CLOSING = """
examples:
  skillhouse list
  skillhouse rehearse "What's the weather in Tokyo?"
  skillhouse validate ./my-skill

`skillhouse help VERB` explains a verb. Every listing verb takes --json.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 ok, 1 finding, 2 usage, 3 environment.

    Without `argv` the command is that of this process, which ends with it.
    """
    if argv is not None:
        return _guarded(list(argv))
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    try:
        code = _guarded(sys.argv[1:])
    finally:
        # What is here goes with the process: looking through it for cycles first took 50 ms.
        gc.freeze()
    _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process without taking its modules apart, which takes 10 ms; return if it may not.

    What is registered for the end of a process runs first. Where a thread goes on or the output
    cannot be written, the interpreter ends in its own way.
    """
    if threading.active_count() > 1:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` leaves them out, and nothing else has them.
    try:
        # A stream that was closed before we began is None.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


def _guarded(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        # The shell expects the code of a process that the signal ended.
        _terminal().error("stopped")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does; that is no fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _run(arguments: list[str]) -> int:
    """Answer what needs no verb; nothing else of the program is loaded for that."""
    if len(arguments) > 1 and arguments[0] == "help":
        # `help policy explain` is `policy explain --help`.
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return OK
    verb = arguments[0]
    if verb in ("-V", "--version"):
        sys.stdout.write(f"skillhouse {skillhouse.__version__}\n")
        return OK
    terminal = _terminal()
    if verb not in VERBS:
        terminal.error(_unknown(verb))
        return USAGE
    return _call(verb, arguments[1:], terminal)


def _terminal() -> Terminal:
    from skillhouse.frontends.cli.terminal import Terminal

    return Terminal(sys.stdout, sys.stderr, os.environ)


def _call(verb: str, arguments: list[str], terminal: Terminal) -> int:
    """Parse the verb's arguments and run it; our own errors become messages."""
    from skillhouse.floor import ConfigError, MissingExtraError, SkillhouseError, StateError
    from skillhouse.frontends.cli.options import HelpFormatter, Parser, UsageError

    module, summary = VERBS[verb]
    command: Verb = importlib.import_module(f"{__name__}.{module}").VERBS[verb]
    parser = Parser(
        prog=f"skillhouse {verb}",
        description=summary[0].upper() + summary[1:] + ".",
        epilog=command.examples,
        formatter_class=HelpFormatter,
    )
    command.configure(parser)
    parser.set_defaults(verb=verb)
    try:
        code = command.run(parser.parse_args(command.arguments(arguments)), terminal)
        sys.stdout.flush()
    except (UsageError, ConfigError) as error:
        terminal.error(str(error))
        return USAGE
    except (StateError, MissingExtraError) as error:
        terminal.error(str(error))
        return ENVIRONMENT
    except SkillhouseError as error:
        terminal.error(str(error))
        return FINDING
    except BrokenPipeError:
        raise
    except OSError as error:
        terminal.error(f"{(error.strerror or str(error)).lower()}: `{error.filename or verb}`")
        return ENVIRONMENT
    return code


def _unknown(verb: str) -> str:
    from skillhouse.floor import nearest

    close = nearest(verb, VERBS)
    hint = f"did you mean `{close[0]}`" if close else "`skillhouse --help` lists the verbs"
    return f"unknown verb `{verb}`; {hint}"


def _help() -> str:
    lines = [f"  {verb:<10}{summary}\n" for verb, (_, summary) in VERBS.items()]
    return _INTRODUCTION + "verbs:\n" + "".join(lines) + _CLOSING
